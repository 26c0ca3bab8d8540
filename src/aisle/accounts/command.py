"""`aisle account create`: the way to an operator or door account, which nobody can register. Mounted by cli.py.

The password is read from standard input, never from the arguments: those are visible to every user of the machine.
"""

import argparse
import asyncio
import os
import sys
from datetime import UTC, datetime
from typing import Any

from aisle.accounts.account import Account, Role
from aisle.config import Config, read_config
from aisle.errors import Problem, StartupError

PASSWORD_LINE_BYTES_MAX = 1024


def mount_account(verbs: Any) -> None:
    account = verbs.add_parser("account", help="create accounts").add_subparsers(required=True, metavar="WHAT")
    create = account.add_parser("create", help="create an account; the password is read from standard input")
    create.add_argument("--email", required=True)
    create.add_argument("--role", required=True, choices=[role.value for role in Role])
    create.set_defaults(verb=_create)


def _create(arguments: argparse.Namespace) -> int:
    from aisle.servers_file import with_running_servers

    config = with_running_servers(read_config(os.environ))
    if not config.database_url:
        raise StartupError("AISLE_DATABASE_URL is not set, and no `aisle up` is running here")
    if sys.stdin.isatty():
        sys.stderr.write("password: ")
        sys.stderr.flush()
    try:
        password = sys.stdin.buffer.readline(PASSWORD_LINE_BYTES_MAX).decode().rstrip("\r\n")
        account = asyncio.run(_create_account(config, arguments.email, Role(arguments.role), password))
    except UnicodeDecodeError:
        raise StartupError("the password is not valid text") from None
    except Problem as problem:
        raise StartupError(problem.detail) from None
    print(f"created {account.role} {account.email} ({account.id})")
    return 0


async def _create_account(config: Config, email: str, role: Role, password: str) -> Account:
    import asyncpg

    from aisle.accounts.passwords import Passwords
    from aisle.accounts.register import create_account
    from aisle.accounts.store import AccountsStore
    from aisle.db import open_database

    passwords = Passwords(threads=1, queue=1)
    try:
        async with open_database(config) as database:
            return await create_account(
                AccountsStore(database), passwords, email=email, password=password, role=role, now=datetime.now(UTC)
            )
    except asyncpg.UndefinedTableError:
        raise StartupError("the database has no accounts yet: run `aisle migrate`") from None
    finally:
        passwords.close()
