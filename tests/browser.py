"""A real headless Chromium for tests of what people open: Debian's chromium and chromium-driver.

Tests that take the `browser` fixture (tests/conftest.py) are skipped, with the reason, where the
browser is not installed. Screenshots go to the folder $MSCAM_ARTIFACTS, or to the test's own
temporary folder.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selenium.webdriver import Chrome


_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # containers run as root, without user namespaces
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
)


def missing_browser() -> str | None:
    """Why there is no browser to test with; None when there is one."""
    for program, package in (("chromium", "chromium"), ("chromedriver", "chromium-driver")):
        if shutil.which(program) is None:
            return f"no {program} on this computer (Debian: apt-get install {package})"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed (pip install 'mscam-dask[test]')"
    return None


@contextlib.contextmanager
def open_browser(artifacts: Path, *, size: tuple[int, int] = (1400, 1000)) -> Iterator[Browser]:
    """A new browser with an empty profile, closed at the end of the block."""
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService

    options = ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in (*_FLAGS, f"--window-size={size[0]},{size[1]}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=ChromeService(str(shutil.which("chromedriver"))))
    try:
        yield Browser(driver, artifacts)
    finally:
        driver.quit()


class Browser:
    """A page as a person sees it, and what the browser has to complain about it.

    Parameters
    ----------
    driver : selenium.webdriver.Chrome
        For what the methods here do not do.
    artifacts : Path
        Folder of the screenshots, made when the first is taken.
    """

    def __init__(self, driver: Chrome, artifacts: Path) -> None:
        self.driver = driver
        self._artifacts = artifacts
        self._requests: list[str] = []

    def open(self, address: str) -> None:
        """Open an address and forget what was logged before."""
        self._log("browser")
        self._log("performance")
        self._requests.clear()
        self.driver.get(address)

    def reset(self) -> None:
        """Leave the page, and undo what a test set: cookies, the size of the window, and the medium."""
        self.driver.get("about:blank")
        self.driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
        self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})

    def run(self, script: str) -> Any:
        """The value that a JavaScript function body returns."""
        return self.driver.execute_script(script)

    def point_at(self, x: int, y: int) -> None:
        """Move the pointer, as a hand would, to CSS pixels of the window."""
        from selenium.webdriver.common.actions.action_builder import ActionBuilder

        actions = ActionBuilder(self.driver)
        actions.pointer_action.move_to_location(x, y)
        actions.perform()

    @property
    def text(self) -> str:
        """All that can be read on the page, within shadow roots as well (Bokeh draws in them)."""
        return str(self.run(_VISIBLE_TEXT))

    def complaints(self) -> list[str]:
        """Errors and warnings on the console since the last call."""
        return [str(e["message"]) for e in self._log("browser") if e["level"] != "INFO"]

    def requests(self) -> list[str]:
        """Addresses the page asked for since it was opened, its own among them."""
        for entry in self._log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self._requests.append(message["params"]["request"]["url"])
        return list(self._requests)

    def screenshot(self, name: str) -> Path:
        """Keep what is in the window as <name>.png."""
        self._artifacts.mkdir(parents=True, exist_ok=True)
        path = self._artifacts / f"{name}.png"
        path.write_bytes(self.driver.get_screenshot_as_png())
        return path

    def _log(self, kind: str) -> list[dict[str, Any]]:
        """Entries since the last call."""
        return list(self.driver.get_log(kind))

    def resize(self, width: int, height: int) -> None:
        """Give the page this many CSS pixels, however tall that is."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.wait_for(f"{width} pixels", lambda: self.run("return innerWidth") == width)

    def wait_for(self, what: str, holds: Callable[[], object], *, at_most_s: float = 30.0) -> None:
        """Return as soon as `holds()` is true; fail, naming `what`, if it never is."""
        until = time.monotonic() + at_most_s
        while not holds():
            if time.monotonic() > until:
                path = self.screenshot("waited-in-vain")
                raise AssertionError(
                    f"{what}: not within {at_most_s:g} s; see {path}; console: {self.complaints()}"
                )
            time.sleep(0.1)


_VISIBLE_TEXT = """
const parts = [];
function walk(node) {
  if (node.nodeType === Node.TEXT_NODE) { parts.push(node.textContent); return; }
  if (node.nodeType === Node.ELEMENT_NODE) {
    if (['SCRIPT', 'STYLE', 'TEMPLATE'].includes(node.tagName)) return;
    if (getComputedStyle(node).display === 'none') return;
  }
  if (node.shadowRoot) walk(node.shadowRoot);
  for (const child of node.childNodes) walk(child);
  parts.push(' ');
}
walk(document.body);
return parts.join('').replace(/\\s+/g, ' ').trim();
"""
