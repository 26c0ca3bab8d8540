"""The guards of the product, each turned off on purpose: the simulation has to find what it guards against.

For tests only. Many are defects that other systems of this kind have had. A guard is turned off by other text in a
script, or another function in place of the product's, while a history runs. `after` is within how many seeds that has
to be found; `test_guards` holds it to that, and the same histories to nothing with the guard.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec

from aisle import epochs, relay
from aisle import worker as workers
from aisle.booking import cart, expire, hold, order_store, store
from aisle.booking.booking import State
from aisle.log import LogUnavailable
from aisle.messages import POOL, decode
from aisle.payment import store as payment_store
from aisle.payment.payment import PaymentState
from aisle.reservation import conversion
from aisle.reservation.claims import Claim, Code, Settlement, Verb
from aisle.reservation.keys import Place
from aisle.scripts import Script
from aisle.ticketing import sell, worker
from aisle.ticketing import store as ticket_store
from tests.simulation import statements_booking, statements_ticketing
from tests.simulation.tables import replace_stand_in
from tests.simulation.world import StoreLine, process_of

Edits = dict[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class Defect:
    """`lua`: by script, pieces of its text and what stands there instead. `python`: (where, name, other).

    `guard` names what is turned off, `what` says what the product is without it.
    """

    guard: str
    what: str
    after: int
    lua: Edits = field(default_factory=dict)
    # The seed that the count begins with.
    first: int = 0
    # What a violation has to say, where another one would be found first.
    says: str = ""
    # Whether the store loses something in every history.
    loses: bool = False
    python: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = ()


COMPARES_NOTHING = (
    "if math.floor(b / unit) % 4 ~= was then error({err = 'DRIFT seat ' .. seat .. ' is not in state ' .. was}) end",
    "b = b + (was - math.floor(b / unit) % 4) * unit",
)
GIVES_AWAY_TWICE = (
    COMPARES_NOTHING,
    ("if state_of(map, seat) == 0 then free", "if true then free"),
    ("if found[i] then error", "if false then error"),
    ("if not count or count < taken_in[row] then", "if not count then"),
)
ANY_OWNER = ("if id ~= s.owners[i + 2 * n - 1] then", "if false then")


def _sweeps_in_three_steps(original: Any) -> Any:
    """Look, count, strike off: three calls, each of which is atomic."""

    async def run_many(self: StoreLine, script: Script, calls: Any) -> list[Any]:
        if script.name != "pool_sweep":
            return await original(self, script, calls)
        for keys, _ in calls:
            pool, holds, index, *_ = keys
            now = self._world.hot.now_ms()
            for id in await self.call("ZRANGEBYSCORE", index, "-inf", now):
                text = await self.call("HGET", holds, id)
                if text is None or not text.startswith(b"L|h|"):
                    continue
                _, *rest, places = text.split(b"|")
                held = int((await self.call("HGET", pool, "held")) or 0)
                await self.call("HSET", pool, "held", held - int(places))
                await self.call("HSET", holds, id, b"|".join([b"E", *rest, places]))
                await self.call("ZADD", index, now + 86_400_000, id)
        return [msgspec.msgpack.encode([[], 0, 0, 1]) for _ in calls]

    return run_many


def _counter_with_a_ttl(original: Any) -> Any:
    def run(self: StoreLine, script: Script, keys: Any, args: Any) -> Any:
        reply = original(self, script, keys, args)
        if script.name == "pool_take":
            self._world.hot.dies_at.setdefault(keys[0].encode(), self._world.hot.now_ms() + 30_000)
        return reply

    return run


def _lets_go_first(original: Any) -> Any:
    """The hold ends, then the order is stored: for a moment the seats are anybody's."""

    async def convert_one(self: Any, event: int, held: Any, booking: str, owner: str, epoch: int) -> Code:
        if held.subsection == POOL:
            return await original(self, event, held, booking, owner, epoch)
        place = Place(event, held.section, held.subsection)
        released = [Settlement(Verb.RELEASE, one, owner) for one in held.holds]
        await self._inventory.settle(place, released, epoch=epoch)
        seats = tuple(sorted(seat for part in held.parts for seat in part.seats))
        [outcome] = await self._inventory.claim(place, [Claim(id=booking, owner=owner, seats=seats)], epoch=epoch)
        return outcome.code

    return convert_one


