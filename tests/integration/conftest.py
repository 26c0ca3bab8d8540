"""Servers of a test's own, for tests that kill or misconfigure them."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from aisle.embedded.supervisor import Supervisor, ValkeyServer


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[Callable[[Mapping[str, str]], ValkeyServer]]:
    with Supervisor(tmp_path / "data", log=lambda line: None) as supervisor:
        yield lambda options: supervisor.start_valkey(options=options)
