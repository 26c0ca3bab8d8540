"""PostgreSQL: starts, survives, refuses data it cannot trust and touches none of it, and needs no particular user."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import asyncpg
import pytest

from aisle.embedded import identity, server
from aisle.embedded.supervisor import EmbeddedError, Supervisor
from tests import children
from tests.embedded.conftest import gone
from tests.needs import cannot
from tests.patience import PATIENCE_SECONDS, eventually
from tests.running import family

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


def ask(url: str, query: str) -> object:
    async def once() -> object:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetchval(query)
        finally:
            await connection.close()

    return asyncio.run(once())


def photograph(directory: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file, to see that a refusal changed none."""
    return {
        str(path.relative_to(directory)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_a_first_start_makes_a_database_that_answers_on_socket_and_port(data: Path) -> None:
    # What an interrupted initdb leaves must not be taken for data.
    (data / "postgres.new").mkdir(parents=True)
    (data / "postgres.new" / "PG_VERSION").write_text("18\n")
    with Supervisor(data, log=lambda line: None) as supervisor:
        postgres = supervisor.start_postgres()
        for url in (postgres.url, postgres.tcp_url):
            assert ask(url, "select current_user || '@' || current_database()") == "aisle@aisle"
        assert ask(postgres.url, "select inet_client_addr()") is None, "url goes through the socket"
        assert sorted(os.listdir(data)) == ["lock", "logs", "postgres", "run", "secrets"]


def test_its_settings_keep_what_was_committed(data_with_database: Path) -> None:
    wanted = {
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "data_checksums": "on",
        "jit": "off",
        "max_wal_size": "2GB",
        "listen_addresses": "127.0.0.1",
        "server_encoding": "UTF8",
        "work_mem": "7MB",
    }
    with Supervisor(data_with_database, log=lambda line: None) as supervisor:
        postgres = supervisor.start_postgres(options={"work_mem": "7MB"})
        assert {name: ask(postgres.url, f"show {name}") for name in wanted} == wanted
        # Letters beyond ASCII have an upper case: e-mail addresses are compared that way.
        assert ask(postgres.url, "select upper('žluťoučký')") == "ŽLUŤOUČKÝ"


def test_only_the_password_opens_it(data_with_database: Path) -> None:
    with Supervisor(data_with_database, log=lambda line: None) as supervisor:
        postgres = supervisor.start_postgres()
        secret = (data_with_database / "secrets" / "postgres").read_text().strip()
        for url in (postgres.url, postgres.tcp_url):
            with pytest.raises(asyncpg.InvalidPasswordError):
                ask(url.replace(secret, "guess"), "select 1")


def test_committed_rows_survive_a_crash_a_restart_and_a_new_supervisor(data_with_database: Path) -> None:
    with Supervisor(data_with_database, log=lambda line: None) as supervisor:
        postgres = supervisor.start_postgres()
        before = postgres.url
        ask(postgres.url, "create table seat (id int)")
        ask(postgres.url, "insert into seat values (1)")
        everyone = family(postgres.pid)
        postgres.kill()
        postgres.start()
        # Its workers let go of their files before kill() returned; the kernel removes them soon after.
        eventually(lambda: all(gone(process) for process in everyone), "the killed server is gone")
        ask(postgres.url, "insert into seat values (2)")
        postgres.restart()
        assert postgres.url == before
    assert "automatic recovery in progress" in (data_with_database / "logs" / "postgres.log").read_text()
    with Supervisor(data_with_database, log=lambda line: None) as supervisor:
        assert ask(supervisor.start_postgres().url, "select array_agg(id order by id) from seat") == [1, 2]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("PG_VERSION", None, "PG_VERSION is missing"),
        ("PG_VERSION", b"", "PG_VERSION is not a version"),
        ("PG_VERSION", b"15\n", "holds PostgreSQL 15 data, and this is PostgreSQL 18"),
        ("global/pg_control", None, "pg_control is missing"),
        ("global/pg_control", b"short", "pg_control is truncated"),
        ("global/pg_control", b"\0" * 8192, "database files are incompatible with server"),
    ],
)
def test_data_it_cannot_trust_is_refused_and_left_as_it_is(
    data_with_database: Path, name: str, content: bytes | None, reason: str
) -> None:
    cluster = data_with_database / "postgres"
    (cluster / name).unlink()
    if content is not None:
        (cluster / name).write_bytes(content)
    before = photograph(cluster)
    (data_with_database / "logs" / "postgres.log").write_text("an earlier run said: Address already in use\n")
    with Supervisor(data_with_database, log=lambda line: None) as supervisor:
        with pytest.raises(EmbeddedError, match=reason) as refused:
            supervisor.start_postgres()
        assert str(cluster) in str(refused.value)
        assert "holds" in reason or str(data_with_database / "logs" / "postgres.log") in str(refused.value)
        assert "\n" not in str(refused.value)
    assert photograph(cluster) == before


