"""Clients of other languages tell the same story to Penstock and to Apache Kafka, and see the same.

A story is a program in `compat/<client>/` that prints what it saw; what differs by nature it leaves out, and says so in
its FINDINGS.md. Its packages are fetched once, into .cache.
"""

import hashlib
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import children
from tests.apache_kafka import JARS, ON_KAFKA, require_apache_kafka
from tests.needs import cannot, need
from tests.penstock.conftest import BrokerProcess, StoreProcess, broker_starter
from tests.penstock.group_client import NO_DELAY

ROOT = Path(__file__).parent.parent.parent
COMPAT, CACHE = ROOT / "compat", ROOT / ".cache"
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
# Long, because machines that run tests are busy; a story takes 5 to 20 seconds on an idle one.
STORY_S, FETCH_S = 150, 600
pytestmark = ON_KAFKA


@pytest.fixture(scope="module")
def penstock(valkey: StoreProcess) -> Iterator[BrokerProcess]:
    with broker_starter(valkey) as start:
        yield start("--default-partitions", "4", *NO_DELAY)


def kcat() -> list[str]:
    need("kcat", "Debian has it as kcat")
    return [str(COMPAT / "kcat" / "runner.sh")]


def java() -> list[str]:
    require_apache_kafka()
    quiet = ["-XX:TieredStopAtLevel=1", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    return ["java", *quiet, "-cp", f"{JARS}/*", str(COMPAT / "java" / "Runner.java")]


def node() -> list[str]:
    need("npm", "it comes with Node.js")
    folder = CACHE / "node-compat"
    given = [COMPAT / "node" / name for name in (".npmrc", "package.json", "package-lock.json", "runner.js")]

    def install(made: Path) -> None:
        for path in given:
            shutil.copy(path, made)
        fetch(["npm", "ci", "--ignore-scripts"], made)

    build_once(folder, given, install)
    return ["node", str(folder / "runner.js")]


def go() -> list[str]:
    need("go", "see go.dev")
    folder = CACHE / "go-compat"
    given = [COMPAT / "go" / name for name in ("go.mod", "go.sum", "main.go")]
    build_once(folder, given, lambda made: fetch(["go", "build", "-o", str(made / "runner"), "."], COMPAT / "go"))
    return [str(folder / "runner")]


CLIENTS: dict[str, Callable[[], list[str]]] = {"kcat": kcat, "java": java, "node": node, "go": go}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_cannot_tell_penstock_from_kafka(
    request: pytest.FixtureRequest, penstock: BrokerProcess, client: str
) -> None:
    command = CLIENTS[client]()
    kafka: str = request.getfixturevalue("kafka")
    with ThreadPoolExecutor(2) as both:
        ours, theirs = both.map(lambda address: story(command, address), [penstock.address, kafka])
    assert ours == theirs
    assert ours[-1] == "end reached"
    # The topic of gzip is deleted at the end of the story, except by kcat, which cannot.
    stored = {name: codecs_stored(penstock, f"{client}-{name}") for name in CODECS}
    written = {name: {CODECS[name]} for name, codecs in stored.items() if codecs}
    assert {name: codecs & written[name] for name, codecs in stored.items() if codecs} == written
    assert len(written) >= (2 if client == "node" else 4)


def story(command: list[str], address: str) -> list[str]:
    ended = children.run([*command, address], capture_output=True, text=True, timeout=STORY_S)
    assert ended.returncode == 0, f"{address}: {ended.stdout[-500:]} {ended.stderr[-2000:]}"
    return ended.stdout.splitlines()


def codecs_stored(broker: BrokerProcess, topic: str) -> set[int]:
    """The compressions that the batches in the store say they have."""
    return {fields[b"b"][22] & 7 for _, fields in broker.store.xrange(broker.key(topic, 0, "log"))}


def build_once(folder: Path, given: list[Path], make: Callable[[Path], None]) -> None:
    """Make the folder anew unless it was made of the same files."""
    stamp = folder / "complete"
    wanted = hashlib.sha256(b"".join(path.read_bytes() for path in given)).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    make(folder)
    stamp.write_text(wanted)


def fetch(command: list[str], folder: Path) -> None:
    ended = children.run(command, cwd=folder, capture_output=True, text=True, timeout=FETCH_S)
    if ended.returncode:
        cannot(f"{' '.join(command[:2])} failed: {ended.stderr.strip()[-300:]}")
