"""HTTP routes of what is live: a hall's seats, the updates of an event, the updates of my bookings.

The streams are written with plain ASGI `send` of bytes that all browsers share. They are `@get` handlers and not
`@asgi` ones, because those do not appear in the OpenAPI document; what that costs is paid once a connection.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any

from litestar import Response, Router, get
from litestar.datastructures import ResponseHeader
from litestar.params import FromPath, FromQuery, HeaderParameter, QueryParameter
from litestar.response.base import ASGIResponse
from litestar.types import Receive, Send

from aisle.accounts.access import CurrentActor
from aisle.accounts.account import Actor
from aisle.http_server import CONNECTION
from aisle.limits import LIVE_RETRY_MS
from aisle.live import sse
from aisle.live.hall import HallMap
from aisle.live.hub import Hub
from aisle.live.mailbox import Mailbox, Message
from aisle.live.seats import Wish

# Measuring each delivery would cost a tenth of the delivery itself.
MEASURED_ONE_IN = 64

HEADERS = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no"))

LastId = Annotated[str | None, HeaderParameter(name="Last-Event-ID", max_length=64)]


class Stream(ASGIResponse):
    """An answer without an end. Nothing is sent before `join` has succeeded, so a refusal is an ordinary answer."""

    def __init__(
        self,
        hub: Hub,
        join: Callable[[Mailbox], Awaitable[None]],
        leave: Callable[[Mailbox], None],
        actor: Actor | None = None,
    ) -> None:
        super().__init__()
        self._hub = hub
        self._join = join
        self._leave = leave
        self._actor = actor

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        with self._hub.connections.admitted(self._actor) as mailbox:
            watcher = asyncio.create_task(_end_when_gone(receive, mailbox))
            try:
                await self._join(mailbox)
                await self._write(mailbox, send, scope["extensions"][CONNECTION].write_chunk)
            finally:
                watcher.cancel()
                self._leave(mailbox)

    async def _write(self, mailbox: Mailbox, send: Send, write_chunk: Callable[[bytes], bool]) -> None:
        # A message of its own for each connection: what stands around the application adds to its headers.
        await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
        await send(_body(sse.retry(*LIVE_RETRY_MS)))
        measured = mailbox.number % MEASURED_ONE_IN == 0
        mailbox.when_idle(partial(self._write_measured, write_chunk) if measured else partial(_write_now, write_chunk))
        while messages := await mailbox.take():
            await send(_body(_joined(messages)))
            if measured:
                for message in messages:
                    self._observe(message)
        await send({"type": "http.response.body", "body": mailbox.last_words, "more_body": False})

    def _write_measured(self, write_chunk: Callable[[bytes], bool], message: Message) -> bool:
        written = _write_now(write_chunk, message)
        if written:
            self._observe(message)
        return written

    def _observe(self, message: Message) -> None:
        self._hub.metrics.sse_delivery_seconds.observe(self._hub.clock() - message.made_at)


def _write_now(write_chunk: Callable[[bytes], bool], message: Message) -> bool:
    return write_chunk(message.data)


async def _end_when_gone(receive: Receive, mailbox: Mailbox) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    mailbox.end()


def _joined(messages: list[Message]) -> bytes:
    return messages[0].data if len(messages) == 1 else b"".join(message.data for message in messages)


def _body(data: bytes) -> Any:
    return {"type": "http.response.body", "body": data, "more_body": True}


def live_routes(hub: Hub) -> Router:
    @get(
        "/events/{event_id:int}/seatmap",
        summary="Every seat of an event, two bits each, with the version they had",
        response_headers=[ResponseHeader(name="ETag", documentation_only=True, description="Changes with any seat.")],
    )
    async def show_seatmap(
        event_id: FromPath[int],
        if_none_match: Annotated[str | None, HeaderParameter(name="If-None-Match", max_length=200)] = None,
    ) -> Response[HallMap]:
        hall = await hub.seats.hall(event_id)
        headers = {"etag": hall.etag, "cache-control": "no-cache"}
        if if_none_match is not None and hall.etag in if_none_match:
            return Response(b"", status_code=304, headers=headers)  # type: ignore[arg-type]
        return Response(hall.data, media_type="application/json", headers=headers)  # type: ignore[arg-type]

    @get(
        "/events/{event_id:int}/updates",
        summary="What happens to an event's seats, as it happens (server-sent events)",
        media_type="text/event-stream",
    )
    async def watch_event(
        event_id: FromPath[int],
        section: Annotated[str | None, QueryParameter(max_length=32)] = None,
        seats: FromQuery[bool] = False,
        last_event_id: LastId = None,
    ) -> Stream:
        wish = Wish(event_id, section, seats, last_event_id)
        return Stream(hub, partial(hub.seats.join, wish=wish), partial(hub.seats.leave, wish=wish))

    @get(
        "/bookings/updates",
        summary="What happens to my bookings, as it happens (server-sent events)",
        media_type="text/event-stream",
    )
    async def watch_bookings(actor: CurrentActor, last_event_id: LastId = None) -> Stream:
        buyer = actor.account_id
        return Stream(
            hub,
            partial(hub.bookings.join, buyer=buyer, last_id=last_event_id),
            partial(hub.bookings.leave, buyer=buyer),
            actor,
        )

    @get(
        "/events/{event_id:int}/sales/updates",
        summary="My event's sales figures, as they change (server-sent events)",
        media_type="text/event-stream",
    )
    async def watch_sales(event_id: FromPath[int], actor: CurrentActor) -> Stream:
        seller = actor.account_id
        return Stream(
            hub,
            partial(hub.sales.join, event=event_id, seller=seller),
            partial(hub.sales.leave, event=event_id, seller=seller),
            actor,
        )

    routes: list[Any] = [show_seatmap, watch_event, watch_bookings, watch_sales]
    return Router("/api/v1", route_handlers=routes, tags=["live"])