def _extends_the_cart_only(_original: Any) -> Any:
    async def extend_holds(*_: Any) -> None: ...

    return extend_holds


def _unlocks_before_the_commit(original: Any) -> Any:
    """The store offers the seats again before PostgreSQL has let go of them, which it may still refuse."""

    async def cancel_rows(connection: Any, ids: Any, why: str, sources: Any, *, now: Any) -> int:
        process = process_of.get()
        for row in (await store.lock(connection, ids)).values():
            for part in order_store.parts_of(row["parts"]):
                if not part.in_pool:
                    back = Settlement(Verb.RELEASE, str(row["id"]), str(row["buyer"]), why)
                    place = Place(row["event_id"], part.section, part.subsection)
                    await process.inventory.settle(place, [back], epoch=1)
        return await original(connection, ids, why, sources, now=now)

    return cancel_rows


def _counts_no_rows(original: Any) -> Any:
    async def reserve(connection: Any, seats: Any) -> dict[Any, int]:
        await original(connection, seats)
        asked: dict[Any, int] = {}
        for seat in seats:
            asked[seat.booking] = asked.get(seat.booking, 0) + 1
        return asked

    return reserve


def _takes_what_is_being_paid(_original: Any) -> Any:
    def overdue(tx: Any, now: Any, limit: int) -> Any:
        waiting = ("PENDING_PAYMENT", "PAYING")
        return tx.scan(
            statements_booking.BOOKINGS, lambda b: b["state"] in waiting and b["deadline"] <= now, skip_locked=True
        )

    return overdue


def _paid_is_sold(_original: Any) -> Any:
    async def sell_nothing(_self: Any, _connection: Any, owned: Any) -> set[Any]:
        return {one.booking for one in owned}

    return sell_nothing


def _forgets_its_messages(original: Any) -> Any:
    """Published after the commit, by the process that may be dead by then; here it is every third time."""

    async def write_outbox(connection: Any, messages: Any, *, now: Any) -> None:
        if int(now.timestamp() * 1000) % 3:
            await original(connection, messages, now=now)

    return write_outbox


def _every_key_is_new(original: Any) -> Any:
    """Placed under a key of its own, whatever the buyer said."""

    async def place(connection: Any, placings: Any, *, now: Any) -> Any:
        renamed = [msgspec.structs.replace(p, idempotency_key=f"{p.idempotency_key}-{p.id}") for p in placings]
        return await original(connection, renamed, now=now)

    return place


def _no_limit(original: Any) -> Any:
    async def place(connection: Any, placings: Any, *, now: Any) -> Any:
        limitless = [msgspec.structs.replace(p, seats_max=100) for p in placings]
        return await original(connection, limitless, now=now)

    return place


def _same_epoch(_original: Any) -> Any:
    async def advance(_store: Any, facts: Any) -> int:
        return max(known.epoch for known in (*facts.halls, *facts.pools))

    return advance


def _stops_nobody(_original: Any) -> Any:
    async def stop_event(_connection: Any, _event: int) -> None: ...

    return stop_event


def _reads_and_goes_on(_original: Any) -> Any:
    """The epoch as it is now, which may end before the transaction does."""

    def epochs_of(tx: Any, events: Any) -> Any:
        return [{"id": e["id"], "epoch": e["epoch"]} for e in tx.all("ticketing.events") if e["id"] in events]

    return epochs_of


def _takes_old_words(_original: Any) -> Any:
    async def lost(*_: Any) -> dict[str, Any]:
        return {}

    return lost


def _any_move(_original: Any) -> Any:
    return {state: frozenset(PaymentState) for state in PaymentState}


def _forgets_first(_original: Any) -> Any:
    """The row is deleted, and then its message is published."""

    async def relay_once(self: Any) -> int:
        async with self._database.acquire() as connection, connection.transaction():
            rows = await connection.fetch(relay.TAKE[self._service], 100)
            if rows:
                await connection.execute(relay.DELETE[self._service], [row["id"] for row in rows])
        if rows:
            await self._writer.publish([decode(row["message"]) for row in rows])
        return len(rows)

    return relay_once


def _keeps_offsets_first(_original: Any) -> Any:
    """A batch counts as handled as soon as it was read."""

    async def run_worker(name: str, lane: str, reader: Any, writer: Any, handle: Any) -> None:
        while True:
            batch = await reader.batch()
            if batch:
                with suppress(LogUnavailable):
                    reader.done(batch)
                await workers._handle_batch(name, lane, batch, writer, handle)

    return run_worker


