"""Valkey: durable across clean and unclean stops, never handed out with a torn file, clear about a corrupt one."""

import socket
from pathlib import Path

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError
from redis.retry import Retry

from aisle.embedded import server
from aisle.embedded.supervisor import EmbeddedError, Supervisor, ValkeyServer

# A transaction that a crash cut in the middle of its second command.
TORN_TRANSACTION = b"*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$4\r\ntorn\r\n$4\r\nhalf\r\n*3\r\n$3\r\nSET\r\n$5\r\ntorn"


def put(valkey: ValkeyServer, key: str) -> None:
    with Redis.from_url(valkey.url) as store:
        store.set(key, "kept")


def keys(valkey: ValkeyServer) -> set[bytes]:
    with Redis.from_url(valkey.url) as store:
        return set(store.keys())


def base_file(data: Path) -> str:
    [path] = (data / "valkey" / "appendonlydir").glob("*.base.*")
    return path.name


def growing_file(data: Path) -> Path:
    [path] = (data / "valkey" / "appendonlydir").glob("*.incr.aof")
    return path


def test_it_answers_on_socket_and_port_and_only_with_the_password(supervisor: Supervisor) -> None:
    valkey = supervisor.start_valkey()
    for url in (valkey.url, valkey.tcp_url):
        with Redis.from_url(url) as store:
            assert store.ping()
    assert valkey.url.startswith("unix://")
    once = Retry(NoBackoff(), 0)
    with Redis(host="127.0.0.1", port=valkey.port, retry=once) as stranger, pytest.raises(AuthenticationError):
        stranger.ping()


def test_its_settings_keep_every_acknowledged_seat(supervisor: Supervisor) -> None:
    valkey = supervisor.start_valkey()
    wanted = {"appendonly": "yes", "appendfsync": "no", "save": "", "maxmemory-policy": "noeviction"}
    with Redis.from_url(valkey.url) as store:
        assert {name: store.config_get(name)[name] for name in wanted} == wanted
        assert store.config_get("bind")["bind"] == "127.0.0.1"


def test_options_override_settings(supervisor: Supervisor) -> None:
    valkey = supervisor.start_valkey(options={"appendfsync": "always", "maxmemory": "64mb"})
    with Redis.from_url(valkey.url) as store:
        assert store.config_get("appendfsync")["appendfsync"] == "always"
        assert store.config_get("maxmemory")["maxmemory"] == str(64 * 1024 * 1024)


@pytest.mark.parametrize("options", [{"save\nrequirepass": "x"}, {"save": "1 1\nrequirepass x"}, {"": "x"}])
def test_an_option_that_is_none_is_refused(supervisor: Supervisor, options: dict[str, str]) -> None:
    with pytest.raises(EmbeddedError, match="not a Valkey option"):
        supervisor.start_valkey(options=options)


def test_a_clean_stop_keeps_the_data_and_needs_no_rewrite(data: Path) -> None:
    with Supervisor(data, log=lambda line: None) as supervisor:
        put(supervisor.start_valkey(), "seat")
    assert (data / "valkey" / "clean").exists()
    before = base_file(data)
    with Supervisor(data, log=lambda line: None) as supervisor:
        valkey = supervisor.start_valkey()
        assert keys(valkey) == {b"seat"}
        assert base_file(data) == before
        assert not (data / "valkey" / "clean").exists(), "while it runs, a crash must not look clean"


def test_after_a_crash_the_file_is_rewritten_before_anyone_gets_the_address(supervisor: Supervisor, data: Path) -> None:
    valkey = supervisor.start_valkey()
    put(valkey, "seat")
    before = base_file(data)
    valkey.kill()
    assert not (data / "valkey" / "clean").exists()
    valkey.start()
    assert base_file(data) != before
    with Redis.from_url(valkey.url) as store:
        state = store.info("persistence")
    assert (state["aof_rewrites"], state["aof_last_bgrewrite_status"], state["aof_rewrite_in_progress"]) == (1, "ok", 0)
    assert keys(valkey) == {b"seat"}


