"""Input that makes no sense and stores that cannot serve: a typed refusal or error, and not one key changed.

`everything` is a DUMP of all seven keys, so that "nothing changed" means byte for byte.
"""

import pytest

from aisle.errors import StoreScriptFailed, StoreUnavailable
from aisle.reservation.claims import Claim, Code, Kind, Rung, Settlement, Verb
from aisle.reservation.inventory import SWEEP, Hall, Inventory
from aisle.reservation.keys import BadName, Place
from aisle.reservation.subsection import BadSeat, BadSubsection, Subsection
from aisle.reservation.sweeper import sweep_keys
from aisle.store import open_store
from tests.conftest import with_settings
from tests.integration.inventory_duel import now_ms
from tests.integration.inventory_model import Record, audit, look

pytest_plugins = ["tests.integration.stores"]

EPOCH = 1
PLACE = Place(1, "A", 1)
SHAPE = Subsection(25, 4)
TIMES = {"more_ms": 900_000, "cap_ms": 1_800_000}
KEYS = ["seats_bf", "section_config", "section_stats", "row_avail", "seat_meta", "holds", "locks:exp"]


async def furnished(store):
    """A hall with a live hold, an overdue one, a booking, a sold one and an ended one: every verb has work to do."""
    inventory = Inventory(store)
    await inventory.open([Hall(PLACE, SHAPE, price=100, limit=6)], epoch=EPOCH)
    await inventory.switch([PLACE], epoch=EPOCH, on_sale=True)
    claims = [Claim(id=n, owner="o", size=2, kind=Kind.HOLD, hold_ms=60_000) for n in ("held", "late")]
    claims += [Claim(id=n, owner="o", size=2) for n in ("booked", "sold", "ended")]
    assert all(outcome.ok for outcome in await inventory.claim(PLACE, claims, epoch=EPOCH))
    settlements = [Settlement(Verb.CONFIRM, "sold", "o"), Settlement(Verb.RELEASE, "ended", "o")]
    assert all(settled.ok for settled in await inventory.settle(PLACE, settlements, epoch=EPOCH))
    past, keys = now_ms() - 5000, inventory.keys(PLACE)
    late = (await look(store, PLACE, SHAPE)).records["late"]
    await store.call("HSET", keys[5], "late", Record(**(vars(late) | {"deadline": past})).text)
    await store.call("ZADD", keys[6], past, "late")
    return inventory


async def everything(store, inventory):
    return await store.call_many([("DUMP", key) for key in inventory.keys(PLACE)])


def operations(inventory, store, epoch=EPOCH):
    """Every operation that writes, and the keys it does not need."""
    hold = Claim(id="new", owner="o", size=2, kind=Kind.HOLD, hold_ms=60_000)

    def settle(verb, name):
        return lambda: inventory.settle(PLACE, [Settlement(verb, name, "o")], epoch=epoch)

    return {
        "claim": (lambda: inventory.claim(PLACE, [Claim(id="new", owner="o", size=2)], epoch=epoch), {"locks:exp"}),
        "hold": (lambda: inventory.claim(PLACE, [hold], epoch=epoch), set()),
        "release": (settle(Verb.RELEASE, "booked"), set()),
        "confirm": (settle(Verb.CONFIRM, "held"), {"row_avail"}),
        "reopen": (settle(Verb.REOPEN, "sold"), set()),
        "extend": (
            lambda: inventory.extend(PLACE, "held", owner="o", operation="x", **TIMES, epoch=epoch),
            {"seats_bf", "section_stats", "row_avail", "seat_meta"},
        ),
        "convert": (
            lambda: inventory.convert(PLACE, ["held"], booking="made", owner="o", epoch=epoch),
            {"row_avail"},
        ),
        "sweep": (lambda: store.run(SWEEP, sweep_keys(store.prefix, PLACE), (10,)), set()),
        "switch": (lambda: inventory.switch([PLACE], epoch=epoch, on_sale=False), set(KEYS) - {"section_config"}),
    }


OPERATIONS = list(operations(None, None))


