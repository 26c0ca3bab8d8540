"""Run the Lua scripts of this package: by digest, in batches, one round trip.

A store that restarted has forgotten its scripts and answers NOSCRIPT, which proves that nothing ran; only then is
a call repeated. A line `--! include name` stands for that file, since Lua in a store has no modules. On Kvrocks each
script runs inside MULTI/EXEC, because its scripts are isolated but not crash-atomic.
"""

import asyncio
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import respline

Store = respline.Store
Argument = str | bytes | int
CALLS_AT_ONCE = 2_000
INCLUDE = re.compile(r"^--! include (\w+)$", re.MULTILINE)
Value = Any  # a reply, or the ServerError in its place


@dataclass(frozen=True, slots=True)
class Script:
    text: str
    digest: str


@cache
def script(name: str) -> Script:
    text = INCLUDE.sub(lambda line: _source(line[1]), _source(name))
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def _source(name: str) -> str:
    return resources.files("penstock.store").joinpath("lua", f"{name}.lua").read_text()


@dataclass(frozen=True, slots=True)
class Call:
    script: str
    keys: Sequence[str]
    args: Sequence[Argument]

    def command(self) -> tuple[Argument, ...]:
        return ("EVALSHA", script(self.script).digest, len(self.keys), *self.keys, *self.args)


class Scripts:
    def __init__(self, store: Store, *, in_transactions: bool) -> None:
        self._store = store
        self._in_transactions = in_transactions

    async def run(self, call: Call) -> Any:
        """The reply of one script; a server error is raised."""
        [reply] = await self.run_many([call])
        if isinstance(reply, respline.ServerError):
            raise reply
        return reply

    async def run_many(self, calls: Sequence[Call]) -> list[Value]:
        """Replies in order, server errors as values."""
        replies: list[Value] = []
        for at in range(0, len(calls), CALLS_AT_ONCE):  # one round trip, unless somebody makes a huge topic
            replies += await self._run(calls[at : at + CALLS_AT_ONCE])
        return replies

    async def _run(self, calls: Sequence[Call]) -> list[Value]:
        replies = await self._send([call.command() for call in calls])
        forgotten = [at for at, reply in enumerate(replies) if _is_noscript(reply)]
        if not forgotten:
            return replies
        for name in {calls[at].script for at in forgotten}:
            await self._store.call("SCRIPT", "LOAD", script(name).text)
        again = await self._send([calls[at].command() for at in forgotten])
        for at, reply in zip(forgotten, again, strict=True):
            replies[at] = reply
        return replies

    async def _send(self, commands: list[tuple[Argument, ...]]) -> list[Value]:
        if not self._in_transactions:
            return list(await self._store.call_many(commands))
        return list(await asyncio.gather(*(self._in_transaction(command) for command in commands)))

    async def _in_transaction(self, command: tuple[Argument, ...]) -> Value:
        try:
            [reply] = await self._store.transaction([command])
        except respline.ServerError as error:
            return error
        return reply


def _is_noscript(reply: Value) -> bool:
    return isinstance(reply, respline.ServerError) and reply.code == "NOSCRIPT"
