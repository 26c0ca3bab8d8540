"""Take the pictures of the pages that the documentation shows, from a system that runs.

    python docs/pictures/take_screenshots.py

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
from aisle.demo.season import LOGINS

FOLDER = Path(__file__).parent / "pages"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
CROWD = {"buyers": 60, "seconds": 40.0}
LAPTOP = {"viewport": {"width": 1280, "height": 900}}
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
            browser.close()


def _visitor(browser: Any, address: str, size: dict[str, Any], scheme: str) -> Page:
    context = browser.new_context(**size, color_scheme=scheme, reduced_motion="reduce")
    page: Page = context.new_page()
    page.goto(f"{address}/login")
    page.fill("#email", LOGINS[1].email)
    page.fill("#password", LOGINS[1].password)
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


if __name__ == "__main__":
    main()
