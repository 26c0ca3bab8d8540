"""franz-go's own tests, pointed at Penstock: those on the list in `compat/go/kgo-tests.txt`, which may only grow.

The Go module proxy delivers the tests with the client, so nothing of them is kept here. `compat/go/FINDINGS.md` says
why the others are not on the list.
"""

import os
import re
from pathlib import Path

import pytest

from tests import children
from tests.needs import need
from tests.penstock.conftest import StartBroker
from tests.penstock.group_client import NO_DELAY
from tests.penstock.test_compat_clients import CACHE, COMPAT, build_once, fetch

pytestmark = pytest.mark.long
MODULE = "github.com/twmb/franz-go"
LISTED = (COMPAT / "go" / "kgo-tests.txt").read_text().split()
# The suite writes half a million records by itself; these are enough for every path and let other tests run beside it.
RECORDS = "1000"
PATIENCE_S = 300


@pytest.fixture(scope="module")
def suite() -> tuple[Path, Path]:
    """The compiled tests, and the folder they expect to be started in."""
    need("go", "see go.dev")
    folder = CACHE / "kgo-tests"
    given = [COMPAT / "go" / name for name in ("go.mod", "go.sum")]

    def compile_tests(made: Path) -> None:
        fetch(["go", "mod", "download", MODULE], COMPAT / "go")
        fetch(["go", "test", "-c", "-o", str(made / "kgo.test"), "./pkg/kgo"], sources())

    build_once(folder, given, compile_tests)
    return folder / "kgo.test", sources() / "pkg" / "kgo"


def sources() -> Path:
    command = ["go", "list", "-m", "-f", "{{.Dir}}", MODULE]
    listed = children.run(command, cwd=COMPAT / "go", capture_output=True, text=True, check=True, timeout=120)
    return Path(listed.stdout.strip())


def test_the_listed_tests_of_franz_go_pass(start_broker: StartBroker, suite: tuple[Path, Path]) -> None:
    program, folder = suite
    broker = start_broker(*NO_DELAY)
    wanted = f"^({'|'.join(LISTED)})$"
    settings = {"KGO_SEEDS": broker.address, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": RECORDS, "KGO_LOG_LEVEL": "none"}
    ended = children.run(
        [str(program), "-test.v", "-test.run", wanted, "-test.timeout", f"{PATIENCE_S}s"],
        cwd=folder,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S + 30,
    )
    passed = re.findall(r"^--- PASS: (\w+)", ended.stdout, re.MULTILINE)
    assert set(LISTED) - set(passed) == set(), ended.stdout[-3000:]
    assert ended.returncode == 0, ended.stderr[-1000:]
