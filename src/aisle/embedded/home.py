"""The data directory of one supervisor: where each server keeps files, logs, secrets and sockets.

Opened by the supervisor, read by the servers. Creates private directories, never changes the mode or the owner
of one it finds, and refuses one that belongs to somebody else.
"""

import contextlib
import hashlib
import os
import re
import secrets
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from aisle.embedded.errors import EmbeddedError
from aisle.embedded.lock import release_lock, take_lock

LOG_BYTES_MAX = 10 * 1024 * 1024
# PostgreSQL keeps paths in buffers of 1,024 bytes and appends names of its own to the data directory's.
DATA_PATH_BYTES_MAX = 900
# sockaddr_un holds 108 bytes with the closing zero; the longest name we put there is PostgreSQL's.
SOCKET_PATH_BYTES_MAX = 107
LONGEST_SOCKET_NAME = ".s.PGSQL.65535"
PLAIN_PATH = re.compile(r"[A-Za-z0-9_./-]+")

#   data/
#     lock              see lock.py
#     postgres/         the cluster; postgres.new/ while initdb works
#     valkey/           valkey.conf (0600), appendonlydir/, clean
#     logs/NAME.log     appended to; NAME.log.old is the one before
#     secrets/NAME      0600, made once
#     run/              sockets; a directory under the temporary one when this path does not suit them


@dataclass(frozen=True)
class Home:
    data: Path
    run: Path
    lock_fd: int

    def close(self) -> None:
        if self.run.parent != self.data:
            # A server that had to be killed left its socket there; then the next start uses the directory again.
            with contextlib.suppress(OSError):
                self.run.rmdir()
        release_lock(self.lock_fd)

    def secret(self, name: str) -> str:
        """The generated password of this name, made on first use."""
        path = self.data / "secrets" / name
        try:
            text = path.read_text().strip()
        except FileNotFoundError:
            text = secrets.token_urlsafe(32)
            write_private(path, text + "\n")
        if not text:
            raise EmbeddedError(f"the password file {path} is empty")
        return text

    def has_secret(self, name: str) -> bool:
        return (self.data / "secrets" / name).exists()

    def log_path(self, name: str) -> Path:
        return self.data / "logs" / f"{name}.log"

    def rotate_log(self, name: str) -> None:
        path = self.log_path(name)
        if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
            path.replace(path.with_suffix(".log.old"))


def open_home(data: Path) -> Home:
    """Make the layout and take the lock; raises EmbeddedError when the directory cannot be used."""
    data = data.absolute()
    if len(os.fsencode(data)) > DATA_PATH_BYTES_MAX:
        raise EmbeddedError(
            f"the data directory's path is longer than {DATA_PATH_BYTES_MAX} bytes: {str(data)[:60]}..."
        )
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = take_lock(data / "lock")
    except FileExistsError as error:
        raise EmbeddedError(f"cannot use {data} as data directory: it is a file") from error
    except OSError as error:
        raise EmbeddedError(f"cannot use {data} as data directory: {error.strerror}") from error
    try:
        for name in ("logs", "secrets"):
            private_directory(data / name)
        return Home(data, _runtime_directory(data), fd)
    except EmbeddedError:
        release_lock(fd)
        raise


def private_directory(path: Path) -> Path:
    """Make the directory with mode 0700, or accept it if it is ours."""
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError as error:
        raise EmbeddedError(f"{path} is not a directory") from error
    except OSError as error:
        raise EmbeddedError(f"cannot make the directory {path}: {error.strerror}") from error
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise EmbeddedError(f"{path} is not a directory")
    if found.st_uid != os.geteuid():
        raise EmbeddedError(f"{path} belongs to user id {found.st_uid}, not to the one running this ({os.geteuid()})")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise EmbeddedError(f"{path} is open to other users; make it private with: chmod 700 {path}")
    return path


def write_private(path: Path, text: str) -> None:
    """Put the text there with mode 0600, whole or not at all, also across a power cut."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _runtime_directory(data: Path) -> Path:
    """A directory whose socket paths fit, and need no quoting in URLs and in PostgreSQL's comma-separated setting."""
    digest = hashlib.sha256(os.fsencode(data)).hexdigest()[:16]
    for run in (data / "run", Path(tempfile.gettempdir()) / f"aisle-{os.geteuid()}-{digest}"):
        if len(os.fsencode(run / LONGEST_SOCKET_NAME)) <= SOCKET_PATH_BYTES_MAX and PLAIN_PATH.fullmatch(str(run)):
            return private_directory(run)
    raise EmbeddedError(
        f"neither {data} nor {tempfile.gettempdir()} can hold sockets; set TMPDIR to a short plain path"
    )