@pytest.mark.parametrize(
    "section", ["", "A:1", "A{", "}A", "A-1", "A B", "A\n", "A\r\nDEL x", "\x00", "\x1b[2J", "Ä", "A" * 33, None, 7]
)
def test_a_section_that_could_forge_a_key_is_no_place(section):
    with pytest.raises(BadName):
        Place(1, section, 1)


@pytest.mark.parametrize(("event", "subsection"), [(0, 1), (-1, 1), (1.5, 1), (1, 0), (1, -2), (1, 1.5), (10**18, 1)])
def test_numbers_that_cannot_be_an_event_or_a_subsection_are_no_place(event, subsection):
    with pytest.raises(BadName):
        Place(event, "A", subsection)


@pytest.mark.parametrize("text", ["", "1:A", "1:A-1:x", "1:A-1\n", "{1:A-1}", "x:A-1", "1:A:-1", "1:A-1 "])
def test_text_that_names_no_place_is_not_read_as_one(text):
    with pytest.raises(BadName):
        Place.parse(text)


@pytest.mark.parametrize("name", ["1-0", "0-1", "26-1", "25-5", "05-1", "1-1-1", "-1-1", "1.5-1", "", "A-1", "1-1\n"])
def test_seat_zero_row_26_of_25_and_the_like_name_no_seat(name):
    with pytest.raises(BadSeat):
        SHAPE.named(name)


@pytest.mark.parametrize(("rows", "width"), [(0, 4), (-1, 4), (4, 0), (4, 501), (10_001, 1), (101, 100)])
def test_a_hall_of_impossible_size_is_refused(rows, width):
    with pytest.raises(BadSubsection):
        Subsection(rows, width)


MALFORMED_CLAIMS = {
    "nobody": {"size": 0},
    "fewer than nobody": {"size": -2},
    "a person and a half": {"size": 1.5},
    "two as text": {"size": "2"},
    "true": {"size": True},
    "10,001 people": {"size": 10_001},
    "no number": {"size": None},
    "more who need accessible seats than people": {"size": 2, "accessible": 3},
    "fewer than none who need them": {"size": 2, "accessible": -1},
    "no seats named": {"seats": ()},
    "a seat before the first": {"seats": (-1,)},
    "seat 10,000": {"seats": (10_000,)},
    "half a seat": {"seats": (0.5,)},
    "a seat twice": {"seats": (1, 1)},
    "10,001 seats": {"seats": tuple(range(10_001))},
    "an id with a bar": {"size": 1, "id": "a|b"},
    "an id with a line": {"size": 1, "id": "a\n"},
    "an empty id": {"size": 1, "id": ""},
    "an id of 65": {"size": 1, "id": "a" * 65},
    "bytes for an id": {"size": 1, "id": b"a"},
    "an owner with a bar": {"size": 1, "owner": "L|b"},
    "a hold of no time": {"size": 1, "kind": Kind.HOLD, "hold_ms": 0},
    "a hold that ended before": {"size": 1, "kind": Kind.HOLD, "hold_ms": -5},
    "a hold of 25 hours": {"size": 1, "kind": Kind.HOLD, "hold_ms": 90_000_000},
    "a hold of half a millisecond": {"size": 1, "kind": Kind.HOLD, "hold_ms": 0.5},
    "an unknown kind": {"size": 1, "kind": "x"},
    "no rung": {"size": 1, "worst": Rung.NAMED},
}


@pytest.mark.parametrize("fields", MALFORMED_CLAIMS.values(), ids=MALFORMED_CLAIMS)
async def test_a_malformed_claim_is_refused_with_a_reason_and_its_neighbours_are_served(config, metrics, fields):
    async with open_store(config, metrics) as store:
        inventory = await furnished(store)
        before = await everything(store, inventory)
        bad = Claim(**({"id": "new", "owner": "o"} | fields))
        [refused] = await inventory.claim(PLACE, [bad], epoch=EPOCH)
        assert refused.code is Code.INVALID
        assert refused.detail
        assert await everything(store, inventory) == before
        mixed = await inventory.claim(PLACE, [bad, Claim(id="good", owner="o", size=1), bad], epoch=EPOCH)
        assert [outcome.code for outcome in mixed] == [Code.INVALID, Code.OK, Code.INVALID]


