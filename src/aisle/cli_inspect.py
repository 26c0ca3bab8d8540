"""The verbs that look into the hot store, `aisle inspect ...`, and change nothing. Mounted by cli.py.

Exit codes: 0 shown, 2 there is no answer (one line on standard error says why). With --json standard output is one JSON
object and nothing else.
"""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aisle.cli_store import event_number, on_store, say_json

if TYPE_CHECKING:
    from aisle.reservation.keys import Place
    from aisle.reservation.pool import PoolPlace
    from aisle.store import Store


def mount_inspect(verbs: Any) -> None:
    inspect = verbs.add_parser("inspect", help="look into the hot store; changes nothing").add_subparsers(
        required=True, metavar="WHAT"
    )
    section = inspect.add_parser("section", help="counts and state of an event's subsections and pools, or of one")
    section.add_argument("where", metavar="EVENT[:PLACE]", help="1, 1:A-1, or a pool such as 1:GA")
    section.set_defaults(verb=lambda arguments: on_store(lambda store: _sections(store, arguments)))
    seats = inspect.add_parser("seats", help="the seats of a subsection, drawn")
    seats.add_argument("where", metavar="PLACE", help="1:A-1")
    seats.set_defaults(verb=lambda arguments: on_store(lambda store: _seats(store, arguments)))
    holds = inspect.add_parser("holds", help="who has which seats or how many places, and for how long")
    holds.add_argument("where", metavar="PLACE|EVENT", help="1:A-1, 1:GA, or 1")
    holds.set_defaults(verb=lambda arguments: on_store(lambda store: _holds(store, arguments)))
    keys = inspect.add_parser("keys", help="how many keys of each kind, how heavy, and which belong to nothing")
    keys.add_argument("--event", metavar="N", help="only this event")
    keys.set_defaults(verb=lambda arguments: on_store(lambda store: _keys(store, arguments)))
    facts = inspect.add_parser("facts", help="an event's bookings as the JSON that `aisle rebuild --from` reads")
    facts.add_argument("where", metavar="EVENT")
    facts.set_defaults(verb=lambda arguments: on_store(lambda store: _facts(store, arguments)))
    for parser in (section, seats, holds, keys, facts):
        parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


async def _sections(store: "Store", arguments: argparse.Namespace) -> int:
    from aisle.reservation.inspect import look_at_sections
    from aisle.reservation.inspect_pools import look_at_pools
    from aisle.reservation.inspect_text import pools_text, sections_text

    places, pools = await _named(store, arguments.where)
    sections, counted = await look_at_sections(store, places), await look_at_pools(store, pools)
    tables = ([sections_text(sections)] if sections else []) + ([pools_text(counted)] if counted else [])
    return _show(arguments, {"sections": sections, "pools": counted}, "\n\n".join, tables)


async def _seats(store: "Store", arguments: argparse.Namespace) -> int:
    from aisle.reservation.inspect import look_at_seats
    from aisle.reservation.inspect_text import seats_text
    from aisle.reservation.keys import Place

    view = await look_at_seats(store, Place.parse(arguments.where))
    return _show(arguments, view, seats_text, view)


async def _holds(store: "Store", arguments: argparse.Namespace) -> int:
    from aisle.reservation.inspect import look_at_holds
    from aisle.reservation.inspect_pools import look_at_pool_holds
    from aisle.reservation.inspect_text import holds_text

    places, pools = await _named(store, arguments.where)
    views = [*await look_at_holds(store, places), *await look_at_pool_holds(store, pools)]
    return _show(arguments, {"holds": views}, holds_text, views)


async def _keys(store: "Store", arguments: argparse.Namespace) -> int:
    from aisle.reservation.inspect import look_at_keys
    from aisle.reservation.inspect_text import keys_text

    event = None if arguments.event is None else event_number(arguments.event)
    if event is not None:
        await _named(store, str(event))
    view = await look_at_keys(store, event)
    return _show(arguments, view, keys_text, view)


async def _facts(store: "Store", arguments: argparse.Namespace) -> int:
    from aisle.reservation.facts import facts_to_json
    from aisle.reservation.inspect import look_at_facts

    print(facts_to_json(await look_at_facts(store, event_number(arguments.where))).decode())
    return 0


async def _named(store: "Store", where: str) -> "tuple[list[Place], list[PoolPlace]]":
    """The subsections and pools that `1`, `1:A-1` or `1:GA` names."""
    from aisle.reservation.inspect import places_of_event
    from aisle.reservation.keys import BadName, Place
    from aisle.reservation.pool import PoolPlace
    from aisle.reservation.verify import pools_there

    if ":" not in where:
        pools = sorted(await pools_there(store, event_number(where)))
        try:
            return await places_of_event(store, event_number(where)), pools
        except LookupError:
            if not pools:
                raise
            return [], pools
    try:
        return [], [PoolPlace.parse(where)]
    except BadName:
        return [Place.parse(where)], []


def _show(arguments: argparse.Namespace, data: object, draw: Callable[[Any], str], view: object) -> int:
    if arguments.json:
        say_json(data)
    else:
        print(draw(view))
    return 0
