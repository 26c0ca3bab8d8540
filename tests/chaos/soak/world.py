"""The product as it is deployed, in small: PostgreSQL, a hot store, a log with a store of its own, two processes with
the API and two with the workers, and a link that can misbehave between any two of them.

Whatever dies is started again, as an orchestrator would, and started again if it finds that what it needs is away.
Data lives on small file systems in memory where we may mount some, so that a disk can be filled up.
"""

import asyncio
import os
import resource
import secrets
import shutil
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from aisle.config import Config
from aisle.embedded.errors import EmbeddedError
from aisle.embedded.server import free_port
from aisle.embedded.supervisor import Program, Supervisor, ValkeyServer
from aisle.migrate import migrate
from tests import children
from tests.apache_kafka import answers
from tests.chaos.soak.links import Link
from tests.chaos.soak.nursery import Child, Nursery
from tests.running import as_environment, clean_environment
from tests.stage import Stage

WORKERS = "booking,reservation,ticketing"
LOCALHOST = "127.0.0.1"
DISKS_MB = {"postgres": 600, "store": 200, "log": 400}
WEBHOOK_SECRET = "a secret that only the provider knows"

# Short, so that holds lapse, bookings expire and money is late many times in a run.
SETTINGS: dict[str, Any] = {
    "hold_seconds": 12,
    "hold_seconds_max": 36,
    "payment_seconds": 20,
    "payment_verdict_seconds": 6,
    "sandbox_late_seconds": 25,
    "sandbox_webhook_secret": WEBHOOK_SECRET,
    "database_timeout": 4,
    "database_pool_size": 8,
    "store_timeout": 2,
    "store_connect_timeout": 2,
    "store_breaker_seconds": 1,
    "store_health_check": 5,
    "drain_seconds": 5,
    "live_queue_messages": 16,
    "write_stall_seconds": 5,
    "logins_per_address": 1_000_000,
    "registrations_per_address": 1_000_000,
}


