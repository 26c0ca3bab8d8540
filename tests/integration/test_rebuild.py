"""A rebuild makes the store equal to the facts, keeps the holds that fit them, and may be killed anywhere."""

import msgspec
import pytest

from aisle.reservation.claims import Claim, Code, Kind, Settlement, Verb
from aisle.reservation.facts import BadFacts, ClaimFact, EventFacts, HallFacts, facts_from_json, facts_to_json
from aisle.reservation.inspect import look_at_facts
from aisle.reservation.inventory import Hall
from aisle.reservation.keys import event_sections
from aisle.reservation.reads import who_has
from aisle.reservation.rebuild import rebuild
from aisle.reservation.rebuilt import RebuildRaced
from aisle.reservation.sweeper import sweep_once
from aisle.reservation.verify import verify
from aisle.store import Store
from tests.integration.lively_hall import A1, A2, EPOCH, KEY_NAMES, LivelyHall, lively_hall
from tests.invariants import assert_store_consistent


class Killed(BaseException):
    """The process ends here."""


async def content(hall: LivelyHall) -> dict[str, object]:
    """Seats, counters, owners and records of A-1 without what a rebuild is meant to change."""
    reads = {"seats_bf": "GET", "row_avail": "HGETALL", "seat_meta": "HGETALL", "holds": "HGETALL"}
    replies = await hall.store.call_many([(reads[name], hall.key(name)) for name in reads])
    stats = await hall.store.call("HMGET", hall.key("section_stats"), "available", "reserved", "sold", "unavailable")
    pairs = [r if isinstance(r, bytes) else dict(zip(r[::2], r[1::2], strict=True)) for r in replies]
    return dict(zip(reads, pairs, strict=True)) | {"stats": stats}


async def config_of(hall: LivelyHall, *fields: str) -> list[str]:
    return [value.decode() for value in await hall.store.call("HMGET", hall.key("section_config"), *fields)]


async def wipe(hall: LivelyHall) -> None:
    await hall.store.call_many([("DEL", key) for key in await hall.dump()])


async def test_a_healthy_event_is_the_same_after_a_rebuild_and_on_sale_again(config, metrics):
    async with lively_hall(config, metrics) as hall:
        before = await content(hall)
        [version] = await hall.store.call("HMGET", hall.key("section_stats"), "version")
        done = await rebuild(hall.store, await look_at_facts(hall.store, 1))
        assert done.findings == ()
        assert await content(hall) == before
        assert await config_of(hall, "epoch", "state", "price", "limit") == [str(EPOCH + 1), "open", "3000", "10"]
        assert int(await hall.store.call("HGET", hall.key("section_stats"), "version")) > int(version)
        await assert_store_consistent(hall.store, 1)


async def test_a_flushed_event_comes_back_from_its_facts_and_stays_closed(config, metrics):
    async with lively_hall(config, metrics) as hall:
        facts = await look_at_facts(hall.store, 1)
        await wipe(hall)
        done = await rebuild(hall.store, facts)
        await assert_store_consistent(hall.store, 1)
        assert (await verify(hall.store, 1, facts.of_any_epoch())).clean
        assert [one.on_sale for one in done.rebuilt] == [False, False], "nobody knows whether it was on sale"
        assert await config_of(hall, "epoch", "state") == [str(EPOCH + 1), "closed"]
        paid, free = await who_has(hall.store, A1, ["1-3", "5-1"])
        assert (paid.claim, paid.record.owner, free) == ("paid", "ann", None)


async def test_whoever_works_in_the_old_epoch_is_fenced(config, metrics):
    async with lively_hall(config, metrics) as hall:
        await rebuild(hall.store, await look_at_facts(hall.store, 1))
        before = await hall.dump()
        [claim] = await hall.inventory.claim(A1, [Claim(id="stale", owner="eve", size=1)], epoch=EPOCH)
        [settled] = await hall.inventory.settle(A1, [Settlement(Verb.RELEASE, "held", "cleo")], epoch=EPOCH)
        assert (claim.code, settled.code) == (Code.FENCED, Code.FENCED)
        assert await hall.dump() == before


