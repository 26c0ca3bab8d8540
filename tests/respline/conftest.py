"""A server per worker for the tests that leave it alone, and private ones for those that do not."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.respline.servers import Server

MakeServer = Callable[..., Server]


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("valkey")).start()
    yield server
    server.kill()


@pytest.fixture
def server(shared_server: Server) -> Server:
    with shared_server.admin() as admin:
        admin.flushall()
    return shared_server


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[MakeServer]:
    made: list[Server] = []

    def make(*arguments: str) -> Server:
        directory = tmp_path / str(len(made))
        directory.mkdir()
        made.append(Server(directory, *arguments).start())
        return made[-1]

    yield make
    for server in made:
        server.resume()
        server.kill()
