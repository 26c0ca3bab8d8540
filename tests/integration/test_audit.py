"""The audit trail: each deed makes exactly one row, in its transaction; whoever changes one afterwards is found."""

import asyncio
import json
import secrets
from contextlib import contextmanager

import asyncpg
import pytest

from aisle.accounts.account import Role
from aisle.audit import Deed, note, verify
from aisle.migrate import migrate
from tests.conftest import with_settings
from tests.integration.visitors import GOOD_PASSWORD, Visitor, new_email
from tests.people import a_hall, expect, new_key, refused
from tests.running import as_environment, run_aisle

WRITERS = 50


@pytest.fixture(scope="module")
def settings():
    return {"logins_per_email": 1_000_000}


def rows(stage):
    return [tuple(row) for row in stage.fetch("select what, actor::text, subject from audit.deeds order by number")]


@contextmanager
def one_more_row(stage, deed, actor, subject=None):
    before = len(rows(stage))
    yield
    added = rows(stage)[before:]
    assert [(what, who) for what, who, _ in added] == [(deed.value, actor)]
    if subject is not None:
        assert added[0][2] == str(subject)


def test_accounts_leave_one_row_a_deed(stage):
    email = new_email()
    with Visitor(stage.address) as ana:
        before = len(rows(stage))
        account = expect(201, ana.register(email))["id"]
        assert rows(stage)[before:] == [("account_created", account, account)]
        with one_more_row(stage, Deed.LOGIN_REFUSED, account):
            assert ana.log_in(email, password="a wrong password").status_code == 401
        with one_more_row(stage, Deed.LOGIN_REFUSED, None):
            assert ana.log_in(new_email()).status_code == 401
        with one_more_row(stage, Deed.LOGGED_IN, account):
            assert ana.log_in(email).status_code == 201
        with one_more_row(stage, Deed.TOKEN_MADE, account):
            token = expect(201, ana.post("/tokens", {"name": "till"}))
        with one_more_row(stage, Deed.TOKEN_REVOKED, account, token["id"]):
            assert ana.delete(f"/tokens/{token['id']}").status_code == 204
        with one_more_row(stage, Deed.LOGGED_OUT_EVERYWHERE, account):
            assert ana.delete("/sessions").status_code == 204
    told = json.dumps([dict(row) for row in stage.fetch("select what, subject, detail from audit.deeds")])
    assert email not in told, "ids only"