@pytest.mark.parametrize(
    "settlement",
    [
        Settlement("explode", "booked", "o"),
        Settlement(Verb.RELEASE, "boo|ked", "o"),
        Settlement(Verb.RELEASE, "booked", ""),
        Settlement(Verb.RELEASE, "booked", "o", "why | not"),
        Settlement(Verb.RELEASE, "booked", "o", "released", (0,)),
        Settlement(Verb.REOPEN, "sold", "o", "refunded", ()),
        Settlement(Verb.REOPEN, "sold", "o", "refunded", (-1,)),
        Settlement(Verb.REOPEN, "sold", "o", "refunded", (6, 6)),
    ],
    ids=str,
)
async def test_a_malformed_settlement_is_refused_with_a_reason(config, metrics, settlement):
    async with open_store(config, metrics) as store:
        inventory = await furnished(store)
        before = await everything(store, inventory)
        [refused] = await inventory.settle(PLACE, [settlement], epoch=EPOCH)
        assert refused.code is Code.INVALID
        assert refused.detail
        assert await everything(store, inventory) == before


async def test_ids_that_are_none_are_refused_by_conversion_and_extension(config, metrics):
    async with open_store(config, metrics) as store:
        inventory = await furnished(store)
        before = await everything(store, inventory)
        for holds, booking in [(["held|x"], "b"), (["held"], "b b"), (["held"], "")]:
            with pytest.raises(BadName):
                await inventory.convert(PLACE, holds, booking=booking, owner="o", epoch=EPOCH)
        assert (await inventory.convert(PLACE, [], booking="b", owner="o", epoch=EPOCH)).code is Code.INVALID
        with pytest.raises(BadName):
            await inventory.extend(PLACE, "held", owner="o", operation="a|b", **TIMES, epoch=EPOCH)
        backwards = {"more_ms": -900_000, "cap_ms": 1_800_000}
        code, _ = await inventory.extend(PLACE, "held", owner="o", operation="x", **backwards, epoch=EPOCH)
        assert code is Code.LIMIT
        assert await everything(store, inventory) == before


async def test_more_seats_than_a_claim_may_take_are_refused_and_ten_thousand_allowed_ones_are_taken(config, metrics):
    async with open_store(config, metrics) as store:
        inventory = await furnished(store)
        before = await everything(store, inventory)
        greedy = [Claim(id="g1", owner="o", size=10_000), Claim(id="g2", owner="o", seats=tuple(range(10_000)))]
        assert {o.code for o in await inventory.claim(PLACE, greedy, epoch=EPOCH)} == {Code.LIMIT}
        assert await everything(store, inventory) == before

        big, shape = Place(1, "BIG", 1), Subsection(100, 100)
        await inventory.open([Hall(big, shape, price=1, limit=10_000)], epoch=EPOCH)
        await inventory.switch([big], epoch=EPOCH, on_sale=True)
        [all_of_them] = await inventory.claim(
            big, [Claim(id="all", owner="o", seats=tuple(range(10_000)))], epoch=EPOCH
        )
        assert len(all_of_them.seats) == 10_000
        view = await look(store, big, shape)
        assert audit(view, shape) == []
        assert view.stats["reserved"] == 10_000


async def test_a_batch_longer_than_a_script_can_take_changes_nothing(config, metrics):
    async with open_store(config, metrics) as store:
        inventory = await furnished(store)
        before = await everything(store, inventory)
        with pytest.raises(StoreScriptFailed):
            await inventory.claim(PLACE, [Claim(id=f"c{n}", owner="o", size=1) for n in range(9000)], epoch=EPOCH)
        with pytest.raises(StoreScriptFailed):
            await inventory.settle(PLACE, [Settlement(Verb.RELEASE, "booked", "o")] * 9000, epoch=EPOCH)
        assert await everything(store, inventory) == before


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("key", KEYS)
async def test_a_key_of_the_wrong_type_stops_an_operation_before_its_first_write(config, metrics, key, operation):
    async with open_store(config, metrics) as store:
        inventory = await furnished(store)
        spoilt = inventory.keys(PLACE)[KEYS.index(key)]
        await store.call("DEL", spoilt)
        await store.call("RPUSH", spoilt, "x")
        before = await everything(store, inventory)
        run, unneeded = operations(inventory, store)[operation]
        if key in unneeded:
            await run()
            assert await everything(store, inventory) != before
            return
        with pytest.raises(StoreScriptFailed) as failure:
            await run()
        assert failure.value.code == "WRONGTYPE"
        assert await everything(store, inventory) == before


