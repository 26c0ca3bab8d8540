"""The store goes away under people who look at the hall: they are told what it means, and come back by themselves."""

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import expect

from aisle.embedded.supervisor import Program, Supervisor
from tests.browser.visitor import aside
from tests.conftest import Servers
from tests.needs import need
from tests.people import a_hall
from tests.running import status_of, wait_until
from tests.stage import Stage, running_stage


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    with Supervisor(tmp_path_factory.mktemp("valkey"), log=lambda line: None) as supervisor:
        yield supervisor.start_valkey()


@pytest.fixture(scope="module")
def stage(servers: Servers, valkey: Program, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """With a store of its own, which may be killed."""
    need("chromium", "tests/install-programs.sh installs it")
    with running_stage(
        servers, tmp_path_factory.mktemp("away"), store_url=valkey.url, store_breaker_seconds=5
    ) as stage:
        yield stage


def test_a_store_that_goes_away_is_said_and_the_pages_come_back_by_themselves(stage, valkey, seller, visitor):
    event = seller.opens(a_hall(("A", 3000, 4, 8)))
    ana, ben = visitor(), visitor()
    ana.registers(f"/events/{event}")
    ana.sees_the_hall(event)
    ana.opens_the_list("A")
    aside(valkey.kill)
    ana.seat(1, 1, 8).click()
    expect(ana.page.locator("#says")).to_contain_text("The part that guards the seats is not answering")
    expect(ana.seat(1, 1, 8)).to_have_attribute("data-state", "free")
    # For a second the process still knows the event by heart.
    wait_until(lambda: status_of(f"{stage.address}/") == 503, "the store is missed")
    assert int(httpx.get(f"{stage.address}/", headers={"accept": "text/html"}).headers["retry-after"]) >= 1
    ben.goes_to("/")
    expect(ben.page.get_by_role("heading", level=1)).to_have_text("We will be right back")
    aside(valkey.start)
    expect(ben.page.get_by_role("heading", level=1)).to_have_text("What is on", timeout=120_000)
    aside(lambda: stage.settle(event))
