"""After the faults: everything comes to rest, and then everything is judged.

In this order: PostgreSQL, store, ledger and provider agree (`tests/invariants.py`); the history holds; every message
ever sent is read once more and changes nothing; the store is emptied, rebuilt, and found the same.
"""

import asyncio
import json
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from signal import SIGCONT, SIGKILL
from typing import Any

import asyncpg
from confluent_kafka import Consumer, TopicPartition

from aisle.errors import AisleError
from aisle.messages import SHARED_LANE, dead_letters
from aisle.ticket_facts import verify_against_tickets
from respline import ResplineError
from tests.chaos.soak import faults_log
from tests.chaos.soak.audit import GIVE_REFUNDS, forbidden_moves
from tests.chaos.soak.buyers import POOL_PLACES, SEATS_PER_BUYER, WIDTH
from tests.chaos.soak.checks import Final, judge_history
from tests.chaos.soak.faults_store import operator_of, start_store
from tests.chaos.soak.nemesis import Nemesis
from tests.chaos.soak.watchers import Watcher
from tests.invariants import assert_event_consistent, live_holds, unsettled

REST_SECONDS = 240.0
LATE_MONEY = "money came after its seats were gone"
MET = {
    LATE_MONEY: "payment.payments where late_at is not null",
    "late money got its seats, or others": "booking.bookings where reason = 'paid_late'",
    "late money went back": "payment.payments where late_at is not null and state = 'RETURNED'",
    "a booking failed because its seats were taken": "booking.bookings where reason = 'taken'",
    "a booking expired": "booking.bookings where state = 'CANCELLED' and reason = 'expired'",
    "a booking was sold out": "booking.bookings where reason = 'sold_out'",
    "the provider did not answer": "payment.payments where method in ('card_timeout', 'card_charge_timeout')",
    "webhooks were heard": "payment.notices",
    "a refund was refused by the provider": "payment.refunds where looks > 0",
}
AWAY = (OSError, TimeoutError, AisleError, ResplineError, asyncpg.PostgresError, asyncpg.InterfaceError)
INVARIANTS = ("I1", "I2", "I3", "I4", "I5", "I7", "I8", "I9", "I10", "I11", "I13", "I16", "I17", "I19", "I21", "I22",
              "I23", "I24", "I26", "I27", "I28")  # fmt: skip


@dataclass
class Verdict:
    findings: list[str] = field(default_factory=list)
    judged: dict[str, int] = field(default_factory=dict)
    met: Counter[str] = field(default_factory=Counter)
    rest_seconds: float = 0.0


async def heal(nemesis: Nemesis) -> None:
    """Everything is up and every link is whole. Whatever a fault that failed has left is put right."""
    world = nemesis.world
    for link in world.links.values():
        link.heal()
    for disk in ("postgres", "store", "log"):
        (world.disk(disk) / "filler").unlink(missing_ok=True)
    for server in (world.postgres, world.store, world.log_store, world.broker):
        if not server.running and server is world.store:
            await start_store(nemesis)
        elif not server.running:
            await world.start_again(server)
    for node in world.nodes:
        node.kept_down = False
        node.signal(SIGCONT)
        if node.extra:
            node.extra.clear()
            node.signal(SIGKILL)
    await asyncio.gather(*(node.until_it_serves(120) for node in world.nodes))
    connection = await asyncpg.connect(world.config.database_url)
    try:
        await connection.execute(GIVE_REFUNDS)
    finally:
        await connection.close()


async def reach_rest(nemesis: Nemesis, events: list[int]) -> tuple[float, list[str]]:
    """Wait until nothing is on its way; returns how long that took and what never arrived."""
    started = time.monotonic()
    still: list[str] = ["never looked"]
    calm = 0
    while time.monotonic() - started < REST_SECONDS:
        try:
            async with nemesis.world.stage.behind() as (database, store):
                while time.monotonic() - started < REST_SECONDS:
                    still = await _on_its_way(database, store, events)
                    calm = 0 if still else calm + 1
                    if calm >= 3:
                        return time.monotonic() - started, []
                    await asyncio.sleep(0.5)
        except AWAY as error:
            still = [f"{type(error).__name__}: {error}"]
            await asyncio.sleep(0.5)
    return time.monotonic() - started, still


