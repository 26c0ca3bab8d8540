"""What exists is documented: generated pages are current, links lead somewhere, the README's commands are real."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))

from generate import openapi_document, reference_pages  # noqa: E402

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("path", reference_pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_generated_page_is_current(path):
    assert path.read_text() == reference_pages()[path], "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{target} does not exist"


def test_the_guarantees_name_tests_that_exist_and_leave_none_of_them_out():
    page = (ROOT / "docs" / "explanation" / "guarantees.md").read_text()
    promises = re.findall(r"^\| I(\d+) \|(.*)$", page, re.MULTILINE)
    assert [int(number) for number, _ in promises] == list(range(1, 29))
    for number, row in promises:
        assert re.search(r"`tests/\S+\.py`", row), f"I{number}: no test is named"
    for name in re.findall(r"`(tests/\S+\.py)`", page):
        assert (ROOT / name).is_file(), f"{name} does not exist"


def test_every_test_that_the_security_page_names_exists():
    page = (ROOT / "docs" / "explanation" / "security.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    assert len(named) > 50
    for path, name in named:
        assert re.search(rf"^ *(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE), f"{path}::{name}"


def test_every_row_of_the_security_page_has_a_test_or_does_not_apply():
    page = (ROOT / "docs" / "explanation" / "security.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 20
    for row in rows:
        assert "::test_" in row[-1] or "does not apply" in " ".join(row), row[0]


def test_every_route_says_what_it_is_for():
    for path, methods in openapi_document()["paths"].items():
        for method, operation in methods.items():
            assert operation.get("summary"), f"{method.upper()} {path} has no summary"


def test_readme_shows_the_commands_that_ci_runs():
    readme = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    ci = (ROOT / ".ci" / "run").read_text()
    for verb in re.findall(r"^make (\w+)", readme, re.MULTILINE):
        assert re.search(rf"^{verb}:", makefile, re.MULTILINE), f"README says `make {verb}`, the Makefile does not"
    for command in ("make check", "make test"):
        assert command in readme
        assert command in ci


def test_every_verb_of_the_makefile_is_explained():
    makefile = (ROOT / "Makefile").read_text()
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    for verb in re.findall(r"^([a-z]+):.*## ", makefile, re.MULTILINE):
        assert f"make {verb}" in contributing, f"`make {verb}` is not in CONTRIBUTING.md"
