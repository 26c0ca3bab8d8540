"""Every alert has a runbook, every command in the operators' pages is one that `aisle` understands."""

import re
import shlex
from pathlib import Path

import pytest

from aisle.cli import _parser
from tests.operate.test_alerts import alerts

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
RUNBOOKS = (HOW_TO / "runbooks.md").read_text()
PARTS = ("Symptom", "Check", "Action", "Roll back")


def sections() -> dict[str, str]:
    found = re.split(r"^## (\w+)$", RUNBOOKS, flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


def test_every_alert_has_a_section_and_every_section_an_alert():
    assert set(sections()) == {rule["alert"] for rule in alerts()}


@pytest.mark.parametrize("name", sections())
def test_a_section_says_what_to_do(name):
    for part in PARTS:
        assert f"- **{part}.** " in sections()[name]


def commands(page: Path) -> list[str]:
    text = page.read_text()
    inline = re.findall(r"`(aisle [^`]+)`", " ".join(text.split()))
    blocks = re.findall(r"^(?:\$ )?(aisle [a-z].*?)(?: +#.*)?$", text, re.MULTILINE)
    return sorted({*inline, *blocks})


def is_understood(command: str) -> bool:
    try:
        _parser().parse_args(shlex.split(command)[1:])
    except SystemExit:
        return False
    return True


@pytest.mark.parametrize("page", ["runbooks.md", "operate.md", "backup.md"])
def test_every_command_is_understood(page):
    found = commands(HOW_TO / page)
    assert found
    for command in found:
        assert is_understood(command), f"{command} is not understood"


def test_links_within_the_page_lead_to_sections():
    anchors = {name.lower() for name in sections()}
    for target in re.findall(r"\]\(#([^)]+)\)", RUNBOOKS):
        assert target in anchors
