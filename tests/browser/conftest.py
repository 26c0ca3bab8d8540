"""A stage and Debian's Chromium in front of it. Every visitor's page must stay free of errors and policy violations."""

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.visitor import Visitor
from tests.conftest import Servers
from tests.needs import need
from tests.people import Person, a_hall
from tests.stage import Stage, running_stage

FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]

# One browser at a time: two cores are not enough for two of them beside the servers.
GROUP = "browser"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/browser/" in item.nodeid:
            item.add_marker(pytest.mark.xdist_group(GROUP))
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="module")
def stage(servers: Servers, tmp_path_factory: pytest.TempPathFactory, settings: dict[str, Any]) -> Iterator[Stage]:
    need("chromium", "tests/install-programs.sh installs it")
    with running_stage(servers, tmp_path_factory.mktemp("browser"), **settings) as stage:
        yield stage


@pytest.fixture(scope="module")
def chromium(stage: Stage) -> Iterator[Browser]:
    """After the stage, which cannot start or stop while Playwright's loop runs in this thread."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visitor(stage: Stage, chromium: Browser) -> Iterator[Callable[..., Visitor]]:
    """Makes visitors; at the end none of their pages may have complained."""
    everybody: list[Visitor] = []

    def arrive(**options: Any) -> Visitor:
        everybody.append(Visitor(chromium, stage.address, **options))
        return everybody[-1]

    yield arrive
    for one in everybody:
        one.ends()


@pytest.fixture
def pair_event(seller: Person) -> int:
    return seller.opens(a_hall(("A", 3000, 4, 8), name="Two at a time"))


@pytest.fixture
def two(visitor: Callable[..., Visitor], pair_event: int) -> list[Visitor]:
    """Two buyers in front of the seat list of the same block."""
    both = [visitor(), visitor()]
    for one in both:
        one.registers(f"/events/{pair_event}")
        one.sees_the_hall(pair_event)
        one.opens_the_list("A")
    return both
