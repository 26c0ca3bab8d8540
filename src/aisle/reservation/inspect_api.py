"""HTTP routes of the store inspector, for operators. They read; there is no route that writes into the store."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec
from litestar import Router, get
from litestar.params import FromPath, QueryParameter

from aisle.errors import Problem, StoreScriptFailed
from aisle.reservation.glance import (
    EventGlance,
    KeysGlance,
    SeatGlance,
    glance_at_event,
    glance_at_holds,
    glance_at_keys,
    glance_at_seat,
)
from aisle.reservation.inspect import HoldView, Unreadable
from aisle.reservation.keys import BadName, Place
from aisle.reservation.keyspace import NAMES
from aisle.reservation.pool import PoolPlace
from aisle.reservation.record import BadRecord
from aisle.store import Store
from respline import ServerError

EVENT_MAX = 10**18 - 1
PLACE = r"^[1-9][0-9]{0,17}:[A-Za-z0-9_]{1,32}(-[1-9][0-9]{0,5})?$"
SEAT = r"^[1-9][0-9]{0,4}-[1-9][0-9]{0,2}$"


class Holds(msgspec.Struct):
    """The holds of one place that end soonest."""

    items: list[HoldView]


def inspect_routes(store: Store, pools_of: Callable[[int], Awaitable[Sequence[str]]]) -> Router:
    """`pools_of` names the pools of an event; one that nobody knows has none."""

    @get("/events/{event_id:int}", summary="An event in the store: its subsections with their counts, and its pools")
    async def inspect_event(
        event_id: FromPath[int], after: Annotated[int, QueryParameter(ge=0, le=10_000)] = 0
    ) -> EventGlance:
        if not 0 < event_id <= EVENT_MAX:
            raise Problem(404, "not_found", "no such event")
        with _told():
            return await glance_at_event(store, event_id, await pools_of(event_id), after=after)

    @get("/holds", summary="Who holds seats or places of a subsection or pool, soonest deadline first")
    async def inspect_holds(place: Annotated[str, QueryParameter(pattern=PLACE)]) -> Holds:
        with _told():
            where = Place.parse(place) if "-" in place else PoolPlace.parse(place)
            return Holds(await glance_at_holds(store, where))

    @get("/seats", summary="The state of a seat and who has it")
    async def inspect_seat(
        place: Annotated[str, QueryParameter(pattern=PLACE)], seat: Annotated[str, QueryParameter(pattern=SEAT)]
    ) -> SeatGlance:
        row, number = map(int, seat.split("-"))
        with _told():
            return await glance_at_seat(store, Place.parse(place), row, number)

    @get("/keys", summary="Keys of the store by kind, a page at a time, found with SCAN")
    async def inspect_keys(
        name: Annotated[str, QueryParameter(pattern=f"^({'|'.join(NAMES)})?$")] = "",
        event: Annotated[int | None, QueryParameter(ge=1, le=EVENT_MAX)] = None,
        cursor: Annotated[str, QueryParameter(pattern="^([0-9]{1,4}-[0-9]{1,20})?$")] = "",
    ) -> KeysGlance:
        with _told():
            return await glance_at_keys(store, name=name, event=event, start=cursor)

    routes: list[Any] = [inspect_event, inspect_holds, inspect_seat, inspect_keys]
    return Router("/api/v1/ops/store", route_handlers=routes, tags=["operation"])


@contextmanager
def _told() -> Iterator[None]:
    """What is not there is 404, what cannot be shown says why."""
    try:
        yield
    except LookupError as error:
        raise Problem(404, "not_found", str(error.args[0])) from None
    except BadName as error:
        raise Problem(422, "bad_place", str(error)) from None
    except (Unreadable, BadRecord, StoreScriptFailed, ServerError) as error:
        raise Problem(409, "store_unreadable", f"{error}; `aisle verify` says more") from None
