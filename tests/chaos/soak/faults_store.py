"""Faults of the hot store: killed, torn, wiped, failed over to a replica that lags, slow, full."""

import asyncio
import os
import random
import shutil
import time
from contextlib import suppress
from pathlib import Path
from signal import SIGCONT, SIGSTOP

from redis import Redis
from redis.exceptions import RedisError

from aisle.embedded.supervisor import Supervisor, ValkeyServer
from tests.chaos.soak.nemesis import Nemesis, fault
from tests.chaos.soak.operating import Operator
from tests.chaos.soak.world import LOCALHOST


def _is_busy(nemesis: Nemesis) -> bool:
    return any(link.was_busy() for link in nemesis.world.store_links())


def operator_of(nemesis: Nemesis) -> Operator:
    return nemesis.shared.setdefault("operator", Operator(nemesis.world))


async def _tell(server: ValkeyServer, *command: str | int) -> None:
    def send() -> None:
        with Redis.from_url(server.tcp_url, socket_timeout=5) as connection:
            connection.execute_command(*command)

    await asyncio.to_thread(send)


@fault("F3", "the store is killed and comes back", takes="store")
async def store_killed(nemesis: Nemesis, chance: random.Random) -> int:
    bit = _is_busy(nemesis)
    store = nemesis.world.store
    await asyncio.to_thread(store.kill)
    await asyncio.sleep(chance.uniform(0, 2))
    await start_store(nemesis)
    return int(bit)


@fault("F4", "the store loses the tail of its file, twice killed", takes="store")
async def store_torn(nemesis: Nemesis, chance: random.Random) -> int:
    world, bit = nemesis.world, _is_busy(nemesis)
    store = world.store
    await asyncio.to_thread(store.kill)
    nemesis.history.mark("holds lost")
    torn = world.lose_tail(store, chance.choice((1, 7, 40, 200, 3000)))
    await start_store(nemesis)
    await asyncio.sleep(chance.uniform(0.2, 1.5))
    await asyncio.to_thread(store.kill)
    nemesis.history.mark("holds lost")
    await start_store(nemesis)
    await _until_admitted(nemesis)
    return int(bit and torn > 0)


@fault("F5", "the store is wiped", takes="store")
async def store_wiped(nemesis: Nemesis, chance: random.Random) -> int:
    world, bit = nemesis.world, _is_busy(nemesis)
    store = world.store
    if chance.random() < 0.5:
        await _tell(store, "FLUSHALL")
        nemesis.history.mark("holds lost")
    else:
        await asyncio.to_thread(store.kill)
        shutil.rmtree(store.keeps / "appendonlydir")
        nemesis.history.mark("holds lost")
        await world.start_again(store)
    await asyncio.sleep(chance.uniform(0, 2))
    await _until_admitted(nemesis)
    return int(bit)


@fault("F6", "the store fails over to a replica that lags", takes="store")
async def store_failed_over(nemesis: Nemesis, chance: random.Random) -> int:
    world = nemesis.world
    number = nemesis.shared["failovers"] = nemesis.shared.get("failovers", 0) + 1
    home = world.disk("store") / f"replica-{number}"
    _share_password(home, _password(world.store))
    supervisor = Supervisor(home, log=lambda line: None)
    world.stack.push_async_callback(asyncio.to_thread, supervisor.stop)
    replica = await asyncio.to_thread(supervisor.start_valkey, options={"enable-debug-command": "yes"})
    primary = world.store
    await _tell(replica, "CONFIG", "SET", "masterauth", _password(primary))
    await _tell(replica, "REPLICAOF", LOCALHOST, primary.port)
    if not await _until_synchronised(replica):
        await asyncio.to_thread(supervisor.stop)
        return 0
    os.kill(replica.pid, SIGSTOP)  # what is acknowledged now, it does not hear of
    await asyncio.sleep(chance.uniform(0.3, 1.5))
    bit = _is_busy(nemesis)
    await asyncio.to_thread(primary.kill)
    nemesis.history.mark("holds lost")
    os.kill(replica.pid, SIGCONT)
    await _tell(replica, "REPLICAOF", "NO", "ONE")
    world.use_store(replica)
    await asyncio.to_thread(shutil.rmtree, primary.keeps / "appendonlydir", ignore_errors=True)
    await _until_admitted(nemesis)
    return int(bit)


async def _until_synchronised(replica: ValkeyServer) -> bool:
    def state() -> str:
        with suppress(RedisError), Redis.from_url(replica.tcp_url, socket_timeout=2) as connection:
            return str(connection.info("replication").get("master_link_status"))
        return ""

    for _ in range(100):
        if await asyncio.to_thread(state) == "up":
            return True
        await asyncio.sleep(0.1)
    return False


def _share_password(home: Path, password: str) -> None:
    """A replica that takes over is met with the password that clients know."""
    (home / "secrets").mkdir(mode=0o700, parents=True)
    home.chmod(0o700)
    path = home / "secrets" / "valkey"
    path.touch(mode=0o600)
    path.write_text(password + "\n")


def _password(server: ValkeyServer) -> str:
    return server.tcp_url.split("://:", 1)[1].rpartition("@")[0]


@fault("F7", "the store stands still", takes="store")
async def store_stuck(nemesis: Nemesis, chance: random.Random) -> int:
    store, since = nemesis.world.store, time.monotonic()
    seconds = chance.choice((1, 3, 5))
    how = chance.choice(("stop", "pause", "sleep", "loop"))
    if how == "stop":
        os.kill(store.pid, SIGSTOP)
        await asyncio.sleep(seconds)
        os.kill(store.pid, SIGCONT)
    elif how == "pause":
        await _tell(store, "CLIENT", "PAUSE", seconds * 1000, chance.choice(("WRITE", "ALL")))
        await asyncio.sleep(seconds)
    else:
        command = ["DEBUG", "SLEEP", seconds] if how == "sleep" else ["EVAL", "for i = 1, 3e7 do end", 0]
        with suppress(RedisError):
            await _tell(store, *command)
    return int(any(link.was_busy(seconds) for link in nemesis.world.store_links()) and since > 0)


@fault("F8", "the store is out of memory", takes="store")
async def store_full(nemesis: Nemesis, chance: random.Random) -> int:
    store, since = nemesis.world.store, time.monotonic()
    await _tell(store, "CONFIG", "SET", "maxmemory", "1")
    await asyncio.sleep(chance.uniform(1, 4))
    await _tell(store, "CONFIG", "SET", "maxmemory", "0")
    return int(nemesis.troubled(since) > 0 or _is_busy(nemesis))


@fault("F20", "the disk of the store is full", takes="store")
async def store_disk_full(nemesis: Nemesis, chance: random.Random) -> int:
    world = nemesis.world
    if not world.has_disks:
        return 0
    bit = _is_busy(nemesis)
    filler = world.fill("store")
    await asyncio.sleep(chance.uniform(1, 4))
    filler.unlink()
    await asyncio.sleep(1)
    if not world.store.running:
        nemesis.sale.note("the store died of its full disk")
        await start_store(nemesis)
    return int(bit)


async def start_store(nemesis: Nemesis) -> None:
    """One whose file a full disk has spoilt is an empty one, to be rebuilt."""
    if await nemesis.world.start_again(nemesis.world.store):
        nemesis.sale.note("the store's file was spoilt and the store rebuilt")
        nemesis.history.mark("holds lost")
        await _until_admitted(nemesis)


async def _until_admitted(nemesis: Nemesis) -> None:
    if not await operator_of(nemesis).recover():
        raise AssertionError(f"the operator could not bring the store back: {operator_of(nemesis).last[-3000:]}")
