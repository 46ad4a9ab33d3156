"""Chromium without a window, that says what a page asks for and what it complains about."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

_FOLDERS = "/usr/bin:/usr/local/bin"
CHROMIUM = shutil.which("chromium", path=_FOLDERS)
DRIVER = shutil.which("chromedriver", path=_FOLDERS)

# Seconds until a page is given up.
_LOADED = 60


@dataclass(frozen=True)
class Browser:
    """driver: of selenium."""

    driver: webdriver.Chrome

    def open(self, page: Path, width: int, height: int, scheme: str) -> None:
        """Shows a file in a window of a size in CSS pixels; scheme is light or dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.command("Emulation.setDeviceMetricsOverride", size)
        self.media("screen", scheme)
        self.driver.get(page.as_uri())
        # get() itself has been seen to return before a busy machine had parsed the page.
        WebDriverWait(self.driver, _LOADED).until(
            lambda driver: driver.execute_script("return document.readyState") == "complete"
        )

    def media(self, media: str, scheme: str) -> None:
        """Shows the page on a screen or as it is printed."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.command("Emulation.setEmulatedMedia", {"media": media, "features": [feature]})

    def command(self, name: str, values: dict[str, Any]) -> Any:
        """A command of the DevTools protocol."""
        return self.driver.execute_cdp_cmd(name, values)

    def run(self, script: str) -> Any:
        """What a function body of JavaScript returns."""
        return self.driver.execute_script(script)

    def complaints(self) -> list[Any]:
        """What the console has had to say since it was last asked."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Addresses that were asked for since they were last asked for."""
        log = self.driver.get_log("performance")
        events = [json.loads(entry["message"])["message"] for entry in log]
        return [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Runs Chromium until the block ends; its profile is kept in a folder."""
    assert CHROMIUM
    assert DRIVER
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        f"--user-data-dir={folder / 'profile'}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
