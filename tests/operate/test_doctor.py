"""`aisle doctor` on a running system, and on systems that are really broken: what it says, and the command it names."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from aisle.embedded.server import free_port
from aisle.ops.notes import BackedUp, note
from aisle.reconcile import reconcile
from tests.conftest import with_settings
from tests.patience import eventually
from tests.people import Person, a_hall
from tests.running import as_environment, run_aisle
from tests.stage import Stage

UNAVOIDABLE = {"store file", "disk"}  # the store of the tests appends to no file; the disk is what it is


def examined(stage: Stage, **changes: Any) -> tuple[int, dict[str, dict[str, Any]]]:
    config = with_settings(stage.config, **changes)
    run = run_aisle("doctor", "--json", env=as_environment(config))
    assert run.stderr == "", run.stderr
    return run.returncode, {check["name"]: check for check in json.loads(run.stdout)["checks"]}


def wrong(checks: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: check["next"] for name, check in checks.items() if not check["fine"] and name not in UNAVOIDABLE}


@pytest.fixture(scope="module")
def event(stage: Stage, seller: Person, buyer: Person) -> int:
    event = seller.opens(a_hall(("A", 3000, 5, 10)))
    booking = buyer.books(event, 2)
    buyer.waits_for(booking, "PENDING_PAYMENT")
    buyer.pays(booking)
    stage.settle(event)
    return event


def test_a_new_installation_lacks_a_comparison_and_a_backup_and_is_well_after_both(stage, event):
    code, checks = examined(stage)
    assert code == 1
    assert wrong(checks) == {"drift": "aisle reconcile", "backup": "aisle backup DIR"}
    compared = run_aisle("reconcile", "--json", env=as_environment(stage.config))
    assert (compared.returncode, json.loads(compared.stdout)["seats"]) == (0, 50), compared.stderr
    made = BackedUp(at=datetime.now(UTC), where="there", bytes=1)
    stage.look(lambda database, store: note(store, "backup", made))
    _, checks = examined(stage)
    assert wrong(checks) == {}
    text = run_aisle("doctor", env=as_environment(stage.config)).stdout
    assert "fine   database           PostgreSQL" in text
    assert len(text.splitlines()) < 40, "one screen"


def test_a_stuck_booking_a_stuck_refund_and_an_old_outbox_are_found(stage, event):
    long_ago = datetime.now(UTC) - timedelta(hours=2)
    paid, outbox = stage.fetch("select id, buyer from booking.bookings where state = 'PAID'")[0], b'{"type": "none"}'
    stage.stop()
    try:
        stage.fetch(
            "insert into booking.bookings (id, event_id, lane, partition, epoch, buyer, request, quantity,"
            " idempotency_key, request_hash, placed_at)"
            " values ($1, $2, 'shared', 0, 1, $3, '{}', 1, 'stuck-key', '', $4)",
            uuid4(), event, paid["buyer"], long_ago,
        )  # fmt: skip
        stage.fetch("insert into booking.outbox (message, written_at) values ($1, $2)", outbox, long_ago)
        stage.fetch(
            "insert into payment.refunds"
            " (id, payment, booking, amount, currency, why, idempotency_key, asked_at, look_at)"
            " select $1, id, booking, 1, currency, 'test', 'stuck-key', $2, $3 from payment.payments",
            uuid4(), long_ago, datetime.now(UTC) + timedelta(days=1),
        )  # fmt: skip
        code, checks = examined(stage)
        assert code == 1
        found = wrong(checks)
        assert {"bookings waiting", "outbox booking", "refunds"} <= set(found)
        assert found["outbox booking"] == "aisle serve --roles booking"
    finally:
        stage.fetch("delete from booking.bookings where idempotency_key = 'stuck-key'")
        stage.fetch("delete from booking.outbox")
        stage.fetch("delete from payment.refunds where idempotency_key = 'stuck-key'")
        stage.start()


def test_drift_is_found_by_the_comparison_and_shown_until_it_is_gone(stage, event):
    key = f"{stage.config.store_prefix}section_stats:{{{event}:A-1}}"

    def add(number: int) -> None:
        stage.look(lambda database, store: store.call("HINCRBY", key, "sold", number))

    add(1)
    try:
        found = stage.look(partial(reconcile, pause_s=0.1))
        assert (found.drift, found.paid_without_ticket) == ({"stats": 1}, 0)
        _, checks = examined(stage)
        assert wrong(checks)["drift"].startswith("aisle reconcile")
        assert f"{event}:A-1" in checks["drift"]["detail"]
    finally:
        add(-1)
    assert not stage.look(partial(reconcile, pause_s=0.1)).drift
    assert "drift" not in wrong(examined(stage)[1])


def test_a_section_that_is_closed_in_the_store_is_found(stage, event):
    key = f"{stage.config.store_prefix}section_config:{{{event}:A-1}}"
    stage.look(lambda database, store: store.call("HSET", key, "state", "closed"))
    try:
        assert f"aisle rebuild --event {event}" in wrong(examined(stage)[1])["sections"]
    finally:
        stage.look(lambda database, store: store.call("HSET", key, "state", "open"))


def test_each_part_that_is_away_is_a_finding_and_the_rest_is_looked_at(stage, event):
    nobody = f"127.0.0.1:{free_port()}"
    code, checks = examined(stage, store_url=f"redis://{nobody}", store_connect_timeout=1)
    assert code == 1
    assert "start the store" in wrong(checks)["store"]
    assert checks["database"]["fine"]
    assert checks["dead letters"]["fine"]
    code, checks = examined(stage, kafka=nobody)
    assert code == 1
    assert set(wrong(checks)) == {"log"}


def test_where_nothing_answers_there_is_nothing_to_see(stage):
    nobody = f"127.0.0.1:{free_port()}"
    gone = with_settings(
        stage.config,
        database_url=f"postgresql://a:b@{nobody}/c",
        store_url=f"redis://{nobody}",
        store_connect_timeout=1,
    )
    run = run_aisle("doctor", env=as_environment(gone))
    assert (run.returncode, run.stdout) == (2, "")
    assert "does not answer" in run.stderr


def test_a_missing_migration_is_named_with_the_command_that_applies_it(stage, fresh_database_url):
    _, checks = examined(stage, database_url=fresh_database_url)
    assert wrong(checks)["schema"] == "aisle migrate"


def test_the_store_of_somebody_else_is_not_verified(stage, event, fresh_database_url):
    migrated = with_settings(stage.config, database_url=fresh_database_url)
    assert run_aisle("migrate", env=as_environment(migrated)).returncode == 0
    _, checks = examined(stage, database_url=fresh_database_url)
    assert "foreign" in checks["generation"]["detail"]
    assert wrong(checks)["generation"].startswith("aisle verify")


def test_the_metrics_follow_the_comparison(stage, event):
    from tests.operate.test_metrics import value

    eventually(lambda: value(stage, "aisle_reconcile_last_success_timestamp_seconds"), "the comparison is shown")
    assert value(stage, "aisle_backup_last_success_timestamp_seconds") > 0
    assert asyncio.run(_is_locked_by_nobody(stage.config.database_url))


async def _is_locked_by_nobody(url: str) -> bool:
    connection = await asyncpg.connect(url)
    try:
        return not await connection.fetchval("select count(*) from pg_locks where locktype = 'advisory'")
    finally:
        await connection.close()
