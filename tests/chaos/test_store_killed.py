"""The store is killed while it takes claims, and its append-only file is torn at every byte of the last claim.

What was acknowledged stays, what was not is there as a whole or not at all, and what is acknowledged after the first
restart is still there after the second: a torn transaction that stayed in the file would swallow it.
"""

import asyncio
import itertools
import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aisle.embedded.supervisor import Supervisor, ValkeyServer
from aisle.errors import StoreOutcomeUnknown, StoreUnavailable
from aisle.reservation.claims import Claim, Code
from aisle.reservation.inventory import Hall, Inventory
from aisle.reservation.keys import Place
from aisle.reservation.subsection import Subsection
from aisle.store import Store, open_store
from tests.conftest import with_settings
from tests.integration.inventory_model import View, audit, look

EPOCH = 1
PLACE = Place(1, "A", 1)
SERVERS = 4
# A finished rewrite is noticed within 2 ms instead of 100.
OPTIONS = {"hz": "500"}


@asynccontextmanager
async def opened(valkey, config, metrics) -> AsyncIterator[tuple[Store, Inventory]]:
    async with open_store(with_settings(config, store_url=valkey.url, store_prefix=""), metrics) as store:
        yield store, Inventory(store)


async def open_hall(inventory: Inventory, shape: Subsection) -> None:
    await inventory.open([Hall(PLACE, shape, price=100, limit=4)], epoch=EPOCH)
    await inventory.switch([PLACE], epoch=EPOCH, on_sale=True)


async def test_acknowledged_claims_survive_a_kill_in_the_middle_of_many(tmp_path, config, metrics):
    shape = Subsection(20, 100)
    acknowledged: dict[str, tuple[int, ...]] = {}
    unknown: list[str] = []
    enough = asyncio.Event()

    async def buy_until_the_store_dies(inventory: Inventory, buyer: int) -> None:
        for n in range(1000):
            claim = Claim(id=f"c-{buyer}-{n}", owner="o", size=2)
            try:
                [outcome] = await inventory.claim(PLACE, [claim], epoch=EPOCH)
            except StoreOutcomeUnknown:
                unknown.append(claim.id)
                return
            except StoreUnavailable:
                return
            if not outcome.ok:
                return
            acknowledged[claim.id] = outcome.runs
            if len(acknowledged) == 200:
                enough.set()

    with Supervisor(tmp_path / "data", log=lambda line: None) as supervisor:
        valkey = supervisor.start_valkey(options=OPTIONS)
        async with opened(valkey, config, metrics) as (_, inventory):
            await open_hall(inventory, shape)
            buyers = [asyncio.create_task(buy_until_the_store_dies(inventory, buyer)) for buyer in range(40)]
            await enough.wait()
            valkey.kill()
            await asyncio.gather(*buyers)
        assert len(acknowledged) >= 200
        assert unknown, "the kill met no claim under way"

        valkey.restart()
        async with opened(valkey, config, metrics) as (store, inventory):
            view = await look(store, PLACE, shape)
            assert audit(view, shape) == []
            assert {name: view.records[name].runs for name in acknowledged} == acknowledged
            assert view.records.keys() - acknowledged.keys() <= set(unknown)
            # Whoever does not know asks again under the same id, and nobody gets seats twice.
            again = await inventory.claim(PLACE, [Claim(id=name, owner="o", size=2) for name in unknown], epoch=EPOCH)
            assert {outcome.code for outcome in again} == {Code.OK}
            view = await look(store, PLACE, shape)
            assert audit(view, shape) == []
            assert view.stats["reserved"] == 2 * len(acknowledged.keys() | set(unknown))


def cuts_of(transaction: bytes) -> list[int]:
    """Where the file is torn: in `make kills` at every byte. Else at every byte of MULTI and of EXEC, and of each
    command between them before it, in its middle, before its last byte: a reader sees no other difference there.
    """
    everywhere = range(len(transaction) + 1)
    if "CHAOS_MINUTES" in os.environ:
        return list(everywhere)
    starts = [0, *(found.start() + 2 for found in re.finditer(rb"\r\n\*\d", transaction)), len(transaction)]
    chosen = {*everywhere[: starts[1]], *everywhere[starts[-2] :]}
    for start, end in itertools.pairwise(starts):
        chosen |= {start, (start + end) // 2, end - 1}
    return sorted(chosen)


@pytest.mark.long
async def test_a_file_torn_at_any_byte_of_the_last_claim_loses_that_claim_at_most(tmp_path, config, metrics):
    shape = Subsection(2, 4)
    with Supervisor(tmp_path / "first", log=lambda line: None) as supervisor:
        valkey = supervisor.start_valkey(options=OPTIONS)
        async with opened(valkey, config, metrics) as (store, inventory):
            await open_hall(inventory, shape)
            for name in ("a", "b"):
                [outcome] = await inventory.claim(PLACE, [Claim(id=name, owner="o", size=1)], epoch=EPOCH)
                assert outcome.ok
            before = await look(store, PLACE, shape)
            [torn] = (valkey.keeps / "appendonlydir").glob("*.incr.aof")
            whole_before = torn.stat().st_size
            [outcome] = await inventory.claim(PLACE, [Claim(id="z", owner="o", size=2)], epoch=EPOCH)
            assert outcome.ok
            after = await look(store, PLACE, shape)
        valkey.kill()
        files = {path.name: path.read_bytes() for path in (valkey.keeps / "appendonlydir").iterdir()}
    whole = files[torn.name]
    last = whole[whole_before:]
    assert last.startswith(b"*1\r\n$5\r\nMULTI\r\n")
    assert last.endswith(b"EXEC\r\n")
    cuts = [whole_before + cut for cut in cuts_of(last)]
    assert 40 < len(cuts) < 600, "the last claim must stay small"

    async def tear(number: int) -> None:
        with Supervisor(tmp_path / str(number), log=lambda line: None) as supervisor:
            valkey = await asyncio.to_thread(supervisor.start_valkey, options=OPTIONS)
            for cut in cuts[number::SERVERS]:
                await asyncio.to_thread(valkey.kill)
                lay_down(valkey.keeps / "appendonlydir", files | {torn.name: whole[:cut]})
                expected = after if cut == len(whole) else before
                await survive_two_restarts(valkey, expected, cut - whole_before)

    async def survive_two_restarts(valkey: ValkeyServer, expected: View, cut: int) -> None:
        await asyncio.to_thread(valkey.restart)
        async with opened(valkey, config, metrics) as (store, inventory):
            view = await look(store, PLACE, shape)
            assert view == expected, f"cut {cut} bytes into the last claim"
            [outcome] = await inventory.claim(PLACE, [Claim(id="later", owner="o", size=2)], epoch=EPOCH)
            assert outcome.ok
            view = await look(store, PLACE, shape)
        await asyncio.to_thread(valkey.kill)
        await asyncio.to_thread(valkey.restart)
        async with opened(valkey, config, metrics) as (store, _):
            assert await look(store, PLACE, shape) == view, f"second restart, cut {cut} bytes into the last claim"
            assert audit(view, shape) == []

    async with asyncio.TaskGroup() as group:
        for number in range(SERVERS):
            group.create_task(tear(number))


def lay_down(directory: Path, files: dict[str, bytes]) -> None:
    owner = directory.stat()
    shutil.rmtree(directory)
    directory.mkdir(mode=0o700)
    for name, content in files.items():
        (directory / name).write_bytes(content)
    for path in (directory, *directory.iterdir()):
        os.chown(path, owner.st_uid, owner.st_gid)
