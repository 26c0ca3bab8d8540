"""What is kept about a buyer: taken home as a file, and erased by the one who knows the password."""

import json
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.visitor import Visitor, aside
from tests.people import GOOD_PASSWORD


def test_a_buyer_takes_the_data_home_and_erases_the_account(stage, visitor):
    ana: Visitor = visitor()
    ana.registers("/account")
    expect(ana.page.locator("#email")).to_have_text(ana.email)
    with ana.page.expect_download() as download:
        ana.page.click("#data")
    assert json.loads(Path(download.value.path()).read_text())["account"][0]["email"] == ana.email
    ana.page.fill("#password", "not the password")
    ana.page.click("[data-key=erase]")
    ana.page.click("[data-key=erase-yes]")
    expect(ana.page.locator("#password-wrong")).not_to_be_empty()
    assert _accounts(stage, ana.email) == 1
    ana.page.fill("#password", GOOD_PASSWORD)
    ana.page.click("[data-key=erase-yes]")
    ana.page.wait_for_url(f"{ana.address}/")
    assert _accounts(stage, ana.email) == 0
    ana.goes_to("/account")
    expect(ana.page.locator("#login")).to_be_visible()


def _accounts(stage, email: str) -> int:
    return len(aside(lambda: stage.fetch("select 1 from accounts.accounts where email = $1", email)))
