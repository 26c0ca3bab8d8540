"""Aisle as a process of its own, the way an operator runs it. Used by the tests that look from outside."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec
import psutil

from aisle.config import PREFIX, Config, environment_of
from aisle.embedded.server import free_port
from tests import children
from tests.patience import PATIENCE_SECONDS

as_environment = environment_of


def run_aisle(
    *arguments: str, env: Mapping[str, str], timeout: float = PATIENCE_SECONDS, typed: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; `typed` is its standard input."""
    return children.run(
        [sys.executable, "-m", "aisle", *arguments],
        env=clean_environment(env),
        capture_output=True,
        text=True,
        timeout=timeout,
        **({} if typed is None else {"input": typed}),
    )


@contextmanager
def serving(config: Config, roles: str = "api") -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """`aisle serve` on a free port; yields the process and its address once it is ready."""
    config = msgspec.structs.replace(config, port=free_port())
    process = children.start(
        [sys.executable, "-m", "aisle", "serve", "--roles", roles], env=clean_environment(as_environment(config))
    )
    address = f"http://{config.host}:{config.port}"
    try:
        wait_until(lambda: status_of(f"{address}/livez") == 200, f"{address} answers", process)
        yield process, address
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def clean_environment(extra: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    return {**inherited, **extra}


def status_of(url: str) -> int:
    try:
        return httpx.get(url, timeout=5).status_code
    except httpx.TransportError:
        return 0


def wait_until(condition: Callable[[], object], what: str, process: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert process is None or process.poll() is None, f"the process ended with {process.poll()} before {what}"
        assert time.monotonic() < deadline, f"waited {PATIENCE_SECONDS:.0f} s in vain until {what}"
        time.sleep(0.02)


def family(pid: int) -> list[psutil.Process]:
    """The process and everything it started."""
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def logs_of(data: Path) -> str:
    return "\n".join(f"--- {log.name}\n{log.read_text()[-2000:]}" for log in sorted((data / "logs").glob("*.log")))
