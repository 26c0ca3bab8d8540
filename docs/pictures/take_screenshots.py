"""Take the pictures of the pages that the documentation shows, from a system that runs.

    make screenshots

Starts the product on a directory of its own, loads the demonstration, lets buyers loose on it until there is
something to see, then walks through a purchase with Chromium. Needs what tests/browser needs.
"""

import asyncio
import shutil
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from aisle.bench.product import running_product
from aisle.demo.crowd import run_crowd
from aisle.demo.load import load_demo
from aisle.demo.season import LOGINS, Login

SELLER, BUYER, DOOR = LOGINS
FOLDER = Path(__file__).parent / "pages"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
CROWD = {"buyers": 60, "seconds": 40.0}
LAPTOP = {"viewport": {"width": 1280, "height": 960}}
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True, "device_scale_factor": 2}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with running_product() as product:
        address = f"http://{product.config.host}:{product.config.port}"
        theatre, stadium, cellar = asyncio.run(load_demo(product.config, address))
        asyncio.run(run_crowd(product.config, address, [theatre, theatre, cellar], say=lambda line: None, **CROWD))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            laptop = _visitor(browser, address, LAPTOP, "light")
            _take(laptop, address, "/", "home")
            _purchase(laptop, address, theatre)
            night = _visitor(browser, address, LAPTOP, "dark")
            _take(night, address, f"/events/{stadium}", "stadium-dark", until="canvas[data-drawn=true]")
            phone = _visitor(browser, address, PHONE, "light")
            _on_the_phone(phone, address, theatre)
            seller = _visitor(browser, address, LAPTOP, "light", SELLER)
            _take(seller, address, f"/seller/events/{theatre}", "desk", until="#recent tr")
            _describe(seller, address)
            _scan(_visitor(browser, address, PHONE, "light", DOOR), laptop, address)
            browser.close()


def _visitor(browser: Any, address: str, size: dict[str, Any], scheme: str, login: Login = BUYER) -> Page:
    context = browser.new_context(**size, color_scheme=scheme, reduced_motion="reduce")
    page: Page = context.new_page()
    page.goto(f"{address}/login")
    page.fill("#email", login.email)
    page.fill("#password", login.password)
    page.click("#login button")
    page.wait_for_url(f"{address}/")
    return page


def _take(page: Page, address: str, path: str, name: str, until: str = "main") -> None:
    page.goto(f"{address}{path}")
    page.wait_for_selector(until)
    _shoot(page, name)


def _shoot(page: Page, name: str) -> None:
    page.wait_for_timeout(600)
    page.screenshot(path=FOLDER / f"{name}.png")


def _purchase(page: Page, address: str, event: int) -> None:
    page.goto(f"{address}/events/{event}")
    page.wait_for_selector("canvas[data-drawn=true]")
    page.select_option("#best-section", "Circle")
    page.click("#best button")
    page.wait_for_selector("#cart .held")
    page.locator(".choose").evaluate("(hall) => scrollTo(0, hall.offsetTop - 16)")
    page.wait_for_timeout(8500)  # until the page has said what it found
    _shoot(page, "map")
    page.click("#show-list")
    page.select_option("#list-section", "Circle")
    _shoot(page, "seat-list")
    page.click("[data-key=checkout]")
    page.wait_for_selector("#pay")
    _shoot(page, "payment")
    page.click("[data-key=pay]")
    page.wait_for_selector("a[download]")
    page.wait_for_timeout(8500)
    _shoot(page, "paid")


def _on_the_phone(page: Page, address: str, event: int) -> None:
    page.goto(f"{address}/events/{event}")
    page.wait_for_selector("canvas[data-drawn=true]")
    page.tap("#canvas", position=page.locator("#canvas").evaluate("(canvas) => canvas.positionOf('Circle-2', '4-7')"))
    page.locator("#hall").evaluate("(hall) => scrollTo(0, hall.offsetTop - 8)")
    _shoot(page, "phone")


def _describe(page: Page, address: str) -> None:
    page.goto(f"{address}/seller/new")
    page.wait_for_selector("canvas[data-drawn=true]")
    page.fill("#basics [data-name=name]", "An evening of new songs")
    page.fill("#basics [data-name=venue]", "Old Harbour Hall")
    page.fill("#basics [data-name=starts_at]", "2027-03-12T20:00")
    page.click("#show-list")
    for seat in (48, 49, 58, 59):
        page.locator(f'#grid [data-seat="{seat}"]').click()
    page.check("input[value=accessible]")
    for seat in (0, 1):
        page.locator(f'#grid [data-seat="{seat}"]').click()
    page.click("#show-map")
    page.evaluate("scrollTo(0, 0)")
    _shoot(page, "editor")


def _scan(page: Page, buyer: Page, address: str) -> None:
    """The tickets that the buyer has just paid for, at the door."""
    booking = buyer.url.rpartition("/")[2]
    shown = buyer.context.request.get(f"{address}/api/v1/bookings/{booking}/tickets").json()
    page.goto(f"{address}/door")
    page.select_option("#event", str(shown["event_id"]))
    page.fill("#gate", "north")
    page.fill("#code", shown["tickets"][0]["code"])
    page.press("#code", "Enter")
    page.wait_for_selector("[data-outcome=accepted]")
    _shoot(page, "door")


if __name__ == "__main__":
    main()
