"""Who a server runs as. PostgreSQL refuses root, and `make up` must work as root in a clone under /root.

As root we prefer a user namespace that shows the server an ordinary user while the kernel still knows it as us: files
keep their owner and a 0700 parent stays reachable. Where namespaces are refused, the server becomes an ordinary
user and gets its own directory. The functions passed to children run between fork and exec: no imports, no locks.
"""

import ctypes
import os
import pwd
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aisle.embedded.errors import EmbeddedError

CLONE_NEWUSER = 0x10000000
PR_SET_PDEATHSIG = 1
PROBE_SECONDS = 10.0

libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Identity:
    become: Callable[[], None] | None = None  # run in the child before exec
    owner: pwd.struct_passwd | None = None  # whom its files must belong to, when not to us


def unprivileged_identity(binary: Path, data: Path, owner: int) -> Identity:
    """The way to run `binary` under `data` on files of `owner` without being root, tried out before it is returned."""
    if os.geteuid() != 0:
        return Identity()
    if owner == 0 and _works(shown := _shown_as_ordinary_user(), binary, data, os.R_OK | os.W_OK | os.X_OK):
        return Identity(shown)
    user = _ordinary_user() if owner == 0 else pwd.getpwuid(owner)
    if data.stat().st_uid == 0:
        # The user must pass through this directory to its own; everything else in it stays 0700.
        data.chmod(0o711)
    if _works(dropped := _dropped_to(user), binary, data, os.X_OK):
        return Identity(dropped, user)
    raise EmbeddedError(
        f"PostgreSQL does not run as root, user namespaces are refused here, and user {user.pw_name} cannot reach "
        f"both {data} and {binary}; start as an ordinary user or move them to where that user may go"
    )


def die_with_parent(parent: int, death_signal: int) -> None:
    """Run in the child, after any change of user, since the kernel forgets the setting with one."""
    if libc.prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        os._exit(1)


def _shown_as_ordinary_user() -> Callable[[], None]:
    # initdb looks its user up, so the id must have an entry in the password file.
    uid = _ordinary_user().pw_uid

    def enter_namespace() -> None:
        if libc.unshare(CLONE_NEWUSER) != 0:
            raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWUSER)")
        for name, line in (("setgroups", "deny"), ("uid_map", f"{uid} 0 1"), ("gid_map", f"{uid} 0 1")):
            fd = os.open(f"/proc/self/{name}", os.O_WRONLY)
            os.write(fd, line.encode())
            os.close(fd)

    return enter_namespace


def _dropped_to(user: pwd.struct_passwd) -> Callable[[], None]:
    def drop() -> None:
        os.setgroups([])
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)

    return drop


def _ordinary_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise EmbeddedError("PostgreSQL does not run as root and there is no user postgres or nobody to run it as")


def _works(become: Callable[[], None], binary: Path, data: Path, access: int) -> bool:
    def become_and_reach() -> None:
        become()
        if not os.access(data, access):
            raise PermissionError(os.fspath(data))

    try:
        done = subprocess.run(  # noqa: S603 - our own binary
            [binary, "--version"],
            preexec_fn=become_and_reach,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0
