"""Starts Chromium without a window. Chromium sends no requests of its own to other hosts.

Playwright is imported inside the function, so that pytest can collect tests without Playwright.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = "/usr/bin/chromium"
_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """Runs Chromium; fails the test if Chromium is not installed."""
    if shutil.which(CHROMIUM) is None:
        pytest.fail(f"these tests need {CHROMIUM}; tests/browser/prepare installs it on Debian")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(_OPTIONS))
        yield browser
        browser.close()
