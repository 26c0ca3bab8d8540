"""The verbs for whoever keeps an installation running: `aisle doctor`, `aisle reconcile`. Mounted by cli.py.

Exit codes: 0 all is well, 1 something was found (it is on standard output), 2 there is no answer (one line on standard
error says why). With --json standard output is one JSON object and nothing else.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from aisle.config import Config, read_config
from aisle.errors import Problem, StartupError
from aisle.servers_file import with_running_servers

if TYPE_CHECKING:
    import asyncpg

    from aisle.store import Store

RECONCILE_NICENESS = 10


def mount_operate(verbs: Any) -> None:
    doctor = verbs.add_parser("doctor", help="look at everything: what is wrong and what to do; exit 1 on findings")
    doctor.add_argument("--json", action="store_true", help="one JSON object on standard output")
    doctor.set_defaults(verb=_doctor)

    reconcile = verbs.add_parser("reconcile", help="compare store and tickets while seats are sold; exit 1 on drift")
    reconcile.add_argument("--json", action="store_true", help="one JSON object on standard output")
    reconcile.set_defaults(verb=_reconcile)


def settings() -> Config:
    """Those of the environment, and the addresses of an `aisle up` that runs here."""
    config = with_running_servers(read_config(os.environ))
    if not (config.database_url and config.store_url):
        raise StartupError(
            f"AISLE_DATABASE_URL and AISLE_STORE_URL are not set and no `aisle up` runs on {config.data_dir}"
        )
    return config


@asynccontextmanager
async def both(config: Config) -> "AsyncIterator[tuple[asyncpg.Pool, Store]]":
    from aisle.db import open_database
    from aisle.metrics import Metrics
    from aisle.store import open_store

    async with open_database(config) as database, open_store(config, Metrics()) as store:
        yield database, store


def _doctor(arguments: argparse.Namespace) -> int:
    from aisle.doctor import examine

    checks = asyncio.run(examine(settings()))
    if arguments.json:
        say_json({"fine": all(check.fine for check in checks), "checks": checks})
    else:
        for check in checks:
            print(f"{'fine ' if check.fine else 'WRONG'}  {check.name:<18} {check.detail}")
            if check.next:
                print(f"{'':<26}-> {check.next}")
        wrong = sum(not check.fine for check in checks)
        print(f"{len(checks)} checks, {wrong} findings")
    return 0 if all(check.fine for check in checks) else 1


def _reconcile(arguments: argparse.Namespace) -> int:
    os.nice(RECONCILE_NICENESS)
    return asyncio.run(_compare(settings(), as_json=arguments.json))


async def _compare(config: Config, *, as_json: bool) -> int:
    from aisle.reconcile import reconcile

    try:
        async with both(config) as (database, store):
            found = await reconcile(database, store)
    except Problem as error:
        raise StartupError(f"store: {error}") from None
    if found is None:
        raise StartupError("somebody else compares store and tickets now; try again in a minute")
    if as_json:
        say_json(found)
    else:
        for finding in found.findings:
            print(finding)
        if found.paid_without_ticket:
            print(f"{found.paid_without_ticket} paid bookings have no ticket")
        print(f"{found.seats} seats: {sum(found.drift.values())} findings in {found.seconds:.2f} s")
    return 1 if found.drift or found.paid_without_ticket else 0


def say_json(data: object) -> None:
    sys.stdout.write(msgspec.json.encode(data).decode() + "\n")
