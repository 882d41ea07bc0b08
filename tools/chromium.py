"""A real headless Chromium, driven over its debugging pipe: no port, no further dependency.

Messages are JSON with a NUL behind each; the browser reads descriptor 3 and writes descriptor 4
(``--remote-debugging-pipe``). There is one page and one caller, and every call waits for its
answer: a test needs no more.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-proxy-server",
    "--remote-debugging-pipe",
)


def program() -> str | None:
    """The browser's path; None when there is none."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Chromium:
    """`with Chromium(directory) as browser`; `directory` must be empty."""

    def __init__(self, directory: Path) -> None:
        found = program()
        assert found is not None, "no Chromium"
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        self._number = 0
        self._buffer = b""
        self._session = ""
        self.console: list[str] = []
        self.requests: list[str] = []

        def descriptors() -> None:
            os.dup2(to_read, 3)
            os.dup2(to_write, 4)

        # Both are moved away first: dup2 onto 3 must not overwrite the one that goes onto 4.
        to_read, to_write = (_high(descriptor) for descriptor in (to_read, to_write))
        self._log = (directory.parent / f"{directory.name}.log").open("wb")
        self._process = subprocess.Popen(
            [found, *FLAGS, f"--user-data-dir={directory}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            close_fds=False,
            preexec_fn=descriptors,
            start_new_session=True,
        )
        os.close(to_read)
        os.close(to_write)

    def __enter__(self) -> Chromium:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._session = ""
        with contextlib.suppress(OSError, AssertionError):
            self.call("Browser.close")
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait()
        os.close(self._read)
        os.close(self._write)
        self._log.close()

    def call(self, method: str, **params: Any) -> Any:
        """One command; returns its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def show(
        self, url: str, width: int, height: int, *, dark: bool = False, mobile: bool = False
    ) -> None:
        """Open `url` in a window of that size and wait until the page has drawn."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )
        scheme = "dark" if dark else "light"
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.call("Page.navigate", url=url)
        # The page draws rates from its second answer on; without an answer it draws nothing.
        self.wait(
            f"location.href === {json.dumps(url)}"
            " && Number(document.documentElement?.dataset.drawn || 0) >= 2"
            " && document.querySelector('#live').textContent === 'live'"
        )

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, script: str, timeout_s: float = 90.0) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + timeout_s
        while not self.run(script):
            assert time.monotonic() < deadline, script
            time.sleep(0.05)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Take a picture of the page; `whole`: also of the parts below the window."""
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(picture["data"]))

    def _receive(self) -> Any:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], 60)
            assert ready, "Chromium does not answer"
            data = os.read(self._read, 1 << 20)
            assert data, "Chromium is gone"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(line)
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.console.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.console.append(str(params["entry"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        return message


def _high(descriptor: int) -> int:
    import fcntl

    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD, 20)
    os.close(descriptor)
    return moved
