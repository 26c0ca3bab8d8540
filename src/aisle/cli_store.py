"""The verbs that judge and mend the hot store: `aisle verify`, `aisle rebuild`. Mounted by cli.py, as `cli_inspect` is.

Exit codes: 0 all is well, 1 verification found something (the findings are on standard output), 2 there is no answer
(one line on standard error says why). With --json standard output is one JSON object and nothing else.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from aisle.config import Config, read_config
from aisle.errors import Problem, StartupError, StoreScriptFailed
from aisle.servers_file import with_running_servers

if TYPE_CHECKING:
    from aisle.reservation.audit import Finding
    from aisle.reservation.facts import EventFacts
    from aisle.reservation.generation import Gate
    from aisle.reservation.verify import Report
    from aisle.store import Store

FACTS_BYTES_MAX = 256 * 1024 * 1024

Work = Callable[["Store"], Awaitable[int]]


def mount_store(verbs: Any) -> None:
    verify = verbs.add_parser("verify", help="compare the hot store with itself; exit 1 on drift")
    verify.add_argument("--event", metavar="N", help="only this event")
    verify.add_argument("--from", dest="facts", metavar="FILE", help="compare with these facts (see `inspect facts`)")
    verify.add_argument("--admit", action="store_true", help="when clean, let claims through to these server runs")
    verify.add_argument("--fresh", action="store_true", help="with --admit: the store is new, or was just rebuilt")
    verify.set_defaults(verb=lambda arguments: on_store(lambda store: _verify(store, arguments)))

    rebuild = verbs.add_parser("rebuild", help="recreate an event in the hot store from durable facts")
    rebuild.add_argument("--event", metavar="N", required=True)
    rebuild.add_argument("--from", dest="facts", metavar="FILE", help="facts as `aisle inspect facts` writes them")
    rebuild.add_argument("--drop-holds", action="store_true", help="end live holds instead of keeping those that fit")
    rebuild.set_defaults(verb=lambda arguments: on_store(lambda store: _rebuild(store, arguments)))

    for parser in (verify, rebuild):
        parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def on_store(work: Work) -> int:
    """Open the store that the settings or a running `aisle up` name, do the work, turn failures into one line."""
    return asyncio.run(_with_store(_settings(), work))


async def _with_store(config: Config, work: Work) -> int:
    from aisle.metrics import Metrics
    from aisle.reservation.facts import BadFacts
    from aisle.reservation.inspect import Unreadable
    from aisle.reservation.keys import BadName
    from aisle.reservation.rebuilt import RebuildRaced
    from aisle.store import open_store
    from respline import ServerError

    try:
        async with open_store(config, Metrics()) as store:
            return await work(store)
    except (BadName, BadFacts, Unreadable, LookupError) as error:
        raise StartupError(str(error.args[0] if error.args else error)) from None
    except (Problem, StoreScriptFailed, ServerError, RebuildRaced) as error:
        raise StartupError(f"store: {error}") from None


async def _verify(store: "Store", arguments: argparse.Namespace) -> int:
    event = None if arguments.event is None else event_number(arguments.event)
    if arguments.facts and event is None:
        raise StartupError("--from is about one event: say which with --event")
    if arguments.admit and event is not None:
        raise StartupError("--admit needs a verification of all events, not of one")
    if not arguments.admit:
        return _say_report(arguments, await _verified(store, event, arguments.facts))
    from aisle.reservation.generation import Gate, Standing

    gate = Gate(store, await _installation())
    await gate.require_ours()
    connected = gate.connected()
    report = await _verified(store, None, None)
    if report.clean and gate.standing is not Standing.VERIFIED:
        report.findings += await _confirmed(store, gate)
    standing = await gate.admit(connected, fresh=arguments.fresh) if report.clean else gate.standing
    if report.clean and standing is Standing.UNMARKED:
        raise StartupError(
            "store: it carries no generation, so it is new or was flushed: rebuild its events, then add --fresh"
        )
    if report.clean and standing is not Standing.VERIFIED:
        raise StartupError(f"store: it is {standing} after the verification; verify again")
    return _say_report(arguments, report, admitted=report.clean)


async def _confirmed(store: "Store", gate: "Gate") -> "list[Finding]":
    """What differs of any event when nothing may change meanwhile; where nothing does, it goes on in a new epoch."""
    from aisle.epochs import confirm_event
    from aisle.ticket_facts import known_events

    async with _database() as database:
        return [
            finding
            for event in await known_events(database)
            for finding in await confirm_event(database, store, gate, event)
        ]


async def _verified(store: "Store", event: int | None, facts_file: str | None) -> "Report":
    """Against a file, else against the ticket rows of every event that the database knows, else against itself."""
    from aisle.reservation.verify import verify
    from aisle.ticket_facts import verify_against_tickets

    if facts_file and event:
        # A file does not know how often the store was rebuilt since it was written.
        return await verify(store, event, _read_facts(facts_file, event).of_any_epoch())
    if not _settings().database_url:
        return await verify(store, event)
    async with _database() as database:
        return await verify_against_tickets(database, store, event)


async def _note_rebuild(event: int, *, drop_holds: bool) -> None:
    """In the audit trail, where there is a database to keep one."""
    from aisle.audit import Deed, note

    if _settings().database_url:
        async with _database() as database, database.acquire() as connection:
            await note(connection, Deed.STORE_REBUILT, actor=None, subject=event, detail={"drop_holds": drop_holds})


@asynccontextmanager
async def _database() -> AsyncIterator[Any]:
    from aisle.db import open_database

    config = _settings()
    if not config.database_url:
        raise StartupError("AISLE_DATABASE_URL is not set: bookings are in the database; or give --from FILE")
    async with open_database(config) as database:
        yield database


async def _rebuild(store: "Store", arguments: argparse.Namespace) -> int:
    from aisle.epochs import rebuild_event
    from aisle.reservation.rebuild import rebuild

    event = event_number(arguments.event)
    if arguments.facts:
        done = await rebuild(store, _read_facts(arguments.facts, event), drop_holds=arguments.drop_holds)
    else:
        async with _database() as database:
            try:
                done = await rebuild_event(database, store, event, drop_holds=arguments.drop_holds)
            except TimeoutError:
                raise StartupError(f"the tickets of event {event} never stood still; run it again") from None
    await _note_rebuild(event, drop_holds=arguments.drop_holds)
    if arguments.json:
        say_json(
            {
                "rebuilt": [{**msgspec.to_builtins(one), "place": str(one.place)} for one in done.rebuilt],
                "unknown": list(map(str, done.unknown)),
                "findings": done.findings,
            }
        )
    else:
        for one in done.rebuilt:
            kept = f"{one.holds_kept} holds kept, {len(one.holds_dropped)} dropped"
            state = "on sale" if one.on_sale else "closed"
            print(f"{one.place}  {one.seats} seats, {one.bookings} bookings, {kept}, epoch {one.epoch}, {state}")
            for booking in one.bookings_dropped:
                print(f"{one.place}  booking {booking} is not in the facts: its seats are free again")
        for place in done.unknown:
            print(f"{place}  is not in the facts: left alone")
        for finding in done.findings:
            print(finding)
    return 1 if done.findings else 0


def _settings() -> Config:
    config = with_running_servers(read_config(os.environ))
    if not config.store_url:
        raise StartupError(
            f"AISLE_STORE_URL is not set and no `aisle up` runs on {config.data_dir}: there is no store to look into"
        )
    return config


def event_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:19]) < 10**18):
        raise StartupError(f"an event is a positive number, not {text[:40]!r}")
    return int(text)


def _read_facts(path: str, event: int) -> "EventFacts":
    from aisle.reservation.facts import BadFacts, facts_from_json

    try:
        if Path(path).stat().st_size > FACTS_BYTES_MAX:
            raise StartupError(f"{path} is larger than {FACTS_BYTES_MAX} bytes")
        facts = facts_from_json(Path(path).read_bytes())
    except OSError as error:
        raise StartupError(f"cannot read {path}: {error.strerror}") from None
    except BadFacts as error:
        raise StartupError(f"{path}: {error}") from None
    if facts.event != event:
        raise StartupError(f"{path} is about event {facts.event}, not {event}")
    return facts


async def _installation() -> str:
    from aisle.db import connect

    config = _settings()
    if not config.database_url:
        raise StartupError("AISLE_DATABASE_URL is not set: the database says which installation this store belongs to")
    connection = await connect(config)
    try:
        return str(await connection.fetchval("select id from public.installation"))
    finally:
        await connection.close()


def _say_report(arguments: argparse.Namespace, report: "Report", *, admitted: bool = False) -> int:
    if arguments.json:
        say_json({**msgspec.to_builtins(report), "admitted": admitted})
    else:
        for finding in report.findings:
            print(finding)
        counted = f"{report.events} events, {report.places} subsections, {report.seats} seats"
        counted += f", {report.pools} pools" if report.pools else ""
        print(f"{counted}: {len(report.findings)} findings in {report.seconds:.2f} s")
    return 0 if report.clean else 1


def say_json(data: object) -> None:
    sys.stdout.write(msgspec.json.encode(data).decode() + "\n")