@pytest.mark.parametrize("damaged", KEY_NAMES)
async def test_damage_to_any_key_is_mended(config, metrics, damaged):
    async with lively_hall(config, metrics) as hall:
        facts = await look_at_facts(hall.store, 1)
        await hall.store.call("DEL", hall.key(damaged))
        await hall.store.call("RPUSH", hall.key(damaged), "not what it should be")
        assert not (await verify(hall.store, 1)).clean
        assert (await rebuild(hall.store, facts)).findings == ()
        await assert_store_consistent(hall.store, 1)


async def test_a_hold_stays_until_its_deadline_and_its_owner_can_still_pay(config, metrics):
    async with lively_hall(config, metrics) as hall:
        done = await rebuild(hall.store, await look_at_facts(hall.store, 1))
        assert done.rebuilt[0].holds_kept == 1
        settled = await hall.inventory.convert(A1, ["held"], booking="bought", owner="cleo", epoch=EPOCH + 1)
        assert (settled.code, len(settled.seats)) == (Code.OK, 4)
        await assert_store_consistent(hall.store, 1)


async def test_a_hold_on_a_seat_that_is_sold_in_fact_ends(config, metrics):
    async with lively_hall(config, metrics) as hall:
        facts = await look_at_facts(hall.store, 1)
        [held] = [n for n in (await content(hall))["seat_meta"].items() if n[1] == b"held"][:1]
        seat = facts.halls[0].hall.shape.named(held[0].decode())
        sold = ClaimFact("winner", "zoe", True, 3000, (seat,))
        first = HallFacts(facts.halls[0].hall, (*facts.halls[0].claims, sold), EPOCH)
        done = await rebuild(hall.store, EventFacts(1, (first, facts.halls[1])))
        assert done.rebuilt[0].holds_dropped == ("held",)
        [who] = await who_has(hall.store, A1, [held[0].decode()])
        assert who.claim == "winner"
        settled = await hall.inventory.convert(A1, ["held"], booking="bought", owner="cleo", epoch=EPOCH + 1)
        assert settled.code is Code.EXPIRED
        await assert_store_consistent(hall.store, 1)


async def test_holds_are_dropped_when_asked(config, metrics):
    async with lively_hall(config, metrics) as hall:
        done = await rebuild(hall.store, await look_at_facts(hall.store, 1), drop_holds=True)
        assert (done.rebuilt[0].holds_kept, done.rebuilt[0].holds_dropped) == (0, ("held",))
        assert b"held" not in (await content(hall))["seat_meta"].values()
        await assert_store_consistent(hall.store, 1)


async def test_an_overdue_hold_is_not_brought_back(config, metrics):
    async with lively_hall(config, metrics) as hall:
        facts = await look_at_facts(hall.store, 1)
        line = (await hall.store.call("HGET", hall.key("holds"), "held")).decode().split("|")
        line[5] = "1760000000000"
        await hall.store.call("HSET", hall.key("holds"), "held", "|".join(line))
        await hall.store.call("ZADD", hall.key("locks:exp"), line[5], "held")
        await rebuild(hall.store, facts)
        ended = (await hall.store.call("HGET", hall.key("holds"), "held")).decode().split("|")
        assert (ended[0], ended[7]) == ("E", "expired")
        assert b"held" not in (await content(hall))["seat_meta"].values()
        await assert_store_consistent(hall.store, 1)


async def test_a_booking_that_is_not_in_the_facts_loses_its_seats_and_does_not_take_them_again(config, metrics):
    async with lively_hall(config, metrics) as hall:
        facts = await look_at_facts(hall.store, 1)
        assert (await hall.inventory.claim(A2, [Claim(id="lost", owner="eve", size=2)], epoch=EPOCH))[0].ok
        done = await rebuild(hall.store, facts)
        assert done.rebuilt[1].bookings_dropped == ("lost",)
        [again] = await hall.inventory.claim(A2, [Claim(id="lost", owner="eve", size=2)], epoch=EPOCH + 1)
        assert again.code is Code.EXPIRED, "a repeat of the old request must not take seats behind the facts' back"
        assert await hall.store.call("HGET", hall.key("section_stats", A2), "available") == b"10"
        await assert_store_consistent(hall.store, 1)


