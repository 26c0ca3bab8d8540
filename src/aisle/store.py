"""Hot store edge: scripts and commands over one auto-pipelined connection, guarded by a circuit breaker.

Nothing is ever sent twice behind the caller's back. A call that certainly did not happen is `StoreUnavailable`; one
that may have happened is `StoreOutcomeUnknown`, and the caller repeats it under the same operation id or looks.
NOSCRIPT is the one answer that proves a script did not run, so the script is loaded and sent again.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import respline
from aisle.breaker import BreakerState, CircuitBreaker
from aisle.config import Config
from aisle.errors import StartupError, StoreOutcomeUnknown, StoreScriptFailed, StoreUnavailable
from aisle.metrics import Metrics
from aisle.scripts import Script
from aisle.store_probe import Server, probe
from respline import NotSent, OutcomeUnknown, ServerError

SCRIPT_LOADS_MAX = 3
# A server that takes no writes for a while: no memory, no disk, loading, busy, not the primary. It has done nothing.
REFUSES_FOR_NOW = frozenset(
    {"OOM", "MISCONF", "LOADING", "BUSY", "READONLY", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN"}
)

Argument = bytes | str | int | float
Keys = Sequence[bytes | str]
Arguments = Sequence[Argument]
Command = tuple[Argument, ...]


@asynccontextmanager
async def open_store(config: Config, metrics: Metrics) -> AsyncIterator["Store"]:
    """Connect, prove that the server behaves as our scripts need it to, close on the way out."""
    try:
        line = await _open_line(config, timeout=config.store_timeout)
    except respline.ResplineError as error:
        raise StartupError(f"store: {error}") from None
    try:
        server = await probe(line, config.store_prefix)
        yield Store(line, server, config, metrics)
    finally:
        await line.aclose()


class Store:
    def __init__(self, line: respline.Store, server: Server, config: Config, metrics: Metrics) -> None:
        self.server = server
        self.prefix = config.store_prefix
        self.breaker = CircuitBreaker(time.monotonic, config.store_breaker_seconds)
        self._line = line
        self._config = config
        self._metrics = metrics
        # One connection carries the data; the rest of the pool is for readers that block.
        self._blocking_slots = asyncio.Semaphore(config.store_pool_size - 1)
        self.blocking_in_use = 0
        self._timers: dict[str, Callable[[float], None]] = {}
        metrics.store_breaker_open.set_function(lambda: self.breaker.state is BreakerState.OPEN)

    async def call(self, *command: Argument) -> Any:
        """One command. Raises ServerError when the server refuses it."""
        return await self._guarded(self._line.call(*command) if self._allowed() else None)

    async def call_many(self, commands: Sequence[Command]) -> list[Any]:
        """Many commands in one round trip; a refused one leaves its ServerError in the list."""
        replies: list[Any] = await self._guarded(self._line.call_many(commands) if self._allowed() else None)
        return replies

    @property
    def nodes(self) -> list[respline.Line]:
        """The line to each server, for what concerns a single one: its run, its share of the keys."""
        return list(self._line.nodes.values()) if isinstance(self._line, respline.Cluster) else [self._line]

    async def call_on(self, node: respline.Line, *command: Argument) -> Any:
        """One command to one of `nodes`."""
        return await self._guarded(node.call(*command) if self._allowed() else None)

    async def run(self, script: Script, keys: Keys, args: Arguments) -> Any:
        [reply] = await self.run_many(script, [(keys, args)])
        if isinstance(reply, StoreScriptFailed):
            raise reply
        return reply

    async def run_many(self, script: Script, calls: Sequence[tuple[Keys, Arguments]]) -> list[Any]:
        """Run a script once per call in one round trip; a failed run leaves its StoreScriptFailed in the list."""
        started = time.perf_counter()
        commands = [(b"EVALSHA", script.sha, len(keys), *keys, *args) for keys, args in calls]
        replies = await self._send(commands)
        # Somebody may flush the scripts again between the load and the run, but not for ever.
        for _ in range(SCRIPT_LOADS_MAX):
            missing = [
                n for n, reply in enumerate(replies) if isinstance(reply, ServerError) and reply.code == "NOSCRIPT"
            ]
            if not missing:
                break
            await self.call(b"SCRIPT", b"LOAD", script.source)
            for n, reply in zip(missing, await self._send([commands[n] for n in missing]), strict=True):
                replies[n] = reply
        self._require_taken(replies)
        for n, reply in enumerate(replies):
            if isinstance(reply, ServerError):
                self._metrics.store_errors_total.labels("script").inc()
                replies[n] = StoreScriptFailed(script.name, reply.code, str(reply))
        self._timer(script.name)(time.perf_counter() - started)
        return replies

    async def ping(self) -> None:
        await self.call(b"PING")

    @asynccontextmanager
    async def blocking_line(self) -> AsyncIterator[respline.Store]:
        """A connection of one's own, without a time-out, for reads that wait in the server."""
        async with self._blocking_slots:
            line = await _open_line(self._config, timeout=None)
            self.blocking_in_use += 1
            try:
                yield line
            finally:
                self.blocking_in_use -= 1
                await line.aclose()

    async def _send(self, commands: list[Command]) -> list[Any]:
        if self.server.scripts_are_crash_atomic:
            return await self.call_many(commands)
        # Kvrocks commits each write of a script on its own; inside MULTI the whole script is one write batch.
        runs = await asyncio.gather(
            *(self._guarded(self._line.transaction([c]) if self._allowed() else None) for c in commands)
        )
        return [reply for [reply] in runs]

    def _require_taken(self, replies: Sequence[Any]) -> None:
        """Raise if the server refused some of it for now: that is no fault of what was sent, and may be sent again."""
        refused = [reply for reply in replies if isinstance(reply, ServerError) and reply.code in REFUSES_FOR_NOW]
        if not refused:
            return
        self._metrics.store_errors_total.labels("refused").inc()
        if len(refused) < len(replies):
            raise StoreOutcomeUnknown(f"the store took some of it only: {refused[0]}")
        raise StoreUnavailable(f"the store refuses: {refused[0]}")

    def _timer(self, script: str) -> Callable[[float], None]:
        # Looking a label up costs more than measuring with it, so each script's is looked up once.
        timer = self._timers.get(script)
        if timer is None:
            timer = self._timers[script] = self._metrics.store_script_seconds.labels(script).observe
        return timer

    def _allowed(self) -> bool:
        return self.breaker.state is BreakerState.CLOSED or self.breaker.allows()

    async def _guarded(self, sent: Awaitable[Any] | None) -> Any:
        if sent is None:
            self._metrics.store_errors_total.labels("breaker").inc()
            raise StoreUnavailable(
                "the store is not answering; calls are paused", retry_after_s=self.breaker.retry_after_s()
            )
        try:
            reply = await sent
        except NotSent as error:
            self.breaker.failed()
            self._metrics.store_errors_total.labels("not_sent").inc()
            raise StoreUnavailable(str(error)) from None
        except OutcomeUnknown as error:
            self.breaker.failed()
            self._metrics.store_errors_total.labels("unknown").inc()
            raise StoreOutcomeUnknown(str(error)) from None
        except asyncio.CancelledError:
            self.breaker.abandoned()
            raise
        except ServerError as error:
            self.breaker.succeeded()
            self._require_taken([error])
            raise
        self.breaker.succeeded()
        return reply


async def _open_line(config: Config, *, timeout: float | None) -> respline.Store:
    return await respline.open_store(
        config.store_url,
        name="aisle",
        connect_timeout=config.store_connect_timeout,
        timeout=timeout,
        health_check_interval=config.store_health_check,
        keepalive=config.store_keepalive,
    )
