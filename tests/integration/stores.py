"""Every kind of store the inventory must behave the same on, as settings that a test can open.

A plugin: a test file says `pytest_plugins = ["tests.integration.stores"]` and asks for `any_config`. Valkey is the one
of the run; Redis and the three nodes of the cluster are started once a worker; Kvrocks is used where KVROCKS_URL is.
"""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from aisle.config import Config
from tests import children
from tests.conftest import with_settings
from tests.needs import need
from tests.respline.servers import Server
from tests.respline.test_cluster import Nodes

KINDS = [
    "valkey",
    "redis",
    # Three nodes are dear to start, so one worker has them.
    pytest.param("cluster", marks=pytest.mark.xdist_group("inventory-cluster")),
    *(["kvrocks"] if os.environ.get("KVROCKS_URL") else []),
]


class RedisServer(Server):
    """Debian's redis-server, with the life of a Valkey of the tests."""

    def _spawn(self) -> subprocess.Popen[bytes]:
        binary = shutil.which("redis-server")
        assert binary is not None
        settings = ("--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--unixsocket", str(self.unix_path))
        return children.start(
            [binary, "--port", str(self.port), "--dir", str(self.directory), *settings, *self.arguments],
            stdout=subprocess.DEVNULL,
        )


@pytest.fixture(params=KINDS)
def any_config(request: pytest.FixtureRequest, config: Config) -> Config:
    """Settings that point at a store of each kind, at keys no other test uses."""
    match request.param:
        case "redis":
            return with_settings(config, store_url=request.getfixturevalue("redis_server").url)
        case "cluster":
            return with_settings(config, store_url=request.getfixturevalue("cluster_nodes").url)
        case "kvrocks":
            # That server outlives the run, so the keys of an earlier run may still be there.
            return with_settings(config, store_url=os.environ["KVROCKS_URL"], store_prefix=f"t{secrets.token_hex(6)}:")
    return config


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    need("redis-server", "tests/install-programs.sh installs it on Debian")
    server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def cluster_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path_factory.mktemp("nodes"))
    try:
        nodes.form_cluster()
        yield nodes
    finally:
        nodes.close()
