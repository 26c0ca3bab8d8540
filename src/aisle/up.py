"""`aisle up`: everything on this machine. Servers that no URL names are started embedded; Ctrl-C stops all of it.

The platform runs in processes of its own beside the servers, exactly as `aisle serve` would on other hosts.
"""

import asyncio
import os
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import msgspec

from aisle.cli_demo import try_demo
from aisle.config import IN_A_FILE, PREFIX, Config
from aisle.embedded.process import Program
from aisle.embedded.server import free_port
from aisle.embedded.supervisor import Supervisor
from aisle.http_server import listen
from aisle.migrate import migrate
from aisle.servers_file import servers_file

CHILD_SETTINGS = ("host", "port", "database_url", "store_url", "kafka")
WORKER_ROLES = "booking,reservation,ticketing"


def up(config: Config, *, demo: bool = False) -> int:
    """Start in order, wait until all of it answers, print the address; return when told to stop."""
    config = msgspec.structs.replace(config, port=config.port or free_port())
    listen(config).close()  # a busy port is said before anything is started
    with Supervisor(Path(config.data_dir), log=say) as supervisor:
        config, _ = start_everything(config, supervisor, say)
        with servers_file(config):
            address = _address(config)
            shown = try_demo(config, address) if demo else []
            say("")
            say(f"  Aisle is ready at {address}")
            for line in shown:
                say(line)
            say(f"  API          {address}/docs/api")
            say(f"  data, logs   {os.path.relpath(config.data_dir)}")
            say("  Ctrl-C stops it; the data stays.")
            return supervisor.wait()


def start_everything(
    config: Config, supervisor: Supervisor, say: Callable[[str], None]
) -> tuple[Config, list[Program]]:
    """Servers that no URL names, the schema, then the platform in two processes: one answers, one works."""
    programs: list[Program] = []
    if not config.database_url:
        postgres = supervisor.start_postgres()
        programs.append(postgres)
        config = msgspec.structs.replace(config, database_url=postgres.url)
    if not config.store_url:
        valkey = supervisor.start_valkey()
        programs.append(valkey)
        config = msgspec.structs.replace(config, store_url=valkey.url)
    if not config.kafka:
        port = free_port()
        programs.append(_start_penstock(supervisor, port, config.store_url))
        config = msgspec.structs.replace(config, kafka=f"127.0.0.1:{port}")
    applied = asyncio.run(migrate(config))
    if applied:
        say(f"schema: {', '.join(applied)}")
    workers = msgspec.structs.replace(config, host="127.0.0.1", port=free_port())
    programs.append(_start_aisle(supervisor, "aisle", "api", config))
    programs.append(_start_aisle(supervisor, "workers", WORKER_ROLES, workers))
    return config, programs


def _start_aisle(supervisor: Supervisor, name: str, roles: str, config: Config) -> Program:
    return supervisor.start_program(
        name,
        [sys.executable, "-m", "aisle", "serve", "--roles", roles],
        child_settings(config),
        ready=lambda: answers(f"{_address(config)}/readyz"),
    )


def child_settings(config: Config) -> dict[str, str]:
    """A child inherits the environment: a file that this process has read must not contradict what it passes on."""
    names = [PREFIX + setting.upper() for setting in CHILD_SETTINGS]
    values = [str(getattr(config, setting)) for setting in CHILD_SETTINGS]
    return {**dict(zip(names, values, strict=True)), **{name + IN_A_FILE: "" for name in names}}


def _address(config: Config) -> str:
    return f"http://{config.host}:{config.port}"


def _start_penstock(supervisor: Supervisor, port: int, store_url: str) -> Program:
    """The event log, as a process of its own on the same store."""
    return supervisor.start_program(
        "penstock",
        [
            *(sys.executable, "-m", "penstock", "serve", "--listen", f"127.0.0.1:{port}"),
            *("--no-auto-create", "--group-initial-delay", "0", "--fetch-gather", "5"),
        ],
        {"PENSTOCK_STORE": store_url},
        ready=lambda: _listens(port),
    )


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:  # noqa: S310 - our own address
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
