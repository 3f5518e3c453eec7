"""A page of Tidelog in a real browser that a test steers: what it shows, complains of, or asks for elsewhere."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Page, sync_playwright

from helpers.browser import browser
from helpers.scripts import ROOT

TIDELOG = ROOT / ".venv/bin/tidelog"
WAIT_MS = 20_000


class Opened:
    """A page in the browser, with everything that it complains of or asks for elsewhere."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.set_default_timeout(WAIT_MS)
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self._asked(request.url))

    def _asked(self, url: str) -> None:
        if not url.startswith(("http://127.0.0.1:", "data:", "file:", "blob:http://127.0.0.1:")):
            self.complaints.append(f"asks for {url}")

    def text(self, selector: str) -> str:
        return " ".join(self.page.inner_text(selector).split())

    def shows(self, selector: str, text: str) -> None:
        """Waits until an element has this text."""
        self.page.wait_for_function(
            "([selector, text]) => document.querySelector(selector)?.innerText.replace(/\\s+/g, ' ').includes(text)",
            arg=[selector, text],
        )

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def form(self, key: str) -> None:
        """Presses a key that opens a form, and waits until the form has the keyboard."""
        self.press(key)
        self.page.wait_for_function("() => document.activeElement.closest('#acts form') !== null")

    def leader(self, row: str) -> str:
        """The broker that leads the partition in this row of the stage."""
        number = self.page.get_attribute(f"{row} td:has-text('leads')", "data-broker")
        return f"broker-{number}"

    def overflows(self) -> bool:
        return bool(self.page.evaluate("document.documentElement.scrollWidth > innerWidth"))


@contextmanager
def browsing() -> Iterator[Opened]:
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=browser(), args=["--no-sandbox", "--disable-gpu"])
        context = started.new_context(viewport={"width": 1200, "height": 900}, accept_downloads=True)
        yield Opened(context.new_page())
        started.close()


@contextmanager
def served(*args: str, **options: Any) -> Iterator[str]:
    """Runs a `tidelog` command that serves a page. Returns the address; in the end the command is interrupted."""
    process = subprocess.Popen(
        [str(TIDELOG), *args, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True, **options
    )
    assert process.stdout is not None
    with process.stdout:
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
