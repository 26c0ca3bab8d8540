"""Is this process alive, is it ready, what is it: the routes an orchestrator, a load balancer and Prometheus ask.

`/livez` never looks at a dependency, or a short outage of the store would get every process restarted at once.
`/readyz` looks at each, at most once a second whoever asks, and says which one is missing and why.
"""

import asyncio
import platform
import time
from collections.abc import Awaitable, Callable, Mapping

from litestar import Response, Router, get
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from aisle import __version__
from aisle.errors import Problem
from aisle.limits import READY_CACHE_SECONDS, READY_CHECK_SECONDS_MAX
from aisle.metrics import Metrics

Check = Callable[[], Awaitable[None]]


class NotReady(Exception):
    """A dependency check says no; the text is the reason shown."""


class Readiness:
    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks = checks
        self._draining = False
        self._checked_at = float("-inf")
        self._failures: dict[str, str] = {}
        self._one_at_a_time = asyncio.Lock()

    def drain(self) -> None:
        """From now on say no, so that no new work is sent here while the work under way ends."""
        self._draining = True

    async def failures(self) -> dict[str, str]:
        """Name -> reason of everything that keeps this process from serving; empty when ready."""
        if self._draining:
            return {"process": "draining"}
        async with self._one_at_a_time:
            if time.monotonic() - self._checked_at >= READY_CACHE_SECONDS:
                reasons = await asyncio.gather(*(self._reason(check) for check in self._checks.values()))
                self._failures = {name: why for name, why in zip(self._checks, reasons, strict=True) if why}
                self._checked_at = time.monotonic()
        return self._failures

    async def _reason(self, check: Check) -> str:
        try:
            async with asyncio.timeout(READY_CHECK_SECONDS_MAX):
                await check()
        except TimeoutError:
            return f"no answer within {READY_CHECK_SECONDS_MAX} s"
        except (NotReady, Problem, OSError) as error:
            return str(error) or type(error).__name__
        return ""


def health_routes(readiness: Readiness, metrics: Metrics) -> Router:
    @get("/livez", summary="The process runs", sync_to_thread=False)
    def livez() -> dict[str, str]:
        return {"status": "alive"}

    @get("/readyz", summary="The process and everything it needs can serve", raises=[])
    async def readyz() -> Response[dict[str, object]]:
        failures = await readiness.failures()
        if failures:
            body: dict[str, object] = {"status": "not ready", "code": "not_ready", "failures": failures}
            return Response(body, status_code=503, headers={"retry-after": "1"})
        return Response({"status": "ready"})

    @get("/version", summary="What runs here", sync_to_thread=False)
    def version() -> dict[str, str]:
        return {"aisle": __version__, "python": platform.python_version()}

    @get("/metrics", summary="Prometheus metrics", media_type=CONTENT_TYPE_LATEST, sync_to_thread=False)
    def prometheus() -> bytes:
        return generate_latest(metrics.registry)

    return Router("/", route_handlers=[livez, readyz, version, prometheus], tags=["health"])
