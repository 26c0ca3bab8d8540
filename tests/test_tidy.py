"""The house rules that a machine can check: sizes, names, excepts, and what may never be committed."""

import ast
import re
from pathlib import Path

import pytest

from tests import children

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
LUA = sorted((ROOT / "src").rglob("*.lua"))

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60
BANNED_NAMES = re.compile(r"(^|_)(utils?|managers?|helpers?|impl|common|base|misc)($|_)")
BANNED_CLASSES = re.compile(r"(Manager|Helper|Impl|Util|Utils|Handler)$|^I[A-Z][a-z]+[A-Z]")

STARTS_A_PROCESS = re.compile(r"subprocess\.\w+|Popen|.*\.create_subprocess_\w+")


def test_there_is_something_to_check():
    assert len(SOURCES) > 10


@pytest.mark.parametrize("path", SOURCES + LUA, ids=lambda p: str(p.relative_to(ROOT)))
def test_file_is_short_and_well_named(path):
    lines = path.read_text().splitlines()
    assert len(lines) <= FILE_LINES_MAX, f"{len(lines)} lines: split it"
    assert not BANNED_NAMES.search(path.stem), "the name says nothing"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_source_follows_the_house_rules(path):
    text = path.read_text()
    if not text.strip():
        return
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "a module says what it is and what it must never do"
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                length = (node.end_lineno or 0) - node.lineno + 1
                assert length <= FUNCTION_LINES_MAX, f"{node.name}: {length} lines do not fit a screen"
            case ast.ClassDef(name=name):
                assert not BANNED_CLASSES.search(name), f"class {name}: name what it is"
            case ast.ExceptHandler(type=None):
                pytest.fail(f"line {node.lineno}: bare except")
            case ast.ExceptHandler(type=ast.Name(id="Exception" | "BaseException")):
                reraises = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
                assert reraises, f"line {node.lineno}: broad except that does not re-raise"


@pytest.mark.parametrize("path", LUA, ids=lambda p: str(p.relative_to(ROOT)))
def test_lua_file_opens_with_its_purpose(path):
    assert path.read_text().startswith("-- "), "header: purpose, KEYS, ARGV, return codes"


def test_no_page_is_left_in_the_middle_of_a_merge():
    found = children.run(
        ["git", "grep", "-lIE", "^(<{7}|>{7}) "], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert found.stdout == ""


def test_nothing_committed_names_a_machine_path_or_a_package_index():
    listed = children.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    forbidden = re.compile(r"--index-url|--extra-index-url|--find-links|/(?:root|work|home)/[a-z]")
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if path.suffix in {".png", ".woff2", ".jpg"} or not path.is_file() or path == Path(__file__):
            continue
        found = forbidden.search(path.read_text(errors="replace"))
        assert found is None, f"{name}: {found.group() if found else ''}"


def test_processes_are_started_where_they_die_with_the_test():
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path == ROOT / "tests" / "children.py":
            continue
        started = [
            node.lineno
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call) and STARTS_A_PROCESS.fullmatch(ast.unparse(node.func))
        ]
        assert not started, f"{path.relative_to(ROOT)}, lines {started}: use tests.children"


def test_a_missing_program_skips_a_test_only_through_needs():
    """Who runs the tests is no fault of CI's, and a comparison may be left to CI; any other skip would hide a gap."""
    allowed = re.compile(r"geteuid\(\)|it runs with CI=true")
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path in (Path(__file__), ROOT / "tests" / "needs.py"):
            continue
        for line in path.read_text().splitlines():
            found = re.search(r"pytest\.(mark\.)?skip|importorskip", line)
            assert not found or allowed.search(line), f"{path.relative_to(ROOT)}: {line.strip()}: use tests.needs"
