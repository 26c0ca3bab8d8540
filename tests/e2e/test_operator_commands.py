"""`aisle verify`, `aisle rebuild` and `aisle inspect` as an operator runs them: words, exit codes, one JSON object."""

import asyncio
import json
import stat

import pytest

from aisle.config import Config
from aisle.embedded.server import free_port
from aisle.metrics import Metrics
from aisle.migrate import migrate
from aisle.reservation.claims import Kind
from aisle.reservation.inventory import Inventory
from aisle.reservation.pool import Pool, PoolPlace, Take
from aisle.reservation.pools import Pools
from aisle.reservation.sweeper import announce
from aisle.store import open_store
from tests.conftest import with_settings
from tests.integration.lively_hall import KEY_NAMES, LivelyHall, lively_hall
from tests.running import as_environment, run_aisle
from tests.running_up import up


@pytest.fixture
def config(config: Config) -> Config:
    """These halls are in the store only, so the commands are not shown the database that other tests fill."""
    return with_settings(config, database_url="")


@pytest.fixture
def config_with_database(config: Config, fresh_database_url: str) -> Config:
    with_database = with_settings(config, database_url=fresh_database_url)
    asyncio.run(migrate(with_database))
    return with_database


def in_hall(config: Config, work=None) -> None:
    """Fill a hall and then work on it."""

    async def run() -> None:
        async with lively_hall(config, Metrics()) as hall:
            if work:
                await work(hall)

    asyncio.run(run())


def in_hall_again(config: Config, work) -> None:
    """Work on what is in the store now."""

    async def run() -> None:
        async with open_store(config, Metrics()) as store:
            await work(LivelyHall(store, Inventory(store)))

    asyncio.run(run())


def ok(config: Config, *arguments: str) -> str:
    run = run_aisle(*arguments, env=as_environment(config))
    assert (run.returncode, run.stderr) == (0, ""), run.stderr + run.stdout
    return run.stdout


def refused(config: Config, *arguments: str) -> str:
    run = run_aisle(*arguments, env=as_environment(config))
    assert run.returncode == 2, run.stdout + run.stderr
    assert run.stdout == ""
    [line] = run.stderr.strip().splitlines()
    return line.removeprefix("aisle: ")


async def break_a_counter(hall: LivelyHall) -> None:
    await hall.store.call("HINCRBY", hall.key("section_stats"), "sold", 1)


async def wipe(hall: LivelyHall) -> None:
    await hall.store.call_many([("DEL", key) for key in await hall.dump()])


def test_a_clean_store_verifies_with_exit_0(config):
    in_hall(config)
    assert ok(config, "verify").startswith("1 events, 2 subsections, 45 seats: 0 findings")
    report = json.loads(ok(config, "verify", "--event", "1", "--json"))
    assert (report["places"], report["seats"], report["findings"]) == (2, 45, [])


def test_drift_is_exit_1_with_the_findings_on_stdout(config):
    in_hall(config, break_a_counter)
    run = run_aisle("verify", env=as_environment(config))
    assert (run.returncode, run.stderr) == (1, "")
    assert run.stdout.splitlines()[0] == "1:A-1  stats  section_stats says 4 sold, the map has 3"
    run = run_aisle("verify", "--json", env=as_environment(config))
    assert run.returncode == 1
    [finding] = json.loads(run.stdout)["findings"]
    assert (finding["kind"], finding["place"]) == ("stats", "1:A-1")


def test_an_event_is_exported_lost_and_rebuilt(config, tmp_path):
    in_hall(config)
    facts = tmp_path / "facts.json"
    facts.write_text(ok(config, "inspect", "facts", "1"))
    assert ok(config, "verify", "--event", "1", "--from", str(facts)).startswith("1 events, 2 subsections")
    seats = json.loads(ok(config, "inspect", "seats", "1:A-1", "--json"))["rows"]
    in_hall_again(config, wipe)
    assert refused(config, "verify", "--event", "1") == "event 1 is not in the store"
    said = ok(config, "rebuild", "--event", "1", "--from", str(facts))
    assert said.splitlines()[0] == "1:A-1  35 seats, 2 bookings, 0 holds kept, 0 dropped, epoch 4, closed"
    assert ok(config, "verify", "--event", "1", "--from", str(facts)).startswith("1 events, 2 subsections")
    rebuilt = json.loads(ok(config, "inspect", "seats", "1:A-1", "--json"))["rows"]
    assert rebuilt == [seats[0], ".......", *seats[2:]], "the hold in row 2 was in the lost store alone"
    again = json.loads(ok(config, "rebuild", "--event", "1", "--from", str(facts), "--json"))
    assert [(one["place"], one["epoch"], one["on_sale"]) for one in again["rebuilt"]] == [
        ("1:A-1", 5, False),
        ("1:A-2", 5, False),
    ]


def test_every_view_is_words_for_people_and_one_object_for_programs(config):
    in_hall(config, with_a_pool)
    for arguments in (
        ("section", "1"),
        ("section", "1:A-2"),
        ("section", "1:GA"),
        ("seats", "1:A-1"),
        ("holds", "1"),
        ("holds", "1:A-1"),
        ("holds", "1:GA"),
        ("keys", "--event", "1"),
    ):
        text = ok(config, "inspect", *arguments)
        assert not text.startswith("{")
        assert isinstance(json.loads(ok(config, "inspect", *arguments, "--json")), dict)


async def with_a_pool(hall: LivelyHall) -> None:
    """Beside the seats of event 1, and alone in event 2."""
    pools = Pools(hall.store)
    for place in (PoolPlace(1, "GA"), PoolPlace(2, "GA")):
        await pools.open([Pool(place, capacity=30, price=500, limit=8)], epoch=1)
        await pools.switch([place], epoch=1, on_sale=True)
        takes = [
            Take(id="booked", owner="ann", quantity=3),
            Take(id="held-in-pool", owner="bob", quantity=2, kind=Kind.HOLD, hold_ms=600_000),
        ]
        assert all(taken.ok for taken in await pools.take(place, takes, epoch=1))
        await announce(hall.store, [place])