@pytest.mark.parametrize(
    ("key", "operation"),
    [
        (key, name)
        for name, (_, unneeded) in operations(None, None).items()
        for key in ("seats_bf", "section_stats", "row_avail", "holds")
        # A new claim needs no record, and a sweep puts off an entry that has none.
        if key not in unneeded and not (key == "holds" and name in ("claim", "hold", "sweep"))
    ],
)
async def test_a_key_that_is_missing_is_drift_or_an_unknown_claim_and_nothing_changes(config, metrics, key, operation):
    async with open_store(config, metrics) as store:
        inventory = await furnished(store)
        await store.call("DEL", inventory.keys(PLACE)[KEYS.index(key)])
        before = await everything(store, inventory)
        run, _ = operations(inventory, store)[operation]
        if key == "holds":
            answer = await run()
            first = answer[0] if isinstance(answer, (list, tuple)) else answer
            assert getattr(first, "code", first) is Code.UNKNOWN
        else:
            with pytest.raises(StoreScriptFailed, match="DRIFT"):
                await run()
        assert await everything(store, inventory) == before


@pytest.mark.parametrize(
    ("key", "field", "value", "complaint"),
    [
        ("seat_meta", "7-3", "ghost", "seat 7-3 is available and has an owner"),
        ("row_avail", "7", 1, "row_avail of row 7"),
        ("section_stats", "available", 1, "section_stats counts fewer seats than the map has"),
        ("section_stats", "available", "many", "section_stats is incomplete"),
        ("section_config", "rows", 24, "seats_bf does not fit section_config"),
    ],
)
async def test_keys_that_contradict_the_seats_stop_a_claim_whole(config, metrics, key, field, value, complaint):
    async with open_store(config, metrics) as store:
        inventory = await furnished(store)
        await store.call("HSET", inventory.keys(PLACE)[KEYS.index(key)], field, value)
        before = await everything(store, inventory)
        with pytest.raises(StoreScriptFailed, match=f"DRIFT {complaint}"):
            await inventory.claim(PLACE, [Claim(id="new", owner="o", seats=(26, 27))], epoch=EPOCH)
        assert await everything(store, inventory) == before


async def test_a_record_that_cannot_be_read_is_drift(config, metrics):
    async with open_store(config, metrics) as store:
        inventory = await furnished(store)
        for name in ("held", "booked", "sold", "late"):
            await store.call("HSET", inventory.keys(PLACE)[5], name, "not a record")
        before = await everything(store, inventory)
        for name, (run, _) in operations(inventory, store).items():
            if name not in ("claim", "hold", "switch"):
                with pytest.raises(StoreScriptFailed, match="DRIFT a record cannot be read"):
                    await run()
        assert await everything(store, inventory) == before


async def test_leftovers_without_a_configuration_are_not_sold_as_a_new_hall(config, metrics):
    async with open_store(config, metrics) as store:
        inventory = await furnished(store)
        await store.call("DEL", inventory.keys(PLACE)[1])
        before = await everything(store, inventory)
        with pytest.raises(StoreScriptFailed, match="DRIFT keys of this subsection exist"):
            await inventory.open([Hall(PLACE, SHAPE, price=100, limit=6)], epoch=EPOCH)
        assert await everything(store, inventory) == before


