"""kafka-python's own tests, pointed at Penstock: those on `compat/kafka-python/tests.txt`, a list that may only grow.

The source archive on the package index delivers them with the client, so nothing of them is kept here.
`compat/kafka-python/FINDINGS.md` says why the others are not on the list.
"""

import os
import re
import shutil
import sys
import tarfile
from pathlib import Path

import pytest

from tests import children
from tests.penstock.conftest import StartBroker
from tests.penstock.group_client import NO_DELAY
from tests.penstock.test_compat_clients import CACHE, COMPAT, ROOT, build_once, fetch

HERE = COMPAT / "kafka-python"
LISTED = (HERE / "tests.txt").read_text().split()
KAFKA_VERSION = "4.1.0"  # the tests expect of brokers what this one does
PATIENCE_S = 200  # less than pytest's own; on an idle machine it takes 20


@pytest.fixture(scope="module")
def suite() -> Path:
    """The unpacked archive, of the version and with the hash that the lock file names."""
    locked = CACHE / "kafka-python.txt"
    CACHE.mkdir(exist_ok=True)
    pinned = re.search(r"^kafka-python==[^ ]+ \\\n(?: +--hash=\S+(?: \\)?\n)+", lock_file(), re.MULTILINE)
    assert pinned, "the lock file names kafka-python"
    locked.write_text(pinned.group())
    folder = CACHE / "kafka-python"

    def unpack(made: Path) -> None:
        options = ["--quiet", "--no-deps", "--no-binary", "kafka-python", "--require-hashes", "-r", str(locked)]
        fetch([sys.executable, "-m", "pip", "download", *options], made)
        [archive] = made.glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            # Pythons before 3.11.4 have no filters; what is in the archive is pinned by its hash.
            tar.extraction_filter = getattr(tarfile, "data_filter", None)
            tar.extractall(made)  # noqa: S202
        [sources] = [path for path in made.iterdir() if path.is_dir()]
        (sources / "test" / "__init__.py").touch()
        shutil.copy(HERE / "service.py", sources / "test")

    build_once(folder, [locked, HERE / "service.py"], unpack)
    [sources] = [path for path in folder.iterdir() if path.is_dir()]
    return sources


def lock_file() -> str:
    return (ROOT / "requirements-dev.txt").read_text()


def test_the_listed_tests_of_kafka_python_pass(start_broker: StartBroker, suite: Path) -> None:
    broker = start_broker(*NO_DELAY, "--default-partitions", "4", "--group-session-min", "0.5")
    settings = {"KAFKA_URI": f"kafka://{broker.address}", "KAFKA_VERSION": KAFKA_VERSION, "KAFKA_ROOT": str(suite)}
    options = ["-o", "addopts=", "-o", "log_level=CRITICAL", "-p", "no:cacheprovider", "-q", "-rA", "--tb=short"]
    ended = children.run(
        [sys.executable, "-m", "pytest", *options, *(f"test/integration/{name}" for name in LISTED)],
        cwd=suite,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    passed = re.findall(r"^PASSED test/integration/(\S+)", ended.stdout, re.MULTILINE)
    assert set(LISTED) - set(passed) == set(), ended.stdout[-3000:]
    assert ended.returncode == 0, ended.stderr[-1000:]