async def test_ended_records_survive_so_that_repeats_are_still_answered(config, metrics):
    async with lively_hall(config, metrics) as hall:
        await rebuild(hall.store, await look_at_facts(hall.store, 1))
        late = Claim(id="ended", owner="dan", kind=Kind.HOLD, size=1, hold_ms=1000)
        [again] = await hall.inventory.claim(A1, [late], epoch=EPOCH + 1)
        assert again.code is Code.EXPIRED
        assert await sweep_once(hall.store) == []


@pytest.mark.parametrize("calls", range(1, 13))  # the first only reads which epoch the places are in
async def test_killed_anywhere_it_leaves_old_or_new_off_sale_and_the_next_run_finishes(
    config, metrics, monkeypatch, calls
):
    """The n-th round trip of the rebuild is its last; then it is run again."""
    async with lively_hall(config, metrics) as hall:
        facts = await look_at_facts(hall.store, 1)
        before = await content(hall)
        done, send = 0, Store._guarded

        async def until_killed(self, sent):
            nonlocal done
            reply = await send(self, sent)
            done += 1
            if done > calls:
                raise Killed
            return reply

        with monkeypatch.context() as patch:
            patch.setattr(Store, "_guarded", until_killed)
            with pytest.raises(Killed):
                await rebuild(hall.store, facts)
        assert await content(hall) == before, "old and new are the same hall; half of either is not"
        [claim] = await hall.inventory.claim(A1, [Claim(id="early", owner="eve", size=1)], epoch=EPOCH)
        assert claim.code is Code.FENCED
        finished = await rebuild(hall.store, facts)
        assert finished.findings == ()
        assert await config_of(hall, "state") == ["open"], "it was on sale before the first, killed, run"
        await assert_store_consistent(hall.store, 1)


async def test_a_rebuild_that_follows_a_killed_one_takes_all_into_one_epoch(config, metrics, monkeypatch):
    """Otherwise the first subsection stays an epoch ahead for ever, and PostgreSQL cannot be told which one holds."""
    async with lively_hall(config, metrics) as hall:
        facts = await look_at_facts(hall.store, 1)
        run, rebuilt = Store.run, 0

        async def run_and_die(self, script, keys, args):
            nonlocal rebuilt
            reply = await run(self, script, keys, args)
            rebuilt += script.name == "rebuild"
            if rebuilt == 1:
                raise Killed
            return reply

        monkeypatch.setattr(Store, "run", run_and_die)
        with pytest.raises(Killed):
            await rebuild(hall.store, facts)
        monkeypatch.setattr(Store, "run", run)
        done = await rebuild(hall.store, facts)
        assert len(done.rebuilt) == 2
        assert len({one.epoch for one in done.rebuilt}) == 1
        await assert_store_consistent(hall.store, 1)


async def test_two_rebuilds_at_once_do_not_overwrite_each_other(config, metrics, monkeypatch):
    """The slower one has read its old state; the faster one is done, and a seat has been sold since."""
    async with lively_hall(config, metrics) as hall:
        facts = await look_at_facts(hall.store, 1)
        from aisle.reservation import rebuild as module

        clock = module._store_clock

        async def overtaken(store):
            monkeypatch.setattr(module, "_store_clock", clock)
            await rebuild(store, facts)
            [sold] = await hall.inventory.claim(A1, [Claim(id="since", owner="eve", size=1)], epoch=EPOCH + 2)
            assert sold.ok
            return await clock(store)

        monkeypatch.setattr(module, "_store_clock", overtaken)
        with pytest.raises(RebuildRaced):
            await rebuild(hall.store, facts)
        assert await hall.store.call("HEXISTS", hall.key("holds"), "since") == 1
        await assert_store_consistent(hall.store, 1)


