"""`aisle up`: everything on this machine. Servers that no URL names are started embedded; Ctrl-C stops all of it.

The platform runs as a process of its own beside the servers, exactly as `aisle serve` would on another host.
"""

import asyncio
import os
import socket
import sys
import urllib.error
import urllib.request
from pathlib import Path

import msgspec

from aisle.config import PREFIX, Config
from aisle.embedded.server import free_port
from aisle.embedded.supervisor import Supervisor
from aisle.http_server import listen
from aisle.migrate import migrate
from aisle.servers_file import servers_file

CHILD_SETTINGS = ("host", "port", "database_url", "store_url", "kafka")


def up(config: Config) -> int:
    """Start in order, wait until all of it answers, print the address; return when told to stop."""
    config = msgspec.structs.replace(config, port=config.port or free_port())
    listen(config).close()  # a busy port is said before anything is started
    with Supervisor(Path(config.data_dir), log=_say) as supervisor:
        if not config.database_url:
            config = msgspec.structs.replace(config, database_url=supervisor.start_postgres().url)
        if not config.store_url:
            config = msgspec.structs.replace(config, store_url=supervisor.start_valkey().url)
        if not config.kafka:
            config = msgspec.structs.replace(config, kafka=_start_penstock(supervisor, config.store_url))
        applied = asyncio.run(migrate(config))
        if applied:
            _say(f"schema: {', '.join(applied)}")
        with servers_file(config):
            return _run(config, supervisor)


def _run(config: Config, supervisor: Supervisor) -> int:
    address = f"http://{config.host}:{config.port}"
    supervisor.start_program(
        "aisle",
        [sys.executable, "-m", "aisle", "serve"],
        {PREFIX + name.upper(): str(getattr(config, name)) for name in CHILD_SETTINGS},
        ready=lambda: _answers(f"{address}/readyz"),
    )
    _say("")
    _say(f"  Aisle is ready at {address}")
    _say(f"  API          {address}/docs/api")
    _say(f"  data, logs   {os.path.relpath(config.data_dir)}")
    _say("  Ctrl-C stops it; the data stays.")
    return supervisor.wait()


def _start_penstock(supervisor: Supervisor, store_url: str) -> str:
    """The event log, as a process of its own on the same store."""
    port = free_port()
    supervisor.start_program(
        "penstock",
        [
            *(sys.executable, "-m", "penstock", "serve", "--listen", f"127.0.0.1:{port}"),
            *("--no-auto-create", "--group-initial-delay", "0"),
        ],
        {"PENSTOCK_STORE": store_url},
        ready=lambda: _listens(port),
    )
    return f"127.0.0.1:{port}"


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:  # noqa: S310 - our own address
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