def test_staff_are_created_and_log_in_with_a_row(stage):
    email = new_email()
    before = len(rows(stage))
    done = run_aisle(
        "account", "create", "--email", email, "--role", "door",
        env=as_environment(stage.config), typed=GOOD_PASSWORD,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [(what, actor, account)] = rows(stage)[before:]
    assert (what, actor) == ("account_created", None)
    with Visitor(stage.address) as door, one_more_row(stage, Deed.LOGGED_IN, account):
        assert door.log_in(email).status_code == 201
    [detail] = stage.fetch("select detail from audit.deeds order by number desc limit 1")
    assert json.loads(detail[0]) == {"role": "door"}


def test_a_sellers_deeds_leave_one_row_each(stage, seller):
    event = seller.creates(a_hall(("A", 3000, 4, 8)))
    with one_more_row(stage, Deed.SALE_OPENED, seller.id, event):
        expect(200, seller.post(f"/events/{event}/open"))
    with one_more_row(stage, Deed.PRICES_CHANGED, seller.id, event):
        expect(200, seller.send("PATCH", f"/events/{event}", json={"prices": {"A": 3100}}))
    before = len(rows(stage))
    expect(200, seller.send("PATCH", f"/events/{event}", json={"prices": {"A": 3100}, "name": "Same price"}))
    expect(200, seller.post(f"/events/{event}/open"))
    refused(404, "unknown_section", seller.send("PATCH", f"/events/{event}", json={"prices": {"Z": 1}}))
    assert len(rows(stage)) == before, "nothing changed, so nothing was done"
    with one_more_row(stage, Deed.SALES_EXPORTED, seller.id, event):
        assert seller.get(f"/events/{event}/sales.csv").status_code == 200
    door = stage.staff(Role.DOOR)
    [(email,)] = stage.fetch("select email from accounts.accounts where id = $1::text::uuid", door.id)
    with one_more_row(stage, Deed.DOOR_STAFF_GRANTED, seller.id, event):
        expect(200, seller.send("PUT", f"/events/{event}/door-staff", json={"email": email}))
    with one_more_row(stage, Deed.DOOR_STAFF_WITHDRAWN, seller.id, event):
        assert seller.send("DELETE", f"/events/{event}/door-staff/{door.id}").status_code == 204
    with one_more_row(stage, Deed.SALE_CLOSED, seller.id, event):
        expect(200, seller.post(f"/events/{event}/close"))


def test_refunds_leave_one_row_each_and_a_repeat_none(stage, seller, buyer):
    event = seller.opens(a_hall(("A", 3000, 4, 8)))
    bookings = [buyer.books(event, 2) for _ in range(2)]
    for booking in bookings:
        buyer.waits_for(booking, "PENDING_PAYMENT")
        buyer.pays(booking)
        buyer.waits_for(booking, "PAID")
    with one_more_row(stage, Deed.REFUNDED, buyer.id, bookings[0]):
        expect(200, buyer.post(f"/bookings/{bookings[0]}/refund", key=new_key()))
        expect(200, buyer.post(f"/bookings/{bookings[0]}/refund", key=new_key()))
    with one_more_row(stage, Deed.REFUNDED, seller.id, bookings[1]):
        expect(200, seller.post(f"/seller/bookings/{bookings[1]}/refund", {}, key=new_key()))
    refused(403, "forbidden", buyer.get("/ops/audit"))
    operator = stage.staff(Role.OPERATOR)
    shown = expect(200, operator.get("/ops/audit", limit=1))
    assert [(one["what"], one["subject"]) for one in shown["items"]] == [("refunded", bookings[1])]
    [earlier] = expect(200, operator.get("/ops/audit", limit=1, before=shown["next"]))["items"]
    assert earlier["subject"] == bookings[0]
    stage.settle(event)


def test_operators_deeds_leave_one_row_each(stage, seller):
    event = seller.opens(a_hall(("A", 3000, 4, 8)))
    env = as_environment(stage.config)
    with one_more_row(stage, Deed.STORE_REBUILT, None, event):
        assert run_aisle("rebuild", "--event", str(event), env=env).returncode == 0
    with one_more_row(stage, Deed.TICKET_KEY_MADE, None):
        assert run_aisle("ticket-keys", "rotate", env=env).returncode == 0
    key = stage.fetch("select id from ticketing.ticket_keys order by created_at desc limit 1")[0]["id"]
    with one_more_row(stage, Deed.TICKET_KEY_REVOKED, None, key):
        assert run_aisle("ticket-keys", "revoke", key, env=env).returncode == 0


async def fill(url: str, count: int) -> None:
    connection = await asyncpg.connect(url)
    for number in range(count):
        await note(connection, Deed.REFUNDED, actor=None, subject=number, detail={"seats": number, "why": "Grüße\n"})
    await connection.close()


async def test_fifty_writers_at_once_make_one_chain(stage):
    """Without the lock on the head two of them take the same number, and the primary key refuses one."""
    pool = await asyncpg.create_pool(stage.config.database_url, min_size=WRITERS, max_size=WRITERS)
    before = await pool.fetchval("select number from audit.head")

    async def write(writer: int) -> None:
        for turn in range(4):
            async with pool.acquire() as connection, connection.transaction():
                await note(connection, Deed.PRICES_CHANGED, actor=None, subject=f"{writer}-{turn}")

    await asyncio.gather(*(write(writer) for writer in range(WRITERS)))
    async with pool.acquire() as connection:
        verdict = await verify(connection)
        assert (verdict.bad, verdict.rows) == (None, before + WRITERS * 4)
        # What is rolled back leaves no gap.
        transaction = connection.transaction()
        await transaction.start()
        await note(connection, Deed.REFUNDED, actor=None)
        await transaction.rollback()
        assert (await verify(connection)).rows == before + WRITERS * 4
    await pool.close()


async def test_two_writers_without_the_lock_would_break_the_chain(stage):
    """The same function without `for update`, to see that the test above can fail."""
    connection = await asyncpg.connect(stage.config.database_url)
    body = await connection.fetchval("select pg_get_functiondef('audit.note'::regproc)")
    unguarded = body.replace("audit.note(", "audit.note_unguarded(").replace("audit.head for update", "audit.head")
    await connection.execute(unguarded)
    pool = await asyncpg.create_pool(stage.config.database_url, min_size=8, max_size=8)

    async def write() -> None:
        await pool.execute("select audit.note_unguarded('refunded', null, '', ''), pg_sleep(0.05)")

    results = await asyncio.gather(*(write() for _ in range(8)), return_exceptions=True)
    assert any(isinstance(result, asyncpg.UniqueViolationError) for result in results)
    await connection.execute("drop function audit.note_unguarded")
    await pool.close()
    await connection.close()


TAMPERED = {
    "a word": "update audit.deeds set subject = '9' where number = 2",
    "an amount": "update audit.deeds set detail = replace(detail, '1', '2') where number = 2",
    "a moment": "update audit.deeds set at = at + interval '1 microsecond' where number = 2",
    "a row taken out": "delete from audit.deeds where number = 2",
    "a row and what follows": "delete from audit.deeds where number >= 2",
    "another row in its place": """
        update audit.deeds d set what = o.what, subject = o.subject, detail = o.detail, digest = o.digest
        from audit.deeds o where d.number = 2 and o.number = 3""",
}


async def test_tampering_is_found_at_its_row(config, fresh_database_url):
    config = with_settings(config, database_url=fresh_database_url)
    await migrate(config)
    await fill(config.database_url, 4)
    connection = await asyncpg.connect(config.database_url)
    for what, statement in TAMPERED.items():
        with pytest.raises(asyncpg.RaiseError, match="only ever added to"):
            await connection.execute(statement)
        transaction = connection.transaction()
        await transaction.start()
        # Who owns the database can go past the trigger, but not past the seals.
        await connection.execute("set local session_replication_role = replica")
        await connection.execute(statement)
        assert (await verify(connection)).bad == 2, what
        await transaction.rollback()
        assert (await verify(connection)).bad is None, what
    whole = run_aisle("audit", "verify", env=as_environment(config))
    assert (whole.returncode, "4 rows, every seal fits" in whole.stdout) == (0, True), whole.stderr
    await connection.execute("set session_replication_role = replica")
    await connection.execute(TAMPERED["a word"])
    broken = run_aisle("audit", "verify", "--expect", whole.stdout.split()[-1], env=as_environment(config))
    assert (broken.returncode, broken.stdout) == (1, "broken at row 2: row 2 is not what was sealed\n")
    await connection.close()


async def test_a_chain_that_was_written_anew_does_not_go_through_a_head_that_was_kept(config, fresh_database_url):
    await migrate(with_settings(config, database_url=fresh_database_url))
    await fill(fresh_database_url, 3)
    connection = await asyncpg.connect(fresh_database_url)
    kept = (await verify(connection)).head
    await connection.execute("set session_replication_role = replica")
    await connection.execute("delete from audit.deeds where number > 1")
    await connection.execute(
        "update audit.head set number = 1, digest = (select digest from audit.deeds where number = 1)"
    )
    await connection.execute("set session_replication_role = origin")
    await note(connection, Deed.LOGGED_IN, actor=None)
    assert (await verify(connection)).bad is None, "the chain alone cannot know"
    verdict = await verify(connection, expected=kept)
    assert (verdict.bad, verdict.why) == (3, "the chain does not go through the head given")
    await connection.close()


def test_bad_arguments_are_one_clear_refusal(config):
    for arguments in (["verify", "--expect", "7"], ["tail", "-n", "0"]):
        done = run_aisle("audit", *arguments, env=as_environment(config))
        assert (done.returncode, "Traceback" in done.stderr) == (2, False)


def test_the_tail_is_shown(stage):
    secret = secrets.token_hex(4)

    async def add() -> None:
        connection = await asyncpg.connect(stage.config.database_url)
        await note(connection, Deed.REFUNDED, actor=None, subject=secret)
        await connection.close()

    asyncio.run(add())
    done = run_aisle("audit", "tail", "-n", "1", env=as_environment(stage.config))
    assert f"refunded  -  {secret}" in done.stdout
