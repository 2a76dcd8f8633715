"""A browser that tests can use like a person: Chromium, spoken to over a pipe."""

import base64
import json
import os
import subprocess
import time
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

AXE = pytest.mark.skipif(find_spec("axe_core_python") is None, reason="pip install axe-core-python")
OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
OPTIONS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
KEYS = {"Enter": 13, "Tab": 9, "ArrowDown": 40, "ArrowUp": 38, "Escape": 27, "Backspace": 8}
KEYS |= {"ArrowRight": 39, "Home": 36}


class Browser:
    """One page of a headless Chromium; `folder` holds its profile."""

    def __init__(self, folder: Path, width: int = 1200, height: int = 900) -> None:
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()

        def place_pipes() -> None:  # Chromium reads from 3 and writes to 4
            high = [os.dup2(end, 60 + place) for place, end in enumerate((commands, answers))]
            for place, end in enumerate(high):
                os.dup2(end, 3 + place, inheritable=True)

        command = ["chromium", *OPTIONS, "--remote-debugging-pipe", f"--user-data-dir={folder}"]
        self._process = subprocess.Popen(
            command,
            env={**os.environ, "HOME": str(folder)},
            preexec_fn=place_pipes,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._buffer, self._number, self._session = b"", 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.resize(width, height)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._write)
        os.close(self._read)
        self._process.kill()
        self._process.wait()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the Chrome DevTools protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._buffer:
                part = os.read(self._read, 2**16)
                assert part, "the browser has ended"
                self._buffer += part
            line, _, self._buffer = self._buffer.partition(b"\0")
            answer = json.loads(line)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def run(self, code: str) -> Any:
        """The value of an expression in the page; a promise is awaited."""
        found = self.call(
            "Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, code: str, seconds: float = 30) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while not self.run(f"Boolean({code})"):
            assert time.monotonic() < end, f"never true: {code}\n{self.text()}"
            time.sleep(0.03)

    def open(self, address: str) -> None:
        """Open an address and wait for its lists."""
        self.call("Page.navigate", url=address)
        self.settle()
        # Chromium drops keys and clicks that arrive before a page is painted
        self.wait("performance.getEntriesByType('paint').length")
        self.run("new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))")

    def settle(self) -> None:
        """Wait until nothing is loading any more."""
        self.wait(
            "document.readyState === 'complete'"
            " && document.getElementById('results')?.ariaBusy === 'false'"
        )

    def press(self, key: str) -> None:
        """Press a key."""
        event = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **event, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Click an element and wait for what comes of it."""
        self.run(f"document.querySelector({json.dumps(selector)}).click()")
        self.settle()

    def texts(self, selector: str) -> list[str]:
        """The texts of all elements that match."""
        return self.run(
            f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)"
        )

    def text(self) -> str:
        """What a person reads."""
        return self.run("document.body.innerText")

    def violations(self) -> list[list[str]]:
        """What axe-core finds wrong with the page: the rule, and the first element."""
        axe = files("axe_core_python").joinpath("axe.min.js").read_text()
        self.run(f"{axe}; null")
        return self.run("axe.run().then((r) => r.violations.map((v) => [v.id, v.nodes[0].html]))")

    def focused(self) -> str:
        """The name of what has the focus."""
        return self.run("((e) => e.ariaLabel || e.id || e.tagName)(document.activeElement)")

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """Another screen."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path) -> None:
        """Save what is on the screen."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))
