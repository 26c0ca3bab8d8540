"""Sell, back up, lose database and store, restore: tickets still open the door, and money paid later is given back."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import asyncpg
import pytest

from aisle.config import Config
from tests.conftest import with_settings
from tests.door import a_sold_show, buys, scan
from tests.payment.stripe_stand_in import stripe_stand_in
from tests.people import Person, expect
from tests.running import as_environment, run_aisle
from tests.stage import Stage, require_no_drift


def said(config: Config, *arguments: str, code: int = 0) -> str:
    run = run_aisle(*arguments, env=as_environment(config))
    assert run.returncode == code, run.stdout + run.stderr
    return run.stdout + run.stderr


@pytest.fixture(scope="module")
def restored(stage: Stage, seller: Person, buyer: Person, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A show with a paid booking from before the backup and one from after it; then everything is lost and restored."""
    folder = tmp_path_factory.mktemp("backups")
    show = a_sold_show(stage, seller, buyer)
    stage.settle(show.event)
    made = said(stage.config, "backup", str(folder))
    later = buys(stage, buyer, show.event, 3)
    stage.settle(show.event)
    stage.stop()
    bank = stage.fetch("select * from payment.sandbox_charges")
    stage.log.stop()  # it keeps its messages in the same store
    asyncio.run(wipe(stage.config.database_url))
    stage.look(wipe_store)
    stage.log.start()
    restored = said(stage.config, "restore", str(folder))
    # A bank does not forget what our backup does not know.
    asyncio.run(remember(stage.config.database_url, bank))
    stage.start()
    return SimpleNamespace(show=show, later=later, folder=folder, made=made, said=restored, config=stage.config)


async def wipe(url: str) -> None:
    connection = await asyncpg.connect(url)
    schemas = await connection.fetch("select nspname from pg_namespace where nspname !~ '^pg_|^information_schema$'")
    for row in schemas:
        await connection.execute(f'drop schema "{row["nspname"]}" cascade')
    await connection.execute("create schema public")
    await connection.close()


async def wipe_store(database: asyncpg.Pool, store: object) -> None:
    """Ours and the log's: the stage has given both the same name."""
    for pattern in (f"{store.prefix}*", f"{{{store.prefix.removesuffix(':')}}}:*"):
        await store.call("DEL", *await store.call("KEYS", pattern))


async def remember(url: str, bank: list[asyncpg.Record]) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("truncate payment.sandbox_charges")
    await connection.copy_records_to_table("sandbox_charges", schema_name="payment", records=[tuple(r) for r in bank])
    await connection.close()


def test_the_backup_says_what_is_in_it(restored):
    [dump] = restored.folder.glob("*.dump")
    assert "2 sold, 1 bookings, 1 payments" in restored.made
    assert json.loads(dump.with_suffix(".json").read_bytes())["counts"]["sold"] == 2
    assert dump.stat().st_mode & 0o077 == 0, "it holds what buyers told us"


def test_store_and_tickets_agree_and_the_store_sells_again(stage, restored, buyer):
    assert "1 events rebuilt in the store: 0 findings" in restored.said
    stage.look(require_no_drift)
    assert buyer.free(restored.show.event) == 38
    booking = buyer.books(restored.show.event, 1)
    buyer.waits_for(booking, "PENDING_PAYMENT")


def test_a_ticket_from_before_the_backup_opens_the_door(restored, buyer):
    assert buyer.booking(restored.show.booking)["state"] == "PAID"
    for ticket in restored.show.tickets:
        assert scan(restored.show.door, restored.show.event, ticket["code"])["outcome"] == "accepted"


def test_what_was_sold_after_the_backup_is_gone_and_its_money_is_found_and_given_back(stage, restored, buyer):
    expect(404, buyer.get(f"/bookings/{restored.later}"))
    since = restored.said.rpartition("--since ")[2].strip()
    listed = json.loads(said(restored.config, "unclaimed", "--since", since, "--json", code=1))
    assert [(one["amount"], one["captured"]) for one in listed["unclaimed"]] == [(9000, True)]
    for _ in range(2):
        said(restored.config, "unclaimed", "--since", since, "--refund")
    assert stage.fetch("select sum(amount) as back from payment.sandbox_refunds")[0]["back"] == 9000
    assert "0 payments without a booking" in said(restored.config, "unclaimed", "--since", since)


def test_a_database_that_holds_anything_is_not_restored_over(restored):
    assert "not empty" in said(restored.config, "restore", str(restored.folder), code=2)


def test_a_damaged_backup_is_refused_and_an_empty_folder_has_none(restored, tmp_path, fresh_database_url):
    elsewhere = with_settings(restored.config, database_url=fresh_database_url)
    assert "there is no backup" in said(elsewhere, "restore", str(tmp_path), code=2)
    [dump] = restored.folder.glob("*.dump")
    copy = tmp_path / dump.name
    copy.write_bytes(dump.read_bytes()[:-1])
    copy.with_suffix(".json").write_bytes(dump.with_suffix(".json").read_bytes())
    assert "checksum" in said(elsewhere, "restore", str(tmp_path), code=2)


def test_old_backups_make_room(restored, tmp_path: Path):
    for day in ("20200101", "20200102"):
        (tmp_path / f"aisle-{day}T000000Z.dump").touch()
    said(restored.config, "backup", str(tmp_path), "--keep", "2")
    left = sorted(path.name for path in tmp_path.glob("*.dump"))
    assert len(left) == 2
    assert left[0] == "aisle-20200102T000000Z.dump"
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.filterwarnings("ignore:Use 'content=<...>' to upload:DeprecationWarning")
async def test_money_that_stripe_has_is_found_and_given_back():
    from datetime import UTC, datetime
    from uuid import uuid4

    from aisle.payment.provider import Charge
    from aisle.payment.stripe_provider import Stripe
    from aisle.payment.unclaimed import give_back

    with stripe_stand_in() as (address, books):
        stripe = Stripe(key="sk_test", webhook_secret="whsec_test", api_base=address)
        taken, promised = uuid4(), uuid4()
        charges = [
            Charge(payment=p, booking=uuid4(), amount=500, currency="EUR", method="pm_ok") for p in (taken, promised)
        ]
        answers = [await stripe.authorise(charge) for charge in charges]
        await stripe.capture(taken, answers[0].reference)
        found = await stripe.taken_since(datetime.now(UTC))
        assert {one.payment: (one.amount, one.captured) for one in found} == {
            taken: (500, True),
            promised: (500, False),
        }
        assert await give_back(stripe, found) == 2
        assert [refund["payment_intent"] for refund in books.refunds] == [answers[0].reference]
        assert {i["status"] for i in books.intents.values()} == {"succeeded", "canceled"}
