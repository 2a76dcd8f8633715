"""Pictures of the demo page and the dashboard for the documentation, written to docs/img.

``PYTHONPATH=tests python tools/docs/page_screens.py`` trains two models on ml-latest-small, which
takes about a minute, and needs Chromium and Pillow. Look at the pictures before committing them.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from browser import Browser
from PIL import Image
from served import Service

import itemfold as ir
from itemfold.data.feedback.file_store import FileStore

IMAGES = Path(__file__).parents[2] / "docs/img"
LAPTOP, PHONE = (1280, 800), (390, 844)
LIKED = "?item=1&item=2571"  # Toy Story, The Matrix
SHOTS = {  # picture → address, screen, dark
    "page": (f"/{LIKED}", LAPTOP, False),
    "page-dark": ("/", LAPTOP, True),
    "page-compare": (f"/{LIKED}&with=ease", LAPTOP, False),
    "page-phone": ("/", PHONE, False),
    "page-phone-dark": (f"/{LIKED}", PHONE, True),
    "dashboard": ("/dashboard", LAPTOP, False),
    "dashboard-phone-dark": ("/dashboard", PHONE, True),
}
OPEN_WHY = ("page", "page-phone-dark")  # with the bars of the first item
CLICKS = {"hybrid": 0.068, "ease": 0.053}  # simulated fractions of clicks
DAY = 86_400.0


def main() -> None:
    """Train, serve and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, help="a folder to keep the runs in")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = options.runs or Path(name)
        train(folder)
        runs = [f"{run}={folder / run}" for run in CLICKS]
        feedback = Path(name) / "feedback"
        shares = ",".join(f"{run}=50" for run in CLICKS)
        with (
            Service(*runs, "--split", shares, "--feedback", feedback) as service,
            Browser(Path(name) / "profile") as browser,
        ):
            simulate(feedback, service)
            for picture, (address, screen, dark) in SHOTS.items():
                browser.resize(*screen, dark=dark)
                browser.open(service.address + address)
                if picture in OPEN_WHY:
                    browser.click("[aria-label^='Why ']")
                time.sleep(0.5)  # transitions
                browser.screenshot(Path(name) / "picture.png")
                image = Image.open(Path(name) / "picture.png").convert("RGB")
                image.save(IMAGES / f"{picture}.webp", quality=80, method=6)


def train(folder: Path) -> None:
    """Train the two models, unless they are there."""
    split = ir.split_interactions(ir.load("ml-latest-small"), seed=0)
    for name in CLICKS:
        if not (folder / name).exists():
            settings = {"budget": 45.0} if name == "hybrid" else {}
            ir.train(split, ir.models.MODELS[name](), **settings).save(folder / name)


def simulate(folder: Path, service: Service) -> None:
    """Write feedback of a week: who was shown what, and clicked it."""
    draw, now, rows = random.Random(0), time.time(), []
    for run, fraction in CLICKS.items():
        about = fetch(service, f"/v1/about?run={run}")
        items = [found["item"] for found in fetch(service, f"/v1/items?limit=400&run={run}")]
        common = {"run": run, "run_fingerprint": about["run_fingerprint"]}
        for number in range(4200):
            item = items[min(399, int(draw.expovariate(1 / 60)))]
            shown = {"timestamp": now - DAY * draw.random() * 7, "user_id": f"{run}-{number}"}
            shown |= {"item_id": item, **common}
            rows.append({**shown, "event": "shown"})
            if draw.random() < fraction:
                event = draw.choices(["clicked", "liked", "disliked"], [70, 25, 5])[0]
                rows.append({**shown, "timestamp": shown["timestamp"] + 30, "event": event})
    FileStore(folder).append(sorted(rows, key=lambda row: row["timestamp"]))


def fetch(service: Service, path: str) -> Any:
    """The answer to a GET request."""
    with urlopen(service.address + path) as answer:
        return json.load(answer)


if __name__ == "__main__":
    main()