DEFECTS: dict[str, Defect] = {
    "sweep_in_three_steps": Defect(
        "sweeper ownership: look, count and strike off are one step",
        "EXISTS, INCR and ZREM of a sweep are three calls: two sweepers both give the place back", 600, first=150,
        python=((StoreLine, "run_many", _sweeps_in_three_steps),),
    ),
    "index_by_another_clock": Defect(
        "one clock: the store's",
        "the index says an earlier time than the hold; a sweep in between drops the entry, and the seat never returns",
        50,
        lua={
            "claim": (("deadlines[#deadlines + 1] = deadline_text", "deadlines[#deadlines + 1] = deadline - 5000"),),
            "sweep": (("s.index[id], s.changed = r.deadline,", "s.unindex[#s.unindex + 1], s.changed = id,"),),
        },
    ),
    "same_member_again": Defect(
        "an id that has ended stays ended",
        "a hold that ran out is taken again under the same name before the sweep: its first seat is lost for good",
        100, first=200,
        lua={
            "claim": (
                ("if r.state == 'E' then return r.note ~= 'undone' and", "if r.state == 'E' then return nil and"),
                ("local starts, lengths, count = parse_runs(r.runs)\n  local runs = {}\n  for n",
                 "if r.deadline > 0 and now >= r.deadline then return nil end\n"
                 "  local starts, lengths, count = parse_runs(r.runs)\n  local runs = {}\n  for n"),
            )
        },
        python=((hold, "hold_id", lambda original: lambda buyer, _key: original(buyer, "the only one")),
                (cart, "hold_id", lambda original: lambda buyer, _key: original(buyer, "the only one"))),
    ),
    "late_initialiser": Defect(
        "who opens compares first",
        "who opens the hall looks and then writes: a late one overwrites what was sold", 50,
        lua={
            "open": (("if found[1] then", "if false then"), ("KEYS[7]) > 0 then", "KEYS[7]) > 9 then")),
            "pool_open": (),
        },
    ),
    "convert_lets_go_first": Defect(
        "a hold becomes a booking without being let go",
        "the hold is deleted before the order is stored: somebody else may take the seats in between", 1000, first=100,
        python=((conversion.Converter, "_convert_one", _lets_go_first),),
    ),
    "counter_with_a_ttl": Defect(
        "nothing that counts expires",
        "the counter of a pool expires a while after its first sale, and the pool is sold again", 50,
        python=((StoreLine, "_run", _counter_with_a_ttl),),
    ),
    "release_of_what_has_ended": Defect(
        "a release compares the owner",
        "GET, then DEL: a release after the expiry deletes the lock of the next buyer", 150,
        lua={
            "settle": (("if r.state == 'E' then return 'ok' end\n  if r.state == 'S'", "if r.state == 'S'"),
                       COMPARES_NOTHING, ANY_OWNER),
        },
    ),
    "cart_outlives_its_seats": Defect(
        "one deadline for cart and seats",
        "the cart is extended and its seats are not", 600,
        python=((hold.Holder, "_extend_holds", _extends_the_cart_only),),
    ),
    "unlock_before_commit": Defect(
        "the store follows the commit",
        "the seats are unlocked before the transaction commits, which may still fail", 300,
        python=((expire, "cancel_rows", _unlocks_before_the_commit),),
    ),
    "claim_compares_nothing": Defect(
        "CAS in the claim",
        "a pipeline is called atomic and compares nothing: two buyers get the same seats", 20,
        lua={
            "claim": GIVES_AWAY_TWICE,
        },
    ),
    "rows_not_counted": Defect(
        "row count check in ticketing",
        "the store gives a seat away twice, and nobody counts how many tickets were free: a booking without seats", 300,
        lua={"claim": GIVES_AWAY_TWICE},
        says="tickets and bookings differ",
        python=((worker.ticket_store, "reserve", _counts_no_rows), (worker.ticket_store, "sell", _counts_no_rows)),
    ),
    "expiry_takes_what_is_paying": Defect(
        "PAYING fence",
        "expiry does not stop before a payment that is under way: the money meets a seat that is half released", 200,
        python=((statements_booking, "overdue", _takes_what_is_being_paid),
                (expire, "UNPAID", lambda _: (State.PENDING_PAYMENT, State.PAYING))),
    ),
    "as_many_as_found": Defect(
        "all or none",
        "named seats are kept as far as they are free: a couple gets one seat", 300, first=80,
        lua={"claim": (("if #free == 0 or (#taken > 0 and not partial) then", "if #free == 0 then"),)},
    ),
    "paid_before_sold": Defect(
        "tickets are sold before money is captured",
        "PAID is set before the seat is finalised", 20, python=((sell.TicketSeller, "sell", _paid_is_sold),),
    ),
    "no_outbox": Defect(
        "outbox",
        "what follows a commit is published by a process that may be dead by then", 50,
        python=((store, "write_outbox", _forgets_its_messages),),
    ),
    "relay_forgets_first": Defect(
        "the outbox keeps a message until the log has it",
        "the row is deleted before the log has said yes", 400, first=90,
        python=((relay.Relay, "relay_once", _forgets_first),),
    ),
    "offsets_first": Defect(
        "offsets are kept after the effects",
        "a batch counts as read before anything came of it", 400,
        python=((workers, "run_worker", _keeps_offsets_first),),
    ),
    "repeat_takes_again": Defect(
        "inbox: a claim is known by its booking",
        "a message that comes twice takes seats twice", 50,
        lua={"claim": (("if r.owner ~= q[2] then return", "if true then return nil end\n if false then return"),)},
    ),
    "every_key_is_new": Defect(
        "idempotency key",
        "a request that is repeated makes a second booking", 100, says="I9",
        python=((order_store, "place", _every_key_is_new),),
    ),
    "no_limit": Defect(
        "limit constraint",
        "a buyer with several devices has more seats than the seller allows", 300, first=100, says="I13",
        python=((order_store, "place", _no_limit),),
    ),
    "same_epoch": Defect(
        "epoch", "a store that was rebuilt or came back goes on in the epoch it was in", 400, loses=True,
        says="I8: 1:A-1  facts  booking",
        lua={"fence": (("tonumber(ARGV[1])) + 1)", "tonumber(ARGV[1])))"),)},
        python=((epochs, "advance", _same_epoch),),
    ),
    "nobody_is_stopped": Defect(
        "fence: an event stands still while it is rebuilt",
        "tickets change between the facts of a rebuild and the store that is made of them", 1000, first=60, loses=True,
        python=((ticket_store, "stop_event", _stops_nobody), (statements_ticketing, "epochs_of", _reads_and_goes_on)),
    ),
    "old_words": Defect(
        "tickets refuse words of an ended epoch",
        "seats that a store gave away and lost become tickets of two", 200, loses=True, first=1040, says="I8",
        python=((worker.TicketingWorker, "_lost", _takes_old_words),),
    ),
    "any_move": Defect(
        "webhook dedup: a payment makes each move of its table once",
        "a webhook that comes twice, or late, brings back what was decided", 100, first=420,
        python=((payment_store, "MOVES", _any_move),),
    ),
}  # fmt: skip


