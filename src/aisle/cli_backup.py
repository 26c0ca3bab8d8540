"""`aisle backup`, `aisle restore` and `aisle unclaimed`: a copy of the database, its return, and money paid in between.

Exit codes: 0 done, 1 something is left for an operator (it is on standard output), 2 nothing was done (one line on
standard error says why).
"""

import argparse
import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aisle.cli_operate import both, say_json, settings
from aisle.config import Config
from aisle.errors import AisleError, Problem, StartupError

if TYPE_CHECKING:
    import asyncpg

    from aisle.backup import Manifest
    from aisle.store import Store


def mount_backup(verbs: Any) -> None:
    backup = verbs.add_parser("backup", help="write a copy of the database into a directory")
    backup.add_argument("folder", metavar="DIR", type=Path)
    backup.add_argument("--keep", metavar="N", type=int, default=0, help="delete all but the newest N backups there")
    backup.set_defaults(verb=_back_up)

    restore = verbs.add_parser("restore", help="bring a backup back into an empty database, and rebuild the store")
    restore.add_argument("given", metavar="DIR|FILE", type=Path, help="the newest backup of a directory, or this one")
    restore.set_defaults(verb=_restore)

    unclaimed = verbs.add_parser("unclaimed", help="payments the provider has and the books do not; exit 1 if any")
    unclaimed.add_argument("--since", metavar="TIME", required=True, help="ISO 8601, such as 2027-05-01T12:00:00+00:00")
    unclaimed.add_argument("--refund", action="store_true", help="give them back")
    unclaimed.add_argument("--json", action="store_true", help="one JSON object on standard output")
    unclaimed.set_defaults(verb=_unclaimed)


def _back_up(arguments: argparse.Namespace) -> int:
    from aisle.backup import back_up

    if arguments.keep < 0:
        raise StartupError("--keep is at least 1")
    config = settings()
    made = asyncio.run(back_up(config, arguments.folder, keep=arguments.keep))
    print(f"{arguments.folder / made.file}  {made.bytes} bytes, {_counted(made)}")
    try:
        asyncio.run(_note(config, arguments.folder / made.file, made))
    except AisleError as error:
        print(f"aisle: the store did not take note of it: {error}", file=sys.stderr)
    return 0


async def _note(config: Config, path: Path, made: "Manifest") -> None:
    from aisle.metrics import Metrics
    from aisle.ops.notes import BackedUp, note
    from aisle.store import open_store

    async with open_store(config, Metrics()) as store:
        await note(store, "backup", BackedUp(at=made.at, where=str(path), bytes=made.bytes))


def _restore(arguments: argparse.Namespace) -> int:
    try:
        return asyncio.run(_bring_back(settings(), arguments.given))
    except Problem as error:
        raise StartupError(f"the database is back; the store is not: {error}; see `aisle rebuild`") from None


async def _bring_back(config: Config, given: Path) -> int:
    from aisle.backup import bring_back
    from aisle.migrate import migrate

    manifest = await bring_back(config, given)
    print(f"{manifest.file} is back: {_counted(manifest)}")
    for name in await migrate(config):
        print(f"applied {name}")
    async with both(config) as (database, store):
        findings = await _fill(database, store)
    for finding in findings:
        print(finding)
    at = manifest.at.isoformat(timespec="seconds")
    print(f"What was sold after {at} is not in it. Money paid since then: aisle unclaimed --since {at}")
    return 1 if findings else 0


async def _fill(database: "asyncpg.Pool", store: "Store") -> list[str]:
    """The store from the tickets, and open for sale if both agree; returns what is left to be done."""
    from aisle.epochs import rebuild_event
    from aisle.reservation.generation import Gate
    from aisle.ticket_facts import known_events, verify_against_tickets

    gate = Gate(store, str(await database.fetchval("select id from public.installation")))
    await gate.require_ours()
    connected = gate.connected()
    events = await known_events(database)
    for event in events:
        await rebuild_event(database, store, event)
    findings = [str(finding) for finding in (await verify_against_tickets(database, store)).findings]
    print(f"{len(events)} events rebuilt in the store: {len(findings)} findings")
    if not findings:
        await gate.admit(connected, fresh=True)
    creating = await database.fetch("select id from ticketing.events where state = 'creating'")
    return [*findings, *(f"event {row['id']} was being created: it has to be created again" for row in creating)]


def _unclaimed(arguments: argparse.Namespace) -> int:
    try:
        since = datetime.fromisoformat(arguments.since)
    except ValueError:
        raise StartupError(f"not a time: {arguments.since[:40]!r}") from None
    return asyncio.run(_find_unclaimed(settings(), since if since.tzinfo else since.replace(tzinfo=UTC), arguments))


async def _find_unclaimed(config: Config, since: datetime, arguments: argparse.Namespace) -> int:
    from aisle.db import open_database
    from aisle.money_bridges import provider_of
    from aisle.payment.provider import ProviderSilent
    from aisle.payment.unclaimed import find_unclaimed, give_back

    try:
        async with open_database(config) as database, provider_of(config, database) as provider:
            found = await find_unclaimed(database, provider, since)
            given = await give_back(provider, found) if arguments.refund else 0
    except ProviderSilent as error:
        raise StartupError(f"the payment provider does not answer: {error}") from None
    if arguments.json:
        say_json({"unclaimed": found, "given_back": given})
    else:
        for one in found:
            state = "taken" if one.captured else "promised"
            print(f"{one.payment}  {one.amount} {one.currency} {state}, {one.reference}")
        print(f"{len(found)} payments without a booking, {given} given back")
    return 1 if len(found) > given else 0


def _counted(manifest: "Manifest") -> str:
    return ", ".join(f"{count} {name}" for name, count in manifest.counts.items())
