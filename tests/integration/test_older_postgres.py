"""The oldest PostgreSQL that is supported, Debian's 15: the schema is made and an event is sold on it."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aisle.embedded.server import free_port
from tests import children
from tests.conftest import Servers
from tests.needs import cannot
from tests.people import a_hall, expect, new_key
from tests.running import wait_until
from tests.stage import Stage, running_stage

BINARIES = Path("/usr/lib/postgresql/15/bin")


def as_somebody() -> tuple[Callable[[], None] | None, int, int]:
    """PostgreSQL refuses to run as root: then it runs as the user that Debian made for it."""
    if os.geteuid():
        return None, os.geteuid(), os.getegid()
    user = pwd.getpwnam("postgres")

    def become() -> None:
        os.setgroups([])
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)

    return become, user.pw_uid, user.pw_gid


@pytest.fixture(scope="module")
def older_postgres() -> Iterator[str]:
    if not (BINARIES / "postgres").exists():
        cannot("PostgreSQL 15 is not installed (tests/install-programs.sh installs Debian's)")
    become, user, group = as_somebody()
    folder = Path(tempfile.mkdtemp(prefix="aisle-pg15-"))
    os.chown(folder, user, group)
    options = {"before_exec": become, "cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    make = [BINARIES / "initdb", "-D", folder / "data", "-U", "aisle", "--auth=trust", "--encoding=UTF8", "--locale=C"]
    assert children.start(make, **options).wait(120) == 0
    port = free_port()
    quiet = [word for name in ("fsync=off", "unix_socket_directories=", f"port={port}") for word in ("-c", name)]
    server = children.start([BINARIES / "postgres", "-D", folder / "data", "-h", "127.0.0.1", *quiet], **options)
    try:
        ready = [BINARIES / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
        wait_until(lambda: children.run(ready).returncode == 0, "PostgreSQL 15 answers", server)
        yield f"postgresql://aisle@127.0.0.1:{port}/postgres"
    finally:
        server.terminate()
        server.wait(60)
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def stage(servers: Servers, older_postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    on_older = servers._replace(database_url=older_postgres)
    with running_stage(on_older, tmp_path_factory.mktemp("stage")) as stage:
        yield stage


def test_an_event_is_sold_paid_for_and_given_back(stage, seller, buyer):
    assert stage.fetch("show server_version_num")[0][0].startswith("15")
    event = seller.opens(a_hall(("A", 3000, 2, 10), pools=[{"name": "GA", "price": 1000, "capacity": 20}]))
    paid, left = buyer.books(event, 2), buyer.books(event, 1)
    for booking in (paid, left):
        buyer.waits_for(booking, "PENDING_PAYMENT")
    buyer.pays(paid)
    stage.overdue(left)
    buyer.waits_for(left, "CANCELLED")
    expect(201, buyer.post(f"/events/{event}/holds", {"quantity": 2, "section": "A"}, key=new_key()))
    buyer.waits_for(expect(201, buyer.post("/cart/checkout", key=new_key()))["id"], "PENDING_PAYMENT")
    expect(200, buyer.post(f"/bookings/{paid}/refund", key=new_key()))
    wait_until(lambda: expect(200, seller.get(f"/events/{event}/sales"))["held"] == 2, "the figures follow")
    assert expect(200, buyer.get("/events", search="train"))["items"]
    stage.settle(event)