async def test_a_stale_epoch_is_fenced_everywhere(any_config, metrics):
    async with open_store(any_config, metrics) as store:
        inventory = await furnished(store)
        before = await everything(store, inventory)
        for name, (run, _) in operations(inventory, store, epoch=EPOCH - 1).items():
            if name == "switch":
                with pytest.raises(LookupError, match="not in epoch 0"):
                    await run()
            elif name != "sweep":  # a sweeper serves no caller; it goes by the deadlines alone
                answer = await run()
                first = answer[0] if isinstance(answer, (list, tuple)) else answer
                assert getattr(first, "code", first) is Code.FENCED
        assert await everything(store, inventory) == before


async def test_a_place_that_does_not_exist_is_closed_and_stays_nonexistent(any_config, metrics):
    async with open_store(any_config, metrics) as store:
        inventory, nowhere = Inventory(store), Place(9, "Z", 9)
        [outcome] = await inventory.claim(nowhere, [Claim(id="a", owner="o", size=1)], epoch=EPOCH)
        [settled] = await inventory.settle(nowhere, [Settlement(Verb.RELEASE, "a", "o")], epoch=EPOCH)
        converted = await inventory.convert(nowhere, ["a"], booking="b", owner="o", epoch=EPOCH)
        extended, _ = await inventory.extend(nowhere, "a", owner="o", operation="x", **TIMES, epoch=EPOCH)
        assert {outcome.code, settled.code, converted.code, extended} == {Code.CLOSED}
        await store.run(SWEEP, sweep_keys(store.prefix, nowhere), (10,))
        with pytest.raises(LookupError, match="no such subsection"):
            await inventory.switch([nowhere], epoch=EPOCH, on_sale=True)
        assert await store.call_many([("EXISTS", key) for key in inventory.keys(nowhere)]) == [0] * 7


async def test_a_store_without_memory_refuses_every_change_whole_and_still_answers_readers(own_valkey, config, metrics):
    async with open_store(with_settings(config, store_url=own_valkey({}).url), metrics) as store:
        inventory = await furnished(store)
        before = await everything(store, inventory)
        await store.call("CONFIG", "SET", "maxmemory", "1")
        for run, _ in operations(inventory, store).values():
            with pytest.raises(StoreUnavailable, match="OOM"):
                await run()
        with pytest.raises(StoreUnavailable, match="OOM"):
            await inventory.open([Hall(Place(1, "B", 1), SHAPE, price=1, limit=1)], epoch=EPOCH)
        assert (await look(store, PLACE, SHAPE)).stats["total"] == SHAPE.seats
        assert await everything(store, inventory) == before
        await store.call("CONFIG", "SET", "maxmemory", "0")
        assert (await inventory.claim(PLACE, [Claim(id="new", owner="o", size=2)], epoch=EPOCH))[0].ok


async def test_a_server_that_became_a_replica_refuses_every_change_whole(own_valkey, config, metrics):
    async with open_store(with_settings(config, store_url=own_valkey({}).url), metrics) as store:
        inventory = await furnished(store)
        before = await everything(store, inventory)
        await store.call("REPLICAOF", "127.0.0.1", "1")
        for run, _ in operations(inventory, store).values():
            with pytest.raises(StoreUnavailable, match="READONLY"):
                await run()
        assert await everything(store, inventory) == before
        await store.call("REPLICAOF", "NO", "ONE")
        assert (await inventory.claim(PLACE, [Claim(id="new", owner="o", size=2)], epoch=EPOCH))[0].ok


async def test_a_server_that_forgot_its_scripts_gets_them_again_and_runs_each_once(own_valkey, config, metrics):
    async with open_store(with_settings(config, store_url=own_valkey({}).url), metrics) as store:
        inventory = await furnished(store)
        for name, (run, _) in operations(inventory, store).items():
            if name in ("confirm", "hold"):
                continue  # these would find their claim already converted, or taken
            before = await everything(store, inventory)
            await store.call("SCRIPT", "FLUSH")
            await run()
            assert await everything(store, inventory) != before, name
        view = await look(store, PLACE, SHAPE)
        assert audit(view, SHAPE) == []
        assert (view.stats["reserved"], view.stats["sold"]) == (4, 0)
