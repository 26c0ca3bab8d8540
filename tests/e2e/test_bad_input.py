"""What an operator can get wrong: one clear line on standard error, exit code 2, nothing changed, no secret shown."""

import socket
import threading

import pytest

from aisle.config import Config
from aisle.embedded.server import free_port
from tests.conftest import with_settings
from tests.running import as_environment, run_aisle


def refused(*arguments: str, config: Config | None = None, env: dict[str, str] | None = None) -> str:
    run = run_aisle(*arguments, env=env if env is not None else as_environment(config))
    assert run.returncode == 2, run.stderr
    lines = run.stderr.strip().splitlines()
    assert len(lines) == 1, run.stderr
    assert run.stdout == ""
    return lines[0].removeprefix("aisle: ")


@pytest.fixture
def http_instead() -> str:
    """Something that answers, but not as a store does."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        try:
            while True:
                connection, _ = listener.accept()
                connection.recv(1024)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
                connection.close()
        except OSError:
            return

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(10)


def test_unknown_setting():
    said = refused("up", env={"AISLE_PROT": "1"})
    assert said == "unknown setting AISLE_PROT (did you mean AISLE_PORT?)"


def test_unknown_role(config):
    assert "unknown role baker" in refused("serve", "--roles", "baker", config=config)


def test_busy_port_is_said_before_anything_is_started(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused("up", env={"AISLE_PORT": str(port), "AISLE_DATA_DIR": str(tmp_path / "data")})
    assert said == f"cannot listen on 127.0.0.1:{port}: Address already in use"
    assert not (tmp_path / "data").exists()


def test_data_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("keep me")
    said = refused("up", env={"AISLE_PORT": str(free_port()), "AISLE_DATA_DIR": str(tmp_path / "file" / "data")})
    assert str(tmp_path / "file") in said
    assert (tmp_path / "file").read_text() == "keep me"


def test_damaged_data_directory_is_named_and_left_alone(tmp_path):
    broken = tmp_path / "data" / "postgres"
    broken.mkdir(parents=True, mode=0o700)
    (broken / "PG_VERSION").write_text("18\n")
    (broken / "precious").write_text("keep me")
    said = refused("up", env={"AISLE_PORT": str(free_port()), "AISLE_DATA_DIR": str(tmp_path / "data")})
    assert str(broken) in said
    assert (broken / "precious").read_text() == "keep me"


def test_wrong_database_password_is_said_without_showing_any(config):
    wrong = config.database_url.replace(":", ":", 1)
    user, _, rest = wrong.removeprefix("postgresql://").partition(":")
    said = refused(
        "serve", config=with_settings(config, database_url=f"postgresql://{user}:open-sesame@{rest.partition('@')[2]}")
    )
    assert "refused the user name or password" in said
    assert "open-sesame" not in said


def test_database_that_does_not_answer(config):
    url = f"postgresql://aisle:secret@127.0.0.1:{free_port()}/aisle"
    said = refused("serve", config=with_settings(config, database_url=url))
    assert "PostgreSQL at 127.0.0.1:" in said
    assert "does not answer" in said
    assert "secret" not in said


def test_database_that_does_not_exist(config):
    said = refused("serve", config=with_settings(config, database_url=config.database_url.replace("/test_", "/no_")))
    assert "the database does not exist" in said


def test_database_without_the_schema(config, fresh_database_url):
    said = refused("serve", config=with_settings(config, database_url=fresh_database_url))
    assert "run `aisle migrate`" in said


def test_postgresql_that_is_too_old(config, monkeypatch):
    """The oldest server within reach is new enough, so the limit is raised past it instead."""
    import asyncio

    from aisle import db
    from aisle.errors import StartupError

    monkeypatch.setattr(db, "POSTGRES_VERSION_MIN", 990_000)

    async def open_and_fail() -> None:
        with pytest.raises(StartupError, match=r"PostgreSQL 18\.\d+ is too old; Aisle needs 99 or newer"):
            async with db.open_database(config):
                pytest.fail("opened")

    asyncio.run(open_and_fail())


def test_malformed_database_url(config):
    assert "AISLE_DATABASE_URL is not usable" in refused(
        "serve", config=with_settings(config, database_url="mysql://x/y")
    )


def test_store_that_does_not_answer(config):
    said = refused("serve", config=with_settings(config, store_url=f"redis://:secret@127.0.0.1:{free_port()}/0"))
    assert said.startswith("store: ")
    assert "secret" not in said


def test_store_with_a_wrong_password(config, tmp_path):
    from aisle.embedded.supervisor import Supervisor

    with Supervisor(tmp_path / "data", log=lambda line: None) as supervisor:
        valkey = supervisor.start_valkey()
        url = f"redis://:open-sesame@127.0.0.1:{valkey.port}/0"
        said = refused("serve", config=with_settings(config, store_url=url))
    assert said.startswith("store: ")
    assert "open-sesame" not in said


def test_store_that_is_not_redis_compatible(config, http_instead):
    said = refused("serve", config=with_settings(config, store_url=http_instead))
    assert said.startswith("store: ")
    assert "does not speak the Redis protocol" in said
