"""A service under attack: `/livez` and single recommendations for a client with a key.

1 to 2,500 connections of attackers without a key (for answers that are never read: with a key of
their own, within its rate limit) send headers, bodies or chunks slowly or without end, or say
nothing. Meanwhile a client opens a
connection for every request, as a probe does, and asks for its lists over one that stays open.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import Verdicts, begin, parser

import numpy as np
from attackers import KINDS
from fold_in import TOP, histories, untrained
from service_process import HERE, Cores, Service, pinned

KEY, ATTACKER = "the-key-of-the-client", "the-key-of-the-attacker"
RATE_LIMIT = 100  # users per second and key; the client sends fewer
CONNECTIONS = (1, 100, 2500)
SETTLE_S = 2.0  # from the start of an attack to the first measurement


def main() -> None:
    arguments = parser(__doc__, "yelp2018")
    arguments.add_argument("--seconds", type=float, default=5.0, help="of each attack")
    arguments.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    arguments.set_defaults(threads=1)
    options = arguments.parse_args()
    split, cores, verdicts = begin(options), Cores.of_machine(), Verdicts()
    print(cores)
    bodies = [json.dumps({"history": h, "k": TOP}) for h in histories(split, 50)]
    worst = {"livez": 0.0, "list": 0.0}
    with tempfile.TemporaryDirectory() as name:
        untrained(split).save(Path(name) / "run")
        run, keys = str(Path(name) / "run"), Path(name) / "keys"
        keys.touch(mode=0o600)
        keys.write_text(f"{KEY} class=client\n{ATTACKER} class=attacker\n")
        extra = ("--api-key-file", str(keys), "--rate-limit", str(RATE_LIMIT))
        with Service(run, cores.service, *extra) as service, pinned(cores.load):
            measure(service, bodies, 0.5 if options.quick else options.seconds, "quiet")
            for kind in options.kinds:
                for connections in CONNECTIONS[:1] if options.quick else CONNECTIONS:
                    command = [sys.executable, str(HERE / "attackers.py"), service.address, kind]
                    command += ["--connections", str(connections)]
                    command += ["--key", ATTACKER] if kind == "unread" else []
                    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attack:
                        assert attack.stdout
                        assert attack.stdout.readline() == "ready\n"
                        time.sleep(0.2 if options.quick else SETTLE_S)
                        seconds = 0.5 if options.quick else options.seconds
                        found = measure(service, bodies, seconds, f"{connections} {kind}")
                        attack.terminate()
                    worst = {part: max(worst[part], found[part]) for part in worst}
    verdicts.also("attack_livez_p99_s", worst["livez"], 0.1)
    verdicts.last("attack_list_p99_s", worst["list"], 1.0)


def measure(service: Service, bodies: list[str], seconds: float, name: str) -> dict[str, float]:
    """The 99th percentile of the seconds of probes and of lists during an attack."""
    spent: dict[str, list[float]] = {"livez": [], "list": []}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    kept, failed, end = None, 0, time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.perf_counter()
        failed += '"ok"' not in service.get("/livez")
        spent["livez"].append(time.perf_counter() - start)
        start = time.perf_counter()
        try:
            kept = kept or http.client.HTTPConnection(service.address, timeout=10)
            kept.request("POST", "/v1/recommend", bodies[len(spent["list"]) % 50], headers)
            answer = kept.getresponse()
            answer.read()
            failed += answer.status != 200
        except (OSError, http.client.HTTPException):
            kept, failed = None, failed + 1
        spent["list"].append(time.perf_counter() - start)
        time.sleep(0.01)
    found = {part: float(np.percentile(taken, 99)) for part, taken in spent.items()}
    print(
        f"{name}: {len(spent['list'])} rounds, failed {failed}; p99 of /livez "
        f"{1e3 * found['livez']:.1f} ms, of a list {1e3 * found['list']:.1f} ms",
        flush=True,
    )
    return found if not failed else {"livez": 10.0, "list": 10.0}


if __name__ == "__main__":
    main()
