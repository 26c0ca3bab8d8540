"""`aisle ticket-keys`: which keys sign and verify tickets, a new one, and the end of one that leaked."""

import argparse
import asyncio
import os
from typing import Any

from aisle.config import Config, read_config
from aisle.errors import StartupError


def mount_ticket_keys(verbs: Any) -> None:
    what = verbs.add_parser("ticket-keys", help="keys that sign tickets").add_subparsers(required=True, metavar="WHAT")
    what.add_parser("list", help="every key, newest first").set_defaults(verb=_run, work=_list)
    rotate = what.add_parser("rotate", help="make a new key that signs from now on; older ones still verify")
    rotate.set_defaults(verb=_run, work=_rotate)
    revoke = what.add_parser("revoke", help="for a key that leaked: nothing it signed counts any more")
    revoke.add_argument("id")
    revoke.set_defaults(verb=_run, work=_revoke)


def _run(arguments: argparse.Namespace) -> int:
    from aisle.servers_file import with_running_servers

    config = with_running_servers(read_config(os.environ))
    if not config.database_url:
        raise StartupError("AISLE_DATABASE_URL is not set, and no `aisle up` is running here")
    for line in asyncio.run(_with_database(config, arguments)):
        print(line)
    return 0


async def _with_database(config: Config, arguments: argparse.Namespace) -> list[str]:
    import asyncpg

    from aisle.accounts.tokens import keys_from_setting
    from aisle.db import connect
    from aisle.door.keys import Sealer

    sealer = Sealer([key.secret for key in keys_from_setting(config.secret_key)])
    connection = await connect(config)
    try:
        lines: list[str] = await arguments.work(connection, sealer, arguments)
        return lines
    except asyncpg.UndefinedTableError:
        raise StartupError("the database has no ticket keys yet: run `aisle migrate`") from None
    finally:
        await connection.close()


async def _list(connection: Any, sealer: Any, _: argparse.Namespace) -> list[str]:
    from aisle.door.key_ring import load_keys

    lines, signing = [], True
    for key in await load_keys(connection):
        use = "revoked" if key.revoked_at else "signs" if signing else "verifies"
        signing = signing and use == "revoked"
        how = "not sealed" if not key.sealed_with else f"sealed{'' if sealer.open(key) else ', cannot be opened'}"
        lines.append(f"{key.id}  {key.created_at:%Y-%m-%d %H:%M:%S}  {use}, {how}")
    return lines or ["no key yet: the first ticket makes one"]


async def _rotate(connection: Any, sealer: Any, _: argparse.Namespace) -> list[str]:
    from aisle.audit import Deed, note
    from aisle.door.key_ring import add_key

    key = sealer.new_key()
    async with connection.transaction():
        await add_key(connection, key)
        await note(connection, Deed.TICKET_KEY_MADE, actor=None, subject=key.id)
    how = "sealed with AISLE_SECRET_KEY" if key.sealed_with else "not sealed, because AISLE_SECRET_KEY is not set"
    return [f"made {key.id}, {how}; running processes sign with it within half a minute"]


async def _revoke(connection: Any, _: Any, arguments: argparse.Namespace) -> list[str]:
    from aisle.audit import Deed, note
    from aisle.door.key_ring import revoke_key

    async with connection.transaction():
        if not await revoke_key(connection, arguments.id):
            raise StartupError(f"there is no key {arguments.id} that still counts")
        await note(connection, Deed.TICKET_KEY_REVOKED, actor=None, subject=arguments.id)
    return [f"revoked {arguments.id}; buyers download their tickets again"]
