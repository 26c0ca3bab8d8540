"""A cluster with the doors of a line: each command goes to the node that serves its key's slot.

A MOVED or ASK reply proves that the command did not run, so it is sent again to the node that the reply names, a few
times at most. That is the only case in which respline sends a command twice.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import fields
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeGuard

from respline.address import Address
from respline.command import Argument, Command, Reply, encode
from respline.errors import NotSent, OutcomeUnknown, ResplineError, ServerError
from respline.line import Line
from respline.options import Counters, Options
from respline.routing import common_slot, route
from respline.topology import Topology

HOPS_MAX = 5
_REDIRECTIONS = ("MOVED", "ASK")


class Cluster:
    """Made by `open_cluster`."""

    def __init__(self, seeds: Sequence[Address], options: Options) -> None:
        self._topology = Topology(seeds, options)
        self._loop = asyncio.get_running_loop()
        self._options = options
        self._following: set[asyncio.Task[None]] = set()

    @property
    def connected(self) -> bool:
        """True if every slot has an owner and every owner is connected."""
        return self._topology.whole

    @property
    def in_flight(self) -> int:
        return sum(line.in_flight for line in self._topology.lines.values())

    @property
    def nodes(self) -> dict[str, Line]:
        """The line to each master, for what concerns a single node."""
        return {str(line.address): line for line in self._topology.masters}

    @property
    def server_info(self) -> dict[str, str]:
        return next((line.server_info for line in self._topology.masters if line.server_info), {})

    @property
    def counters(self) -> Counters:
        """Sums over the present nodes."""
        lines = self._topology.lines.values()
        return Counters(*(sum(getattr(line.counters, field.name) for line in lines) for field in fields(Counters)))

    def call(self, *args: Argument) -> asyncio.Future[Reply]:
        """Queues one command at the node of its key; see `Line.call`."""
        future: asyncio.Future[Reply] = self._loop.create_future()
        try:
            targets = self._targets(args)
        except NotSent as refusal:
            future.set_exception(refusal)
            return future
        if len(targets) == 1:
            targets[0].call(*args).add_done_callback(partial(self._settle, future, args, targets[0]))
        else:
            self._resolve(future, self._call_everywhere(args))
        return future

    async def call_many(self, commands: Sequence[Command]) -> list[Reply]:
        """One write per node; replies in the order of the list, error replies as ServerError values.

        Raises NotSent if nothing ran, OutcomeUnknown if the part of some node did not run or may not have run.
        """
        groups: dict[Line, list[int]] = {}
        for position, command in enumerate(commands):
            encode(command)  # A list with one bad command changes nothing, on no node.
            for line in self._targets(command):
                groups.setdefault(line, []).append(position)
        answers = await asyncio.gather(
            *(line.call_many([commands[position] for position in group]) for line, group in groups.items()),
            return_exceptions=True,
        )
        _raise_failure(answers)
        replies: list[Reply] = [None] * len(commands)
        asked: dict[int, Line] = {}
        for (line, group), answer in zip(groups.items(), answers, strict=True):
            for position, reply in zip(group, answer, strict=True):  # type: ignore[arg-type]
                if not isinstance(replies[position], ServerError):
                    replies[position] = reply
                    asked[position] = line
        await self._follow_all(commands, replies, asked)
        return replies

    async def transaction(self, commands: Sequence[Command]) -> list[Reply]:
        """MULTI ... EXEC on the one node that serves all keys; see `Line.transaction`."""
        if not commands:
            return []
        line = self._topology.owner(common_slot(commands))
        asking = False
        for hops_left in range(HOPS_MAX, -1, -1):
            try:
                return await line.transaction(commands, asking=asking)
            except ServerError as error:
                # The redirection answers a queued command, or EXEC itself if the slot left in between.
                redirection = error if _redirects(error) else error.__cause__
                if not _redirects(redirection) or not hops_left:
                    raise
                line = await self._topology.redirected(redirection, line)
                asking = redirection.code == "ASK"
        raise AssertionError("the last hop returns or raises")

    async def ready(self, timeout: float | None = None) -> None:
        """Waits until every master is connected. Raises NotSent after `timeout` seconds."""
        await asyncio.gather(*(line.ready(timeout) for line in self._topology.masters))

    async def start(self) -> None:
        await self._topology.start()

    async def aclose(self) -> None:
        """Closes every line as `Line.aclose` does."""
        await self._topology.aclose()
        # Those under way have just been told that their line is closed.
        await asyncio.gather(*self._following)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _targets(self, command: Command) -> list[Line]:
        target = route(command)
        if isinstance(target, int):
            return [self._topology.owner(target)]
        return list(self._topology.masters) if target.every_node else [self._topology.anyone()]

    def _settle(
        self, future: asyncio.Future[Reply], command: Command, asked: Line, answer: asyncio.Future[Reply]
    ) -> None:
        error = answer.exception()
        if future.done():
            return
        if error is None:
            future.set_result(answer.result())
        elif _redirects(error):
            self._resolve(future, self._follow(command, error, asked))
        else:
            future.set_exception(error)

    def _resolve(self, future: asyncio.Future[Reply], work: Coroutine[Any, Any, Reply]) -> None:
        """Does the rare work that needs a task, and hands its result to a future already given out."""

        async def run() -> None:
            try:
                reply = await work
            except ResplineError as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(reply)

        task = self._loop.create_task(run())
        self._following.add(task)
        task.add_done_callback(self._following.discard)

    async def _call_everywhere(self, command: Command) -> Reply:
        [reply] = await self.call_many([command])
        if isinstance(reply, ServerError):
            raise reply
        return reply

    async def _follow(self, command: Command, redirection: ServerError, asked: Line) -> Reply:
        for _ in range(HOPS_MAX):
            line = await self._topology.redirected(redirection, asked)
            try:
                return await (line.call_asking(*command) if redirection.code == "ASK" else line.call(*command))
            except ServerError as error:
                if not _redirects(error):
                    raise
                redirection, asked = error, line
        raise redirection

    async def _follow_all(self, commands: Sequence[Command], replies: list[Reply], asked: dict[int, Line]) -> None:
        """Replaces the redirections among the replies by what the right nodes answer."""
        moved = [position for position, reply in enumerate(replies) if _redirects(reply)]
        if not moved:
            return
        answers = await asyncio.gather(
            *(self._follow(commands[position], replies[position], asked[position]) for position in moved),
            return_exceptions=True,
        )
        for position, answer in zip(moved, answers, strict=True):
            replies[position] = answer
        _raise_failure(replies)


def _redirects(reply: object) -> TypeGuard[ServerError]:
    return isinstance(reply, ServerError) and reply.code in _REDIRECTIONS


def _raise_failure(answers: Sequence[object]) -> None:
    """Raises what one exception can say about a list of which parts failed: NotSent only if nothing at all ran."""
    failures = [
        answer for answer in answers if isinstance(answer, BaseException) and not isinstance(answer, ServerError)
    ]
    if not failures:
        return
    if len(failures) == len(answers) and all(isinstance(failure, NotSent) for failure in failures):
        raise failures[0]
    bugs = [failure for failure in failures if not isinstance(failure, ResplineError)]
    if bugs:
        raise bugs[0]
    raise OutcomeUnknown(f"a part of the list has no reply: {failures[0]}") from failures[0]
