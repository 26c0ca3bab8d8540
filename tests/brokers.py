"""Penstock as a process, for tests of what travels over it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aisle.embedded.server import free_port
from aisle.embedded.supervisor import Supervisor
from tests.apache_kafka import answers


@contextmanager
def penstock(folder: Path, store_url: str, keyspace: str) -> Iterator[str]:
    """A started Penstock on the given store; yields its bootstrap address."""
    address = f"127.0.0.1:{free_port()}"
    command = [
        sys.executable,
        "-m",
        "penstock",
        "serve",
        "--listen",
        address,
        "--store",
        store_url,
        "--keyspace",
        keyspace,
    ]
    with Supervisor(folder, log=lambda line: None) as supervisor:
        supervisor.start_program("penstock", command, {"PENSTOCK_STORE": store_url}, ready=lambda: answers(address))
        yield address
