"""Drives a headless Chromium over the DevTools protocol, with the standard library alone."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find() -> str | None:
    """Returns the browser named by CHROMIUM, or the first one on the path."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of one browser. Messages go through the pipe of --remote-debugging-pipe: JSON, each ended by a zero byte."""

    def __init__(self, program: str, width: int = 1440, height: int = 900) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="prism-chromium-", ignore_cleanup_errors=True)
        command_read, self._write = os.pipe()
        self._read, answer_write = os.pipe()

        def take_3_and_4() -> None:  # the descriptors Chromium uses; high copies first, so that neither overwrites the other
            to_read, to_write = os.dup2(command_read, 63), os.dup2(answer_write, 62)
            os.dup2(to_read, 3)
            os.dup2(to_write, 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--no-first-run", "--disable-extensions", "--disable-background-networking", "--force-device-scale-factor=1",
             f"--user-data-dir={self.folder.name}", "--remote-debugging-pipe", "about:blank"],
            preexec_fn=take_3_and_4, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(command_read)
        os.close(answer_write)
        self._buffer = b""
        self._count = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._write)
        os.close(self._read)
        self.folder.cleanup()

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("Chromium does not answer")
            data = os.read(self._read, 1 << 20)
            if not data:
                raise RuntimeError("Chromium has ended")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def call(self, method: str, timeout: float = 60, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + timeout
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, method: str, timeout: float = 60) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        while True:
            for i, event in enumerate(self.events):
                if event["method"] == method:
                    return self.events.pop(i)["params"]
            self.events.append(self._receive(deadline))

    def open(self, file: pathlib.Path) -> None:
        self.events.clear()
        self.call("Page.navigate", url=file.resolve().as_uri())
        self.wait_for("Page.loadEventFired")
        self.settle()

    def settle(self) -> None:
        """Waits until the page has drawn the last change."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 20))))")

    def run(self, expression: str) -> Any:
        """Returns the value of a JavaScript expression; awaits a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", "exception"))
        return answer["result"].get("value")

    def resize(self, width: int, height: int, mobile: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def prefer(self, scheme: str) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.settle()

    def move_mouse(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.settle()

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def press_key(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)
        self.settle()

    def pdf(self, file: pathlib.Path) -> None:
        paper = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": True, "preferCSSPageSize": True}
        file.write_bytes(base64.b64decode(self.call("Page.printToPDF", **paper)["data"]))

    def complaints(self) -> list[str]:
        """Returns exceptions, console errors and warnings, and errors of the log since the page was opened."""
        self.run("0")
        found = []
        for event in self.events:
            method, data = event["method"], event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(json.dumps(data["exceptionDetails"])[:500])
            elif method == "Runtime.consoleAPICalled" and data["type"] in ("error", "warning", "assert"):
                found.append(json.dumps(data["args"])[:500])
            elif method == "Log.entryAdded" and data["entry"]["level"] in ("error", "warning"):
                found.append(data["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        """Returns the addresses that the page requested, apart from itself."""
        asked = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith("file:") and not url.startswith("data:")] + [
            url for url in asked if url.startswith("file:")
        ][1:]
