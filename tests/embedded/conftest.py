"""Servers on fresh data. initdb costs most of a second, so tests that need a database copy one made once per worker."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from aisle.embedded.supervisor import Supervisor


@pytest.fixture(scope="session")
def database_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("template") / "data"
    with Supervisor(data, log=lambda line: None) as supervisor:
        supervisor.start_postgres()
    return data


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def data_with_database(data: Path, database_template: Path) -> Path:
    shutil.copytree(database_template, data, symlinks=True)
    return data


@pytest.fixture
def lines() -> list[str]:
    """What the supervisor said."""
    return []


@pytest.fixture
def supervisor(data: Path, lines: list[str]) -> Iterator[Supervisor]:
    with Supervisor(data, log=lines.append) as supervisor:
        yield supervisor


def gone(process: psutil.Process) -> bool:
    """An unreaped zombie counts as gone: it holds nothing and does nothing."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
