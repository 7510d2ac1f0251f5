"""A headless browser for tests, as Debian has it.

With `BATON_PICTURES=docs/images` the tests that call `keep_picture` make the pictures of the documentation anew.
"""

import os
import shutil
from pathlib import Path
from typing import Final

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

__all__ = ["installed", "keep_picture", "start_chromium"]


# Frames are painted by the processor here: 60 in a second take a whole core from the tests beside this one.
_TEN_FRAMES_A_SECOND: Final = """
const paint = window.requestAnimationFrame.bind(window);
window.requestAnimationFrame = (callback) => setTimeout(() => paint(callback), 84);
"""


def installed(command: str, debian_package: str) -> str:
    """Where the program is; the test fails with a sentence when it is not installed."""
    path = shutil.which(command)
    if path is None:
        pytest.fail(f"{command} is not installed: on Debian, run apt-get install {debian_package}", pytrace=False)
    return path


def start_chromium(profile: Path, *, size: str) -> webdriver.Chrome:
    """A browser with a profile of its own, which logs requests and what pages complain of; `quit` ends it."""
    options = webdriver.ChromeOptions()
    options.binary_location = installed("chromium", "chromium")
    for argument in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--window-size={size}",
        f"--user-data-dir={profile}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(installed("chromedriver", "chromium-driver")))
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _TEN_FRAMES_A_SECOND})
    return driver


def keep_picture(browser: webdriver.Chrome, name: str) -> None:
    """What the browser shows, as `name`.png, where `BATON_PICTURES` says; nowhere without it."""
    if pictures := os.environ.get("BATON_PICTURES"):
        assert browser.save_screenshot(str(Path(pictures) / f"{name}.png"))