def test_pools_are_shown_beside_the_seats_and_alone(config):
    in_hall(config, with_a_pool)
    sections, _, pools = ok(config, "inspect", "section", "1").partition("\n\n")
    assert [line.split()[0] for line in sections.splitlines()] == ["place", "1:A-1", "1:A-2"]
    assert pools.splitlines()[0].split()[:6] == ["pool", "state", "available", "held", "sold", "capacity"]
    assert pools.splitlines()[1].split()[:6] == ["1:GA", "open", "25", "5", "0", "30"]
    for where in ("2", "2:GA"):
        alone = json.loads(ok(config, "inspect", "section", where, "--json"))
        assert (alone["sections"], [pool["held"] for pool in alone["pools"]]) == ([], [5])
        held = json.loads(ok(config, "inspect", "holds", where, "--json"))["holds"]
        assert [(one["id"], one["places"], one["deadline_ms"] is None) for one in held] == [
            ("held-in-pool", 2, False),
            ("booked", 3, True),
        ]
    lines = ok(config, "inspect", "holds", "1").splitlines()
    assert any(line.startswith("1:A-1  held ") for line in lines)
    assert any("held-in-pool" in line and line.endswith("2 places") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["verify", "--event", "one"], "an event is a positive number, not 'one'"),
        (["verify", "--event", "0"], "an event is a positive number, not '0'"),
        (["verify", "--event", "9" * 19], "an event is a positive number"),
        (["verify", "--event", "7"], "event 7 is not in the store"),
        (["verify", "--event", "1", "--admit"], "--admit needs a verification of all events"),
        (["verify", "--from", "x.json"], "--from is about one event"),
        (["verify", "--event", "1", "--from", "nowhere.json"], "cannot read nowhere.json: No such file"),
        (["rebuild", "--event", "1"], "AISLE_DATABASE_URL is not set"),
        (["inspect", "section", "7"], "event 7 is not in the store"),
        (["inspect", "section", "1:GA"], "1:GA is not in the store"),
        (["inspect", "section", "1:A-{1}"], "is not a place such as '1:A-1'"),
        (["inspect", "seats", "A-1"], "is not a place such as '1:A-1'"),
        (["inspect", "seats", "1:B-1"], "1:B-1 is not in the store"),
        (["inspect", "holds", "-1"], "an event is a positive number"),
        (["inspect", "keys", "--event", "7"], "event 7 is not in the store"),
        (["inspect", "facts", "1:A-1"], "an event is a positive number, not '1:A-1'"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(config, arguments, reason):
    in_hall(config)
    if arguments[-1] == "-1":
        arguments = [*arguments[:-1], "--", "-1"]
    assert reason in refused(config, *arguments)


def test_facts_of_another_event_are_refused_and_change_nothing(config, tmp_path):
    in_hall(config)
    (tmp_path / "facts.json").write_text('{"event": 2, "subsections": []}')
    said = refused(config, "rebuild", "--event", "1", "--from", str(tmp_path / "facts.json"))
    assert said.endswith("is about event 2, not 1")
    (tmp_path / "facts.json").write_text("{")
    assert "truncated" in refused(config, "rebuild", "--event", "1", "--from", str(tmp_path / "facts.json"))
    assert ok(config, "verify")


@pytest.mark.parametrize("name", KEY_NAMES)
def test_a_key_of_the_wrong_type_is_said_in_one_line(config, name):
    async def spoil(hall: LivelyHall) -> None:
        await hall.store.call("DEL", hall.key(name))
        await hall.store.call("RPUSH", hall.key(name), "x")

    in_hall(config, spoil)
    assert "WRONGTYPE" in refused(config, "inspect", "seats", "1:A-1")


def test_a_store_that_is_down_is_said_in_one_line(config):
    away = with_settings(config, store_url=f"redis://:secret@127.0.0.1:{free_port()}/0")
    for arguments in (["verify"], ["inspect", "keys"], ["inspect", "section", "1"]):
        said = refused(away, *arguments)
        assert said.startswith("store: ")
        assert "secret" not in said


def test_without_a_store_the_commands_say_where_they_looked(tmp_path):
    run = run_aisle("verify", env={"AISLE_DATA_DIR": str(tmp_path)})
    assert run.returncode == 2
    assert "AISLE_STORE_URL is not set and no `aisle up` runs" in run.stderr


def test_a_new_store_is_admitted_once_the_operator_says_so(config_with_database):
    config = config_with_database
    in_hall(config)
    assert "it is new or was flushed" in refused(config, "verify", "--admit")
    assert json.loads(ok(config, "verify", "--admit", "--fresh", "--json"))["admitted"] is True
    assert json.loads(ok(config, "verify", "--admit", "--json"))["admitted"] is True


def test_a_damaged_address_file_is_said_in_one_line(tmp_path):
    (tmp_path / "servers.json").write_text("not json")
    run = run_aisle("verify", env={"AISLE_DATA_DIR": str(tmp_path)})
    assert run.returncode == 2
    assert "servers.json" in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1


def test_the_commands_find_the_store_of_a_running_up_and_its_address_goes_with_it(tmp_path):
    with up(tmp_path / "data") as started:
        file = started.data / "servers.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        run = run_aisle("verify", "--json", env={"AISLE_DATA_DIR": str(started.data)})
        assert run.returncode == 0, run.stderr
        assert json.loads(run.stdout)["findings"] == []
    assert not file.exists()