def test_a_torn_transaction_vanishes_and_takes_nothing_with_it_over_two_crashes(
    supervisor: Supervisor, data: Path
) -> None:
    valkey = supervisor.start_valkey()
    put(valkey, "before")
    valkey.kill()
    with open(growing_file(data), "ab") as file:
        file.write(TORN_TRANSACTION)
    torn = base_file(data)
    valkey.start()
    assert base_file(data) != torn
    assert b"MULTI" not in growing_file(data).read_bytes()
    put(valkey, "between")
    valkey.kill()
    valkey.start()
    put(valkey, "after")
    valkey.restart()
    assert keys(valkey) == {b"before", b"between", b"after"}


def test_what_an_unclean_start_has_loaded_survives_a_power_cut(supervisor: Supervisor, data: Path) -> None:
    """What nobody synced may be gone after a power cut: all of the growing file, if it comes to the worst.

    Without the rewrite before the address is handed out, seats that everybody has seen after the first start are only
    there. (Valkey itself reverts a torn transaction, so tearing the file shows nothing.)
    """
    valkey = supervisor.start_valkey()
    put(valkey, "seat")
    valkey.kill()
    valkey.start()
    assert keys(valkey) == {b"seat"}
    valkey.kill()
    growing_file(data).write_bytes(b"")
    valkey.start()
    assert keys(valkey) == {b"seat"}


def test_a_corrupt_file_is_named_and_left_as_it_is(data: Path) -> None:
    with Supervisor(data, log=lambda line: None) as supervisor:
        put(supervisor.start_valkey(), "seat")
        file = growing_file(data)
    corrupt = b"X" + file.read_bytes()[1:]
    file.write_bytes(corrupt)
    for _ in range(2):
        with Supervisor(data, log=lambda line: None) as supervisor, pytest.raises(EmbeddedError) as refused:
            supervisor.start_valkey()
        assert file.name in str(refused.value)
        assert str(data / "valkey") in str(refused.value)
        assert "\n" not in str(refused.value)
        assert file.read_bytes() == corrupt
    assert not (data / "valkey" / "clean").exists()


def test_a_rewrite_that_fails_keeps_the_store_closed(supervisor: Supervisor, data: Path) -> None:
    valkey = supervisor.start_valkey()
    put(valkey, "seat")
    valkey.kill()
    # A directory where the rewrite wants to write its file makes it fail, whoever we are.
    [number] = [part for part in base_file(data).split(".") if part.isdigit()]
    obstacle = data / "valkey" / "appendonlydir" / f"appendonly.aof.{int(number) + 1}.base.rdb"
    obstacle.mkdir()
    (obstacle / "file").write_text("")
    with pytest.raises(EmbeddedError, match="valkey failed to rewrite its file"):
        valkey.start()
    assert not valkey.running
    assert not (data / "valkey" / "clean").exists()
    (obstacle / "file").unlink()
    obstacle.rmdir()
    valkey.start()
    assert keys(valkey) == {b"seat"}


def test_a_busy_port_that_was_asked_for_is_reported(supervisor: Supervisor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        with pytest.raises(EmbeddedError, match=rf"valkey cannot listen: port {port} of 127.0.0.1 is already in use"):
            supervisor.start_valkey(port=port)


def test_a_port_lost_to_somebody_else_is_exchanged(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        taken = busy.getsockname()[1]
        ports = iter([taken, taken, server.free_port()])
        monkeypatch.setattr(server, "free_port", lambda: next(ports))
        valkey = supervisor.start_valkey()
        assert valkey.port != taken
        with Redis.from_url(valkey.tcp_url) as store:
            assert store.ping()


def test_the_address_survives_a_restart(supervisor: Supervisor) -> None:
    valkey = supervisor.start_valkey(append=False)
    before = valkey.url, valkey.tcp_url
    valkey.restart()
    assert (valkey.url, valkey.tcp_url) == before
    with Redis.from_url(valkey.tcp_url) as store:
        assert store.ping()


def test_without_append_nothing_is_written(supervisor: Supervisor, data: Path) -> None:
    valkey = supervisor.start_valkey(append=False)
    with Redis.from_url(valkey.url) as store:
        store.set("seat", "gone at the end")
    valkey.restart()
    assert keys(valkey) == set()
    assert not (data / "valkey" / "appendonlydir").exists()
