"""A real headless Chromium, driven over its debugging pipe; no driver package and no port are needed."""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--force-device-scale-factor=1",
    "--remote-debugging-pipe",
)  # fmt: skip


def installed() -> str | None:
    """The browser's path, where there is one."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Page:
    """One tab: what it requested, and what it complained about."""

    def __init__(self, commands: Any, answers: Any) -> None:
        self._commands, self._answers = commands, answers
        self._last_id = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """A command's result; events that come before it are kept."""
        self._last_id += 1
        message: dict[str, Any] = {"id": self._last_id, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        self._commands.flush()
        while True:
            answer = self._receive()
            if answer.get("id") == self._last_id:
                assert "error" not in answer, answer
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        parts = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "the browser ended"
            parts += byte
        message = json.loads(parts)
        kind, params = message.get("method"), message.get("params", {})
        if kind == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        if kind in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self.complaints.append(json.dumps(params))
        return message

    def open(self, url: str, width: int, height: int, dark: bool = False) -> None:
        """Show a page at a size in CSS pixels, in light or dark, and wait until it is loaded."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Page.navigate", url=url)
        while self._receive().get("method") != "Page.loadEventFired":
            pass

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """Press and release one key."""
        for kind in ("rawKeyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def screenshot(self, path: Path, whole: bool = False) -> None:
        """A PNG of the window, or of the whole page."""
        picture = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(picture["data"]))


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """A browser of its own with an empty profile, ended with the block."""
    executable = installed()
    assert executable
    their_input, our_output = os.pipe()
    our_input, their_output = os.pipe()

    def numbered() -> None:
        # The browser reads commands from descriptor 3 and answers on 4; the copies keep both out of each other's way.
        commands, answers = os.dup(their_input), os.dup(their_output)
        os.dup2(commands, 3)
        os.dup2(answers, 4)

    with (
        subprocess.Popen(
            [executable, *_OPTIONS, f"--user-data-dir={profile}"],
            preexec_fn=numbered,  # noqa: PLW1509 (no threads here)
            pass_fds=(3, 4),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process,
        os.fdopen(our_output, "wb") as commands,
        os.fdopen(our_input, "rb") as answers,
    ):
        os.close(their_input)
        os.close(their_output)
        try:
            yield Page(commands, answers)
        finally:
            process.terminate()
            process.wait()