@cache
def script_with(defect: str, script: Script) -> Script:
    """The script as the defect has it."""
    edits = DEFECTS[defect].lua.get(script.name, ())
    text = script.source.decode()
    for old, new in edits:
        assert old in text, f"{script.name}.lua has changed: {old!r} is not in it any more"
        text = text.replace(old, new)
    return script if not edits else Script(script.name, text.encode(), f"{defect}:{script.name}".encode())


@contextmanager
def put_in(defect: str) -> Iterator[None]:
    """The product with the defect, everywhere its names were imported to; as before on the way out."""
    undo: list[tuple[Any, str, Any]] = []
    for where, name, other in DEFECTS[defect].python if defect else ():
        original = getattr(where, name)
        replaced = other(original)
        homes = [where] if isinstance(where, type) else [m for m in _ours() if getattr(m, name, None) is original]
        for home in homes:
            undo.append((home, name, original))
            setattr(home, name, replaced)
    _stand_in_again()
    try:
        yield
    finally:
        for home, name, original in undo:
            setattr(home, name, original)
        _stand_in_again()


def _stand_in_again() -> None:
    replace_stand_in(statements_booking.OVERDUE, statements_booking.overdue)
    replace_stand_in(statements_ticketing.EPOCHS, statements_ticketing.epochs_of)


def _ours() -> list[Any]:
    return [module for name, module in list(sys.modules.items()) if name.startswith(("aisle.", "tests.simulation"))]
