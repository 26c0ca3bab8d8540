"""`aisle audit verify` and `aisle audit tail`: the trail of what matters for safety. Mounted by cli.py.

Exit codes: 0 the chain holds, 1 it does not (the first bad row is named), 2 there is no answer.
"""

import argparse
import asyncio
import os
import re
import sys
from typing import Any

import msgspec

from aisle.config import read_config
from aisle.errors import StartupError
from aisle.servers_file import with_running_servers

ROWS_SHOWN_MAX = 1_000


def mount_audit(verbs: Any) -> None:
    audit = verbs.add_parser("audit", help="the trail of what matters for safety").add_subparsers(
        required=True, metavar="WHAT"
    )
    verify = audit.add_parser("verify", help="recompute every seal; exit 1 and name the first row that does not fit")
    verify.add_argument("--expect", default="", metavar="HEAD", help="a head that an earlier run printed")
    verify.add_argument("--json", action="store_true", help="one JSON object on standard output")
    verify.set_defaults(verb=_verify)
    tail = audit.add_parser("tail", help="the newest rows")
    tail.add_argument("-n", type=int, default=20, metavar="ROWS", help=f"how many, at most {ROWS_SHOWN_MAX}")
    tail.add_argument("--json", action="store_true", help="one JSON object on standard output")
    tail.set_defaults(verb=_tail)


def _verify(arguments: argparse.Namespace) -> int:
    from aisle.audit import verify

    if arguments.expect and not re.fullmatch(r"\d{1,18}:[0-9a-f]{64}", arguments.expect):
        raise StartupError("--expect takes a head as `aisle audit verify` prints it, NUMBER:DIGEST")
    verdict = asyncio.run(_with_database(lambda connection: verify(connection, expected=arguments.expect)))
    if arguments.json:
        _say_json(verdict)
    elif verdict.bad is not None:
        print(f"broken at row {verdict.bad}: {verdict.why}")
    else:
        print(f"{verdict.rows} rows, every seal fits; keep this elsewhere: {verdict.head}")
    return 0 if verdict.bad is None else 1


def _tail(arguments: argparse.Namespace) -> int:
    from aisle.audit import latest

    if not 1 <= arguments.n <= ROWS_SHOWN_MAX:
        raise StartupError(f"-n takes 1 to {ROWS_SHOWN_MAX}")
    rows = asyncio.run(_with_database(lambda connection: latest(connection, before=None, limit=arguments.n)))
    if arguments.json:
        _say_json({"rows": [{**msgspec.to_builtins(row), "digest": row.digest.hex()} for row in rows]})
        return 0
    for row in reversed(rows):
        actor = row.actor or "-"
        print(f"{row.number}  {row.at:%Y-%m-%d %H:%M:%S}  {row.what}  {actor}  {row.subject}  {row.detail}".rstrip())
    return 0


async def _with_database(look: Any) -> Any:
    import asyncpg

    from aisle.db import connect

    config = with_running_servers(read_config(os.environ))
    if not config.database_url:
        raise StartupError("AISLE_DATABASE_URL is not set, and no `aisle up` is running here")
    connection = await connect(config)
    try:
        return await look(connection)
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        raise StartupError("the database has no audit trail yet: run `aisle migrate`") from None
    finally:
        await connection.close()


def _say_json(data: object) -> None:
    sys.stdout.write(msgspec.json.encode(data).decode() + "\n")
