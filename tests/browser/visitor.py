"""Somebody with a browser: registers, looks at the hall, points at seats, and notices whatever the page gets wrong.

Playwright's loop stays in its thread between calls, so anything else that is async runs in another one (`aside`).
"""

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.people import GOOD_PASSWORD

Value = TypeVar("Value")
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)
# Answers that a page asks for and deals with itself.
EXPECTED = ("Failed to load resource",)


# One thread for good: a process that it starts dies with it.
_thread = ThreadPoolExecutor(1)


def aside(work: Callable[[], Value]) -> Value:
    return _thread.submit(work).result()


class Visitor:
    def __init__(self, browser: Browser, address: str, **options: Any) -> None:
        options.setdefault("viewport", {"width": 1280, "height": 950})
        self.context: BrowserContext = browser.new_context(reduced_motion="reduce", **options)
        self.context.set_default_timeout(PATIENCE_MS)
        self.page: Page = self.context.new_page()
        self.address = address
        self.email = ""
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self._note(message.type, message.text))
        self.page.on("pageerror", lambda error: self._note("error", str(error)))
        self.page.on("dialog", lambda dialog: (self._note("error", f"dialog {dialog.message}"), dialog.dismiss()))

    def _note(self, kind: str, words: str) -> None:
        if kind == "error" and not words.startswith(EXPECTED):
            self.complaints.append(words)

    def goes_to(self, path: str) -> None:
        self.page.goto(f"{self.address}{path}")

    def registers(self, back_to: str = "/", role: str = "buyer") -> None:
        """With the form, as everybody does."""
        self.email = f"{role}.{secrets.token_hex(6)}@example.com"
        self.goes_to(f"/register?next={back_to}")
        self.page.fill("#email", self.email)
        self.page.fill("#password", GOOD_PASSWORD)
        self.page.check(f"input[value={role}]")
        self.page.click("#register button")
        self.page.wait_for_url(f"{self.address}{back_to}")

    def logs_in(self, back_to: str = "/") -> None:
        """Once more, with what was registered."""
        self.goes_to(f"/login?next={back_to}")
        self.page.fill("#email", self.email)
        self.page.fill("#password", GOOD_PASSWORD)
        self.page.click("#login button")
        self.page.wait_for_url(f"{self.address}{back_to}")

    def sees_the_hall(self, event: int) -> None:
        if not self.page.url.endswith(f"/events/{event}"):
            self.goes_to(f"/events/{event}")
        self.page.wait_for_selector("canvas[data-drawn=true]")

    def point_at(self, place: str, seat: str) -> dict[str, float]:
        """Where on the canvas a seat is, once it has stopped moving."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        found: dict[str, float] = self.page.locator("#canvas").evaluate(
            "(canvas, [place, seat]) => canvas.positionOf(place, seat)", [place, seat]
        )
        return found

    def clicks_seat(self, place: str, seat: str) -> None:
        self.page.click("#canvas", position=self.point_at(place, seat))

    def taps_seat(self, place: str, seat: str) -> None:
        self.page.tap("#canvas", position=self.point_at(place, seat))

    def opens_the_list(self, section: str, subsection: int = 1) -> None:
        self.page.click("#show-list")
        self.page.select_option("#list-section", section)
        self.page.select_option("#list-subsection", str(subsection))

    def seat(self, row: int, seat: int, per_row: int) -> Any:
        """The seat in the list."""
        return self.page.locator(f'#grid [data-seat="{(row - 1) * per_row + seat - 1}"]')

    def waits_for_cart(self, seats: int) -> None:
        expect(self.page.locator("#cart .held li")).to_have_count(seats)

    def ends(self) -> None:
        self.context.close()
        assert self.complaints == [], self.complaints