async def _on_its_way(database: asyncpg.Pool, store: Any, events: list[int]) -> list[str]:
    left = await unsettled(database, store, events)
    paying = await database.fetchval(
        "select count(*) from booking.bookings where state in ('PENDING_PAYMENT', 'PAYING')"
    )
    open_ = await database.fetchval(
        """select count(*) from payment.payments
           where state in ('STARTED', 'ACTION', 'ABANDONED') and look_at is not null"""
    )
    left += [f"{paying} bookings are PAYING or wait for their payment"] if paying else []
    held = sum([await live_holds(database, store, event) for event in events])
    left += [f"{held} seats are held"] if held else []
    left += [f"{open_} payments may still be decided"] if open_ else []
    return left


async def judge(nemesis: Nemesis, watchers: list[Watcher], buyers: dict[str, str], *, deep: bool = True) -> Verdict:
    world, verdict = nemesis.world, Verdict()
    events = await _events(world.config.database_url)
    verdict.rest_seconds, still = await reach_rest(nemesis, events)
    if still and not await _gate_is_open(nemesis):
        await operator_of(nemesis).recover()
        verdict.rest_seconds, still = await reach_rest(nemesis, events)
    verdict.findings += [f"I22: never came to rest: {what}" for what in still]
    await _judge_events(nemesis, events, verdict, "")
    await _judge_history(nemesis, buyers, verdict)
    await _judge_watchers(nemesis, watchers, verdict)
    verdict.findings += await _poison_not_buried(nemesis)
    if deep and not verdict.findings:
        await _judge_replay(nemesis, events, verdict)
        await _judge_rebuild(nemesis, events, verdict)
    verified = await operator_of(nemesis).verify()
    if verified["code"] != 0:
        verdict.findings.append(f"I8: aisle verify ended with {verified['code']}: {verified['out'][-1500:]}")
    return verdict


async def _gate_is_open(nemesis: Nemesis) -> bool:
    with suppress(*AWAY):
        async with nemesis.world.stage.behind() as (database, store):
            return (await verify_against_tickets(database, store)).clean
    return False


async def _judge_events(nemesis: Nemesis, events: list[int], verdict: Verdict, when: str) -> None:
    async with nemesis.world.stage.behind() as (database, store):
        for event in events:
            try:
                await assert_event_consistent(database, store, event)
            except AssertionError as error:
                verdict.findings.append(f"I4/I5/I8/I23: event {event}{when}: {str(error)[:600]}")
            verdict.judged["events"] = verdict.judged.get("events", 0) + 1


async def _judge_history(nemesis: Nemesis, buyers: dict[str, str], verdict: Verdict) -> None:
    connection = await asyncpg.connect(nemesis.world.config.database_url)
    try:
        rows = await connection.fetch("select * from booking.bookings")
        moves = await connection.fetch("select * from chaos.moves order by n")
        widths = {
            (row["event_id"], row["section"], row["subsection"]): row["seats_per_row"]
            for row in await connection.fetch("select * from ticketing.subsections")
        }
        pools = await connection.fetch("select event_id, capacity from ticketing.pools")
        for what, count in MET.items():
            verdict.met[what] = await connection.fetchval(f"select count(*) from {count}")  # noqa: S608
    finally:
        await connection.close()
    finals = [final_of(row, widths) for row in rows]
    capacities = {row["event_id"]: row["capacity"] for row in pools}
    assert all(capacity == POOL_PLACES for capacity in capacities.values())
    offset = time.monotonic() - time.time()
    verdict.findings += judge_history(
        nemesis.history, finals, capacities, limit=SEATS_PER_BUYER, buyers=buyers, wall_to_monotonic=offset
    )
    verdict.findings += forbidden_moves(moves)
    verdict.judged |= {"bookings": len(finals), "moves": len(moves), "operations": len(nemesis.history.operations)}


def final_of(row: Any, widths: dict[tuple[int, str, int], int]) -> Final:
    seats, places = [], 0
    for part in json.loads(row["parts"]):
        if part["subsection"] == 0:
            places += len(part["seats"])
            continue
        width = widths.get((row["event_id"], part["section"], part["subsection"]), WIDTH)
        for seat in part["seats"]:
            name = f"{seat // width + 1}-{seat % width + 1}"
            seats.append((row["event_id"], part["section"], part["subsection"], name))
    return Final(
        str(row["id"]), str(row["buyer"]), row["event_id"], row["state"], tuple(sorted(seats)), places,
        row["idempotency_key"],
    )  # fmt: skip