async def test_a_subsection_that_the_facts_do_not_know_is_left_alone(config, metrics):
    async with lively_hall(config, metrics) as hall:
        facts = await look_at_facts(hall.store, 1)
        before = {key: value for key, value in (await hall.dump()).items() if b"{1:A-2}" in key}
        done = await rebuild(hall.store, EventFacts(1, facts.halls[:1]))
        assert done.unknown == (A2,)
        assert {key: value for key, value in (await hall.dump()).items() if b"{1:A-2}" in key} == before


async def test_an_empty_hall_that_the_store_never_saw_is_created(config, metrics):
    async with lively_hall(config, metrics) as hall:
        await wipe(hall)
        from aisle.reservation.keys import Place
        from aisle.reservation.subsection import Subsection

        new = Hall(Place(9, "Z", 1), Subsection(25, 20, frozenset({499})), 100, 6, rank=4, blocked=frozenset({0}))
        await rebuild(hall.store, EventFacts(9, (HallFacts(new),)))
        await assert_store_consistent(hall.store, 9)
        assert await hall.store.call("ZSCORE", event_sections(hall.store.prefix, 9), "9:Z-1") == b"4"


async def test_a_sold_out_subsection_of_ten_thousand_seats_is_rebuilt(config, metrics):
    from aisle.reservation.keys import Place
    from aisle.reservation.subsection import Subsection

    hall = Hall(Place(4, "X", 1), Subsection(20, 500), 100, 10)
    claims = tuple(ClaimFact(f"b{n}", f"o{n}", n % 2 == 0, 100, (2 * n, 2 * n + 1)) for n in range(5000))
    facts = EventFacts(4, (HallFacts(hall, claims),))
    async with lively_hall(config, metrics) as lively:
        done = await rebuild(lively.store, facts)
        assert done.findings == ()
        assert (await verify(lively.store, 4, facts)).seats == 10_000


async def test_facts_survive_the_way_through_a_file(config, metrics):
    async with lively_hall(config, metrics) as hall:
        facts = await look_at_facts(hall.store, 1)
        assert facts_from_json(facts_to_json(facts)) == facts


SUBSECTION = {"place": "1:A-1", "rows": 2, "seats_per_row": 3, "price": 1, "limit": 2}
CLAIM = {"id": "a", "owner": "b", "state": "sold", "price": 1, "seats": ["1-1"]}


@pytest.mark.parametrize(
    ("subsections", "reason"),
    [
        ([{**SUBSECTION, "place": "2:A-1"}], "not one of event 1"),
        ([SUBSECTION, SUBSECTION], "named twice"),
        ([{**SUBSECTION, "rows": 0}], "rows must be at least 1"),
        ([{**SUBSECTION, "limit": 7}], "a claim may take 1 to 6 seats"),
        ([{**SUBSECTION, "price": -1}], "whole number of minor units"),
        ([{**SUBSECTION, "place": "1:A-{1}"}], "is not a place"),
        ([{**SUBSECTION, "blocked": ["3-1"]}], "no seat 3-1"),
        ([{**SUBSECTION, "claims": [{**CLAIM, "seats": []}]}], "lacks a proper id, owner or seat"),
        ([{**SUBSECTION, "claims": [{**CLAIM, "id": "a|b"}]}], "lacks a proper id, owner or seat"),
        ([{**SUBSECTION, "claims": [CLAIM, {**CLAIM, "id": "c"}]}], "seat 1-1 of booking c is also of booking a"),
        ([{**SUBSECTION, "blocked": ["1-1"], "claims": [CLAIM]}], "is also a blocked seat"),
        ([{**SUBSECTION, "claims": [{**CLAIM, "state": "lost"}]}], "Invalid enum value 'lost'"),
        ([{**SUBSECTION, "colour": "red"}], "unknown field"),
    ],
)
def test_facts_that_contradict_themselves_are_refused(subsections, reason):
    with pytest.raises(BadFacts, match=reason):
        facts_from_json(msgspec.json.encode({"event": 1, "subsections": subsections}))