class Node:
    """One `aisle serve`. `kept_down`: nobody starts it again until somebody says so."""

    def __init__(self, world: "World", name: str, roles: str, links: dict[str, Link]) -> None:
        self.world, self.name, self.roles, self.links = world, name, roles, links
        self.port = free_port()
        self.process: Child | None = None
        self.kept_down = False
        self.extra: dict[str, str] = {}  # environment of the next start
        self.starts = 0
        self.deaths: list[int] = []
        self.output = world.folder / f"{name}.log"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def serves(self) -> bool:
        return "api" in self.roles

    def is_busy(self) -> bool:
        return any(link.was_busy() for name, link in self.links.items() if name != "log")

    async def start(self) -> None:
        config = msgspec.structs.replace(
            self.world.config,
            port=self.port,
            database_url=_through(self.world.config.database_url, self.links["postgres"].port),
            store_url=_through(self.world.config.store_url, self.links["store"].port),
            kafka=f"{LOCALHOST}:{self.links['log'].port}",
        )
        env = clean_environment({**as_environment(config), **self.extra})
        command = ["serve", "--roles", self.roles]
        self.process = await self.world.born(command, env, self.output)
        self.starts += 1

    async def until_it_serves(self, seconds: float = 60) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if await self.is_alive():
                return True
            await asyncio.sleep(0.2)
        return False

    async def is_alive(self) -> bool:
        try:
            async with asyncio.timeout(3):
                reader, writer = await asyncio.open_connection(LOCALHOST, self.port)
                writer.write(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
                first = await reader.readline()
                writer.transport.abort()
                return b" 200 " in first
        except (OSError, TimeoutError):
            return False

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    async def ended(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.running and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        return not self.running


class World:
    def __init__(self, folder: Path, seed: int, *, nodes: int = 2, keeps: bool = False, **settings: Any) -> None:
        self.folder, self.seed, self.nodes_wanted, self.keeps = folder, seed, nodes, keeps
        self.settings = {**SETTINGS, **settings}
        self.nodes: list[Node] = []
        self.links: dict[str, Link] = {}
        self.has_disks = False
        self.is_over = False
        self.stack = AsyncExitStack()
        self._forks = ThreadPoolExecutor(max_workers=1, thread_name_prefix="forks")
        self._mounted: list[Path] = []

    async def __aenter__(self) -> "World":
        try:
            await self._start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        self.is_over = True
        await self.stack.aclose()
        self._forks.shutdown()
        for path in reversed(self._mounted):
            if self.keeps:
                leave_out = shutil.ignore_patterns("filler", "postgres", "run", "secrets")
                shutil.copytree(path, self.folder / "kept" / path.name, ignore=leave_out, dirs_exist_ok=True)
            children.run(["umount", "-l", str(path)], check=False)

    async def born(self, command: list[str], env: dict[str, str], output: Path) -> Child:
        return await self.on_fork_thread(partial(self.nursery.start, command, env, str(output)))

    async def on_fork_thread(self, begin: Any) -> Any:
        """Children die with the thread that started them, so one thread that outlives them starts them all."""
        return await asyncio.get_running_loop().run_in_executor(self._forks, begin)

    async def _start(self) -> None:
        self._mount_disks()
        self.nursery = await self.on_fork_thread(Nursery)
        self.stack.callback(self.nursery.close)
        self.supervisors = {name: Supervisor(self.disk(name) / "data", log=lambda line: None) for name in DISKS_MB}
        for supervisor in self.supervisors.values():
            self.stack.push_async_callback(asyncio.to_thread, supervisor.stop)
            supervisor.start()
        options = {"max_connections": "70", "deadlock_timeout": "200ms"}
        valkey = {"enable-debug-command": "yes"}
        self.postgres, self.store, self.log_store = await asyncio.gather(
            asyncio.to_thread(self.supervisors["postgres"].start_postgres, options=options),
            asyncio.to_thread(self.supervisors["store"].start_valkey, options=valkey),
            asyncio.to_thread(self.supervisors["log"].start_valkey, options=valkey),
        )
        broker_store = await self._link("broker-store", LOCALHOST, self.log_store.port)
        self.broker_port = free_port()
        log = await self._link("log", LOCALHOST, self.broker_port)
        self.broker = await asyncio.to_thread(self._start_broker, log.port, broker_store.port)
        self.config = Config(
            database_url=self.postgres.tcp_url, store_url=self.store.tcp_url, store_prefix="chaos:",
            kafka=f"{LOCALHOST}:{self.broker_port}", secret_key=secrets.token_hex(32), **self.settings,
        )  # fmt: skip
        await migrate(self.config)
        self.stage = Stage(self.config, self.folder, None)
        for kind in ("api,live", WORKERS):
            for number in range(1, self.nodes_wanted + 1):
                await self._add_node(f"{'api' if 'api' in kind else 'workers'}-{number}", kind)
        await asyncio.gather(*(node.start() for node in self.nodes))
        self.stack.push_async_callback(self._end_nodes)
        served = await asyncio.gather(*(node.until_it_serves(120) for node in self.nodes))
        assert all(served), "\n".join(node.output.read_text()[-2000:] for node in self.nodes)
        keeping = asyncio.create_task(self._keep_nodes_up())
        self.stack.push_async_callback(_stop, keeping)

    def _mount_disks(self) -> None:
        for name, size in DISKS_MB.items():
            path = self.disk(name)
            path.mkdir(parents=True)
            if os.geteuid() == 0:
                command = ["mount", "-t", "tmpfs", "-o", f"size={size}m,mode=0755", "aisle-chaos", str(path)]
                done = children.run(command, capture_output=True, check=False)
                if done.returncode == 0:
                    self._mounted.append(path)
        self.has_disks = len(self._mounted) == len(DISKS_MB)

    def disk(self, name: str) -> Path:
        return self.folder / "disks" / name

    def _start_broker(self, advertised: int, store: int) -> Program:
        address = f"{LOCALHOST}:{self.broker_port}"
        command = [sys.executable, "-m", "penstock", "serve", "--listen", address, "--keyspace", "chaos"]
        command += ["--advertise", f"{LOCALHOST}:{advertised}", "--group-initial-delay", "0", "--store-timeout", "2"]
        env = {"PENSTOCK_STORE": _through(self.log_store.tcp_url, store)}
        supervisor = self.supervisors["log"]
        return supervisor.start_program("penstock", command, env, ready=lambda: answers(address))

    async def _link(self, name: str, host: str, port: int) -> Link:
        link = Link(name, host, port, self.seed + len(self.links))
        await link.open()
        self.stack.push_async_callback(link.close)
        self.links[name] = link
        return link

    async def _add_node(self, name: str, roles: str) -> Node:
        links = {
            "store": await self._link(f"{name}-store", LOCALHOST, self.store.port),
            "postgres": await self._link(f"{name}-postgres", LOCALHOST, self.postgres.port),
            "log": self.links["log"],
        }
        node = Node(self, name, roles, links)
        if node.serves:
            links["client"] = await self._link(f"client-{name}", LOCALHOST, node.port)
        self.nodes.append(node)
        return node

    @property
    def doors(self) -> list[tuple[str, int]]:
        """Where clients knock."""
        return [(LOCALHOST, node.links["client"].port) for node in self.nodes if node.serves]

    def store_links(self) -> list[Link]:
        return [node.links["store"] for node in self.nodes]

    def postgres_links(self) -> list[Link]:
        return [node.links["postgres"] for node in self.nodes]

    async def _keep_nodes_up(self) -> None:
        while not self.is_over:
            await asyncio.sleep(0.1)
            for node in self.nodes:
                if node.process is not None and node.process.poll() is not None and not node.kept_down:
                    node.deaths.append(node.process.returncode)
                    node.process = None
                    await node.start()

    async def _end_nodes(self) -> None:
        for node in self.nodes:
            node.kept_down = True
            node.signal(signal.SIGCONT)
            node.signal(signal.SIGKILL)
            await node.ended(10)

    async def start_again(self, server: Program) -> bool:
        """A server that is down, as its supervisor would: again and again until it stays up.

        A store whose file cannot be read any more starts empty, as an operator would have it; then the answer is true.
        """
        lost = False
        for pause_s in (0, 0.5, 1, 2, 4, 8, 8, 8):
            await asyncio.sleep(pause_s)
            try:
                await asyncio.to_thread(server.start)
                return lost
            except EmbeddedError as error:
                if "Bad file format" in str(error) and isinstance(server, ValkeyServer):
                    lost = True
                    shutil.rmtree(server.keeps / "appendonlydir")
        raise AssertionError(f"{server.name} does not start: {server.last_words()}")

    def use_store(self, server: ValkeyServer) -> None:
        """Another server is the hot store from now on."""
        self.store = server
        self.config = msgspec.structs.replace(self.config, store_url=server.tcp_url)
        self.stage.config = self.config
        for link in self.store_links():
            link.lead_to(LOCALHOST, server.port)

    def lose_tail(self, server: ValkeyServer, size: int) -> int:
        """Tear the end off the append-only file of a store that is down; returns how much was torn."""
        torn = max((server.keeps / "appendonlydir").glob("*.incr.aof"), key=lambda path: path.stat().st_mtime)
        length = torn.stat().st_size
        os.truncate(torn, max(0, length - size))
        return min(size, length)

    def fill(self, disk: str) -> Path:
        """Until nothing fits any more."""
        path = self.disk(disk) / "filler"
        with suppress(OSError), path.open("wb") as filler:
            while True:
                filler.write(bytes(1 << 20))
        left = shutil.disk_usage(self.disk(disk)).free
        with suppress(OSError), path.open("ab") as filler:
            for _ in range(left // 4096 + 1):
                filler.write(bytes(4096))
                filler.flush()
        return path


def raise_file_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _through(url: str, port: int) -> str:
    """The same server by way of a link."""
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    return parts._replace(netloc=f"{login}@{LOCALHOST}:{port}").geturl()


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