async def _judge_watchers(nemesis: Nemesis, watchers: list[Watcher], verdict: Verdict) -> None:
    """Two seconds of rest are promised to be enough; what a busy machine needs more is given."""
    deadline = time.monotonic() + 30
    wrong: list[str] = ["nothing was compared"] if watchers else []
    while wrong and time.monotonic() < deadline:
        await asyncio.sleep(1)
        wrong = []
        async with nemesis.world.stage.behind() as (database, _):
            for watcher in watchers:
                truth = await _seat_counts(database, watcher.event)
                if watcher.counts != truth:
                    wrong.append(f"I19: a browser sees {watcher.counts} of event {watcher.event}, true is {truth}")
    verdict.findings += wrong
    for watcher in watchers:
        verdict.findings += watcher.findings[:5]
    verdict.judged["streams"] = sum(watcher.connects for watcher in watchers)


async def _seat_counts(database: asyncpg.Pool, event: int) -> dict[str, list[int]]:
    """As a browser counts them: available, reserved, sold, unavailable. There are no holds left by now."""
    rows = await database.fetch(
        """select s.section || '-' || s.subsection as place, t.state, count(*) as seats, 0 as capacity
           from ticketing.tickets t join ticketing.subsections s using (event_id, place)
           where event_id = $1 group by 1, 2
           union all
           select p.pool || '-0', t.state, count(t.seat), p.capacity
           from ticketing.pools p left join ticketing.tickets t using (event_id, place)
           where event_id = $1 group by 1, 2, 4""",
        event,
    )
    counts: dict[str, list[int]] = {}
    for row in rows:
        place = counts.setdefault(row["place"], [0, 0, 0, 0])
        place[0] = max(place[0], row["capacity"])
        if row["state"] in (1, 2) or not row["capacity"]:
            place[row["state"]] = row["seats"]
    for place in (counts[name] for name in counts if name.endswith("-0")):
        place[0] -= place[1] + place[2]
    return counts


async def _judge_replay(nemesis: Nemesis, events: list[int], verdict: Verdict) -> None:
    """I16, I17: everything that was ever said is said again, and the world stays as it was."""
    before = await _picture(nemesis.world.config.database_url)
    moved = await faults_log.read_all_again(nemesis)
    _, still = await reach_rest(nemesis, events)
    after = await _picture(nemesis.world.config.database_url)
    verdict.findings += [f"I17: after reading everything again never at rest: {what}" for what in still]
    verdict.findings += [
        f"I17: reading everything again changed {name}: {_first_difference(before[name], after[name])}"
        for name in before
        if before[name] != after[name]
    ]
    await _judge_events(nemesis, events, verdict, " after reading everything again")
    verdict.judged["messages read again"] = moved


async def _judge_rebuild(nemesis: Nemesis, events: list[int], verdict: Verdict) -> None:
    """I24: an empty store becomes what it was."""
    async with nemesis.world.stage.behind() as (_, store):
        await store.call("FLUSHALL")
    nemesis.history.mark("holds lost")
    if not await operator_of(nemesis).recover():
        verdict.findings.append(f"I24: the store could not be rebuilt: {operator_of(nemesis).last[-1500:]}")
        return
    await _judge_events(nemesis, events, verdict, " after a rebuild")


async def _picture(url: str) -> dict[str, list[tuple[Any, ...]]]:
    connection = await asyncpg.connect(url)
    try:
        wanted = {
            "bookings": "select id, state, parts::text, total, reason from booking.bookings order by id",
            "tickets": "select event_id, place, seat, state, booking from ticketing.tickets order by 1, 2, 3",
            "payments": "select id, state, amount, refunded from payment.payments order by id",
            "ledger": "select * from payment.ledger order by 1",
        }
        return {name: [tuple(row) for row in await connection.fetch(sql)] for name, sql in wanted.items()}
    finally:
        await connection.close()


def _first_difference(before: list[tuple[Any, ...]], after: list[tuple[Any, ...]]) -> str:
    return str(sorted(map(str, set(before) ^ set(after)))[:4])


async def _poison_not_buried(nemesis: Nemesis) -> list[str]:
    """Every message that nobody can read lies on the dead-letter topic."""
    sent = nemesis.shared.get("poison", 0)
    if not sent:
        return []
    buried = 0
    for _ in range(40):
        buried = await asyncio.to_thread(_dead_letters, nemesis.world.config.kafka)
        if buried >= sent:
            return []
        await asyncio.sleep(0.5)
    return [f"I22: {sent} unreadable messages were sent, {buried} are on the dead-letter topic"]


def _dead_letters(address: str) -> int:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "chaos-dead", "log_level": 0})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(dead_letters(SHARED_LANE), 0), timeout=5)
        return int(high - low)
    finally:
        consumer.close()


async def _events(url: str) -> list[int]:
    connection = await asyncpg.connect(url)
    try:
        return [row["id"] for row in await connection.fetch("select id from ticketing.events order by id")]
    finally:
        await connection.close()
