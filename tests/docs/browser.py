"""Drive a headless Chromium through its DevTools protocol, to see pages as a reader does."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import aiohttp

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")


def executable() -> str | None:
    """Return the path of Chromium, or None where it is not installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One page of a headless Chromium; a context manager that ends its process."""

    def __init__(self) -> None:
        program = executable()
        assert program is not None
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        words = [program, *FLAGS, "--remote-debugging-port=0", f"--user-data-dir={self.profile.name}", "about:blank"]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.loop = asyncio.new_event_loop()
        self.session, self.socket = self.loop.run_until_complete(self._connect())
        self.numbers = itertools.count(1)
        self.send("Page.enable")

    def _address(self) -> str:
        """Return the address of the first page, once Chromium has written its port."""
        file = Path(self.profile.name, "DevToolsActivePort")
        for _ in range(600):
            if file.exists() and file.read_text().strip():
                port = file.read_text().split()[0]
                with urlopen(f"http://127.0.0.1:{port}/json") as answer:
                    pages = [each for each in json.load(answer) if each["type"] == "page"]
                if pages:
                    return pages[0]["webSocketDebuggerUrl"]
            time.sleep(0.1)
        raise TimeoutError("Chromium did not open its debugging port within a minute")

    async def _connect(self) -> tuple[aiohttp.ClientSession, aiohttp.ClientWebSocketResponse]:
        """Open the connection that carries the commands."""
        session = aiohttp.ClientSession()
        return session, await session.ws_connect(self._address(), max_msg_size=0)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command and return its result."""
        number = next(self.numbers)
        return self.loop.run_until_complete(self._exchange(number, method, parameters))

    async def _exchange(self, number: int, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Send a command, and wait for the answer that has its number."""
        await self.socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            message = await self.socket.receive_json(timeout=60)
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def resize(self, width: int, height: int) -> None:
        """Lay the page out for a window of this size."""
        mobile = width < 600
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def open(self, address: str) -> None:
        """Open a page and wait until it is complete."""
        self.send("Page.navigate", url=address)
        self.wait(f"document.readyState == 'complete' && location.href.startsWith({json.dumps(address)})")

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression of JavaScript on the page."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = 30) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while not self.evaluate(condition):
            if time.monotonic() > end:
                raise TimeoutError(f"{condition} was not true within {seconds} s")
            time.sleep(0.02)

    def picture(self, path: Path) -> None:
        """Write a PNG of the window."""
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot")["data"]))

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *error: object) -> None:
        self.loop.run_until_complete(self.session.close())
        self.loop.close()
        self.process.terminate()
        self.process.wait(timeout=30)
        self.profile.cleanup()
