"""A buyer's own data: all of it as a file; and erased, so that no database, store or log knows the person any more."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
import redis

from aisle.audit import verify
from aisle.privacy.retain import forget_old
from tests.integration.visitors import GOOD_PASSWORD, Visitor, new_email
from tests.people import Person, a_hall, expect, new_key, refused


@pytest.fixture(scope="module")
def event(seller):
    return seller.opens(a_hall(("A", 3000, 10, 10)))


@pytest.fixture
def ana(stage):
    """Logged in as in a browser, with a program's token besides."""
    with Visitor(stage.address) as browser, Person(stage.address) as program:
        browser.email = new_email()
        program.id = expect(201, browser.register(browser.email))["id"]
        expect(201, browser.log_in(browser.email))
        program.token = expect(201, browser.post("/tokens", {"name": f"till of {browser.email}"}))["token"]
        yield browser, program


def everything_kept(stage) -> bytes:
    """Every row of every table, every key of the store with its value, and what the process wrote into its log."""
    tables = stage.fetch(
        "select format('%I.%I', schemaname, tablename) as name from pg_tables "
        "where schemaname not in ('pg_catalog', 'information_schema')"
    )
    kept = [row[0].encode() for t in tables for row in stage.fetch(f"select t::text from {t['name']} t")]  # noqa: S608
    with redis.Redis.from_url(stage.config.store_url) as store:
        # Keys of the log begin with the whole name of the stage, keys of the product with the end of it.
        for key in store.scan_iter(match=f"*{stage.config.store_prefix.rstrip(':')}*", count=10_000):
            kept += [key, store.dump(key) or b""]
    return b"\n".join([*kept, stage.output.read_bytes()])


def paid_booking(program, event):
    booking = program.books(event, 2)
    program.waits_for(booking, "PENDING_PAYMENT")
    program.pays(booking)
    program.waits_for(booking, "PAID")
    return booking


def test_a_buyer_gets_everything_that_is_kept(stage, ana, event):
    browser, program = ana
    booking = paid_booking(program, event)
    answer = browser.get("/me/data")
    assert answer.headers["content-disposition"] == 'attachment; filename="my-data.json"'
    data = expect(200, answer)
    assert [account["email"] for account in data["account"]] == [browser.email]
    assert [(one["id"], one["state"], one["total"]) for one in data["bookings"]] == [(booking, "PAID", 6000)]
    assert data["bookings"][0]["parts"][0]["section"] == "A"
    assert [(one["booking"], one["amount"], one["state"]) for one in data["payments"]] == [(booking, 6000, "CAPTURED")]
    assert [one["name"] for one in data["tokens"]] == [f"till of {browser.email}"]
    assert "data_exported" in [deed["what"] for deed in data["deeds"]]
    assert data["more"] == []
    assert "argon2" not in answer.text, "a password's hash is nobody's to read"


def test_a_token_gets_no_export_and_erases_nothing(ana):
    _, program = ana
    refused(403, "session_required", program.get("/me/data"))
    refused(403, "session_required", program.post("/me/erase", {"password": GOOD_PASSWORD}))
    assert program.get("/me").status_code == 200


def test_a_wrong_password_erases_nothing(ana):
    browser, _ = ana
    refused(401, "wrong_credentials", browser.post("/me/erase", {"password": "not my password"}))
    assert browser.get("/me").status_code == 200


def test_a_booking_under_way_is_settled_first(stage, ana, event):
    browser, program = ana
    booking = program.books(event, 1)
    program.waits_for(booking, "PENDING_PAYMENT")
    refused(409, "bookings_under_way", browser.post("/me/erase", {"password": GOOD_PASSWORD}))
    assert expect(200, browser.get("/me"))["email"] == browser.email
    expect(200, program.post(f"/bookings/{booking}/cancel"))


def test_after_an_erasure_nothing_knows_the_person(stage, ana, event, seller):
    browser, program = ana
    paid = paid_booking(program, event)
    expect(201, program.post(f"/events/{event}/holds", {"quantity": 2}, key=new_key()))
    before = everything_kept(stage)
    assert browser.email.encode() in before, "else this test could not fail"
    assert b"ticket-reserving-request-in-kvrocks" in before, "the log is looked at, too"
    assert browser.post("/me/erase", {"password": GOOD_PASSWORD}).status_code == 204
    kept = everything_kept(stage)
    assert browser.email.encode() not in kept
    assert browser.email.partition("@")[0].encode() not in kept
    assert program.token.encode() not in kept
    for again in (browser.get("/me"), program.get("/me"), browser.log_in(browser.email)):
        assert again.status_code == 401
    with redis.Redis.from_url(stage.config.store_url) as store:
        assert not store.exists(f"{stage.config.store_prefix}cart:{program.id}")
    # The books stay, under an id that leads to nobody.
    [row] = stage.fetch(
        "select state, total, buyer::text as buyer from booking.bookings where id = $1::text::uuid", paid
    )
    assert tuple(row) == ("PAID", 6000, program.id)
    [payment] = stage.fetch("select method, amount from payment.payments where booking = $1::text::uuid", paid)
    assert tuple(payment) == ("erased", 6000)
    # And the seller can still give the money back.
    expect(200, seller.post(f"/seller/bookings/{paid}/refund", {}, key=new_key()))
    stage.settle(event)
    assert stage.look(lambda database, _: chain_of(database)) is None


async def chain_of(database):
    async with database.acquire() as connection:
        return (await verify(connection)).bad


def test_erasing_twice_at_once_is_done_once(stage, ana):
    browser, program = ana

    async def twice() -> list[int]:
        asked = (asyncio.to_thread(browser.post, "/me/erase", {"password": GOOD_PASSWORD}) for _ in range(3))
        return sorted(answer.status_code for answer in await asyncio.gather(*asked))

    statuses = asyncio.run(twice())
    assert statuses[0] == 204
    assert set(statuses) <= {204, 401}
    deeds = stage.fetch(
        "select what from audit.deeds where actor = $1::text::uuid and what = 'account_erased'", program.id
    )
    assert len(deeds) == 1


def test_old_bookings_that_came_to_nothing_are_forgotten_and_paid_ones_stay(stage, ana, event):
    _, program = ana
    paid = paid_booking(program, event)
    cancelled = program.books(event, 1)
    program.waits_for(cancelled, "PENDING_PAYMENT")
    expect(200, program.post(f"/bookings/{cancelled}/cancel"))
    program.waits_for(cancelled, "CANCELLED")
    stage.settle(event)
    now = datetime.now(UTC)
    assert stage.look(lambda database, _: forget_old(database, days=1, now=now)) == 0, "not old yet"
    forgotten = stage.look(lambda database, _: forget_old(database, days=1, now=now + timedelta(days=2)))
    assert forgotten >= 1
    assert program.get(f"/bookings/{cancelled}").status_code == 404
    assert program.booking(paid)["state"] == "PAID"
