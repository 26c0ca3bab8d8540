"""`aisle dlq list` and `aisle dlq replay`: messages that could not be handled. Mounted by cli.py.

Exit codes: 0 done, 1 `list` has something to show, 2 there is no answer (one line on standard error says why).
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from aisle.config import read_config
from aisle.errors import StartupError
from aisle.log_address import LogAddress, log_address
from aisle.servers_file import with_running_servers

if TYPE_CHECKING:
    from aisle.dead_letters import DeadLetter

VALUE_CHARS_SHOWN = 200


def mount_dlq(verbs: Any) -> None:
    dlq = verbs.add_parser("dlq", help="messages that could not be handled").add_subparsers(
        required=True, metavar="WHAT"
    )
    listing = dlq.add_parser("list", help="what lies there and why; exit 1 if there is something")
    listing.add_argument("--lane", metavar="LANE", help="only this lane: an event's id, or `shared`")
    listing.add_argument("--all", action="store_true", help="also what was replayed already")
    listing.add_argument("--json", action="store_true", help="one JSON object on standard output")
    listing.set_defaults(verb=_list)
    replaying = dlq.add_parser("replay", help="send it back where it came from, once")
    replaying.add_argument("--lane", metavar="LANE", help="only this lane: an event's id, or `shared`")
    replaying.add_argument("--json", action="store_true", help="one JSON object on standard output")
    replaying.set_defaults(verb=_replay)


def _list(arguments: argparse.Namespace) -> int:
    from aisle.dead_letters import read_dead_letters

    kafka, lanes = _lanes(arguments.lane)
    letters = [letter for lane in lanes for letter in read_dead_letters(kafka, lane, replayed_too=arguments.all)]
    if arguments.json:
        _say_json({"dead_letters": [_shown(letter) for letter in letters]})
    else:
        for letter in letters:
            print(
                f"{letter.lane} {letter.offset}  {letter.buried_at:%Y-%m-%d %H:%M:%S}  {letter.kind or '?'} {letter.id}"
            )
            print(f"    {letter.reason}")
        print(f"{len(letters)} messages in {len(lanes)} lanes wait for a replay" if not arguments.all else len(letters))
    return 1 if letters else 0


def _replay(arguments: argparse.Namespace) -> int:
    from aisle.dead_letters import read_dead_letters, replay

    kafka, lanes = _lanes(arguments.lane)
    # Once over each lane: what fails again comes to lie there again, and is for the next replay.
    waiting = {lane: read_dead_letters(kafka, lane) for lane in lanes}
    if any(waiting.values()):
        asyncio.run(_note({lane: len(letters) for lane, letters in waiting.items() if letters}))
    replayed = {lane: replay(kafka, lane, letters) for lane, letters in waiting.items() if letters}
    if arguments.json:
        _say_json({"replayed": replayed})
    else:
        for lane, count in replayed.items():
            print(f"{lane}  {count} messages sent again")
        print(f"{sum(replayed.values())} messages in all")
    return 0


async def _note(lanes: dict[str, int]) -> None:
    """In the audit trail, before anything is sent: without it nothing is replayed."""
    from aisle.audit import Deed, note
    from aisle.db import connect

    config = with_running_servers(read_config(os.environ))
    if not config.database_url:
        raise StartupError("AISLE_DATABASE_URL is not set: a replay is noted in the audit trail there")
    connection = await connect(config)
    try:
        await note(connection, Deed.DEAD_LETTERS_REPLAYED, actor=None, detail=lanes)
    finally:
        await connection.close()


def _lanes(wanted: str | None) -> tuple[LogAddress, Sequence[str]]:
    from aisle.dead_letters import find_lanes

    config = with_running_servers(read_config(os.environ))
    if not config.kafka:
        raise StartupError(f"AISLE_KAFKA is not set and no `aisle up` runs on {config.data_dir}: there is no log")
    address = log_address(config)
    lanes = find_lanes(address)
    if wanted is not None and wanted not in lanes:
        raise StartupError(f"there is no lane {wanted[:40]!r}")
    return address, lanes if wanted is None else [wanted]


def _shown(letter: "DeadLetter") -> dict[str, Any]:
    shown = msgspec.to_builtins(letter)
    return {**shown, "value": letter.value[:VALUE_CHARS_SHOWN].decode(errors="replace")}


def _say_json(data: object) -> None:
    sys.stdout.write(msgspec.json.encode(data).decode() + "\n")