def test_a_lost_password_is_reported(data_with_database: Path) -> None:
    (data_with_database / "secrets" / "postgres").unlink()
    with (
        Supervisor(data_with_database, log=lambda line: None) as supervisor,
        pytest.raises(EmbeddedError, match=r"its password in .* is gone"),
    ):
        supervisor.start_postgres()


def test_a_wrong_password_is_reported_and_the_server_stopped(data_with_database: Path) -> None:
    (data_with_database / "secrets" / "postgres").write_text("guess\n")
    with (
        Supervisor(data_with_database, log=lambda line: None) as supervisor,
        pytest.raises(EmbeddedError, match=r"postgres refused user aisle: .*password authentication failed"),
    ):
        supervisor.start_postgres()
    assert not (data_with_database / "postgres" / "postmaster.pid").exists()


def test_a_busy_port_that_was_asked_for_is_reported(data_with_database: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        with (
            Supervisor(data_with_database, log=lambda line: None) as supervisor,
            pytest.raises(EmbeddedError, match=rf"postgres cannot listen: port {port} of 127.0.0.1 is already in"),
        ):
            supervisor.start_postgres(port=port)


def test_a_port_lost_to_somebody_else_is_exchanged(data_with_database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        taken = busy.getsockname()[1]
        ports = iter([taken, server.free_port()])
        monkeypatch.setattr(server, "free_port", lambda: next(ports))
        with Supervisor(data_with_database, log=lambda line: None) as supervisor:
            assert ask(supervisor.start_postgres().tcp_url, "select 1") == 1


def test_a_pid_file_whose_number_belongs_to_another_program_does_not_lock_us_out(
    data_with_database: Path,
) -> None:
    cluster = data_with_database / "postgres"
    with children.start([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        lines = [stranger.pid, cluster, 0, 5432, "", "127.0.0.1", "", "ready"]
        (cluster / "postmaster.pid").write_text("".join(f"{line}\n" for line in lines))
        with Supervisor(data_with_database, log=lambda line: None) as supervisor:
            assert ask(supervisor.start_postgres().url, "select 1") == 1
        stranger.communicate(b"\n")


def test_a_postgres_that_somebody_else_started_there_is_left_alone(data_with_database: Path) -> None:
    cluster = data_with_database / "postgres"
    with children.start([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, cwd=cluster) as foreigner:
        (cluster / "postmaster.pid").write_text(f"{foreigner.pid}\n{cluster}\n")
        with (
            Supervisor(data_with_database, log=lambda line: None) as supervisor,
            pytest.raises(EmbeddedError, match=rf"another PostgreSQL \(pid {foreigner.pid}\) already runs on"),
        ):
            supervisor.start_postgres()
        assert (cluster / "postmaster.pid").exists()
        foreigner.communicate(b"\n")


@pytest.mark.parametrize("options", [{"port = 1 -c fsync": "off"}, {"": "on"}])
def test_an_option_that_is_none_is_refused(data: Path, options: dict[str, str]) -> None:
    with (
        Supervisor(data, log=lambda line: None) as supervisor,
        pytest.raises(EmbeddedError, match="not a PostgreSQL option"),
    ):
        supervisor.start_postgres(options=options)


def test_an_option_postgres_does_not_know_is_reported_in_its_words(data_with_database: Path) -> None:
    with (
        Supervisor(data_with_database, log=lambda line: None) as supervisor,
        pytest.raises(EmbeddedError, match='unrecognized configuration parameter "no_such_setting"'),
    ):
        supervisor.start_postgres(options={"no_such_setting": "1"})


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory every user can reach; pytest's own are private."""
    path = Path(tempfile.mkdtemp(prefix="aisle-open-"))
    path.chmod(0o777)
    yield path
    shutil.rmtree(path)


def no_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise PermissionError("unshare")

    monkeypatch.setattr(identity, "_shown_as_ordinary_user", lambda: refused)


@AS_ROOT
def test_root_without_namespaces_runs_it_as_an_ordinary_user(
    open_directory: Path, database_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = open_directory / "data"
    shutil.copytree(database_template, data, symlinks=True)  # made by root in a namespace: it must change hands
    if not reachable_by_all(Path(__file__).parents[2] / ".venv"):
        cannot("the virtual environment is where no ordinary user may go")
    no_namespaces(monkeypatch)
    for _ in range(2):
        with Supervisor(data, log=lambda line: None) as supervisor:
            postgres = supervisor.start_postgres()
            assert Path(f"/proc/{postgres.pid}").stat().st_uid != 0
            assert ask(postgres.url, "select 1") == 1
            postgres.kill()
            postgres.start()
            assert ask(postgres.url, "select 1") == 1
        monkeypatch.undo()  # with namespaces again, files of another user are still run as that user
    assert (data / "secrets").stat().st_mode & 0o777 == 0o700


@AS_ROOT
def test_root_without_namespaces_and_without_a_reachable_path_is_told_so(
    data_with_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_namespaces(monkeypatch)
    data_with_database.parent.chmod(0o700)
    with (
        Supervisor(data_with_database, log=lambda line: None) as supervisor,
        pytest.raises(EmbeddedError, match="PostgreSQL does not run as root, user namespaces are refused here"),
    ):
        supervisor.start_postgres()


@AS_ROOT
def test_an_ordinary_user_just_runs_it(open_directory: Path) -> None:
    python = next((path for path in (sys.executable, "/usr/bin/python3") if usable_by_nobody(path)), None)
    if python is None:
        cannot("no Python that user nobody can run and that has our packages")
    script = f"""
import asyncio, asyncpg
from pathlib import Path
from aisle.embedded.supervisor import Supervisor
async def ask(url):
    connection = await asyncpg.connect(url)
    print(await connection.fetchval("select 6 * 7"))
    await connection.close()
with Supervisor(Path({str(open_directory / "data")!r})) as supervisor:
    asyncio.run(ask(supervisor.start_postgres().url))
    supervisor.start_valkey()
"""
    done = as_nobody([python, "-c", script])
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    assert (open_directory / "data" / "postgres").stat().st_uid == 65534
    assert (open_directory / "data" / "valkey" / "clean").exists()


def as_nobody(argv: list[str]) -> "subprocess.CompletedProcess[str]":
    packages = [find_spec(name).submodule_search_locations[0] for name in ("aisle", "asyncpg")]  # type: ignore[union-attr,index]
    return children.run(
        ["setpriv", "--pdeathsig=KILL", "--reuid=65534", "--regid=65534", "--clear-groups", *argv],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(str(Path(path).parent) for path in packages)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        cwd="/",
    )


def usable_by_nobody(python: str) -> bool:
    try:
        return as_nobody([python, "-c", "import asyncpg, redis, aisle.embedded"]).returncode == 0
    except FileNotFoundError:
        return False


def reachable_by_all(path: Path) -> bool:
    return all(parent.stat().st_mode & 0o001 for parent in [path, *path.parents])
