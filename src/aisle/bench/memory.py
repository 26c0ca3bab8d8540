"""Bytes that an event takes in the store, open and sold out.

The difference of the server's used memory around an event that is not its first, so that script caches and buffers
made once do not count; MEMORY USAGE of every key, summed, stands beside it as a check.
"""

import re

import msgspec

from aisle.bench.selling import Sold, claim_all, confirm_all, orders_for
from aisle.bench.stage import Stage
from aisle.reservation.inventory import Hall

FIELDS = re.compile(rb"^(used_memory|mem_clients_normal|mem_aof_buffer):(\d+)", re.MULTILINE)


class Bytes(msgspec.Struct, frozen=True):
    open: int
    sold: int
    keys_open: int
    keys_sold: int


async def measure_memory(stage: Stage) -> Bytes:
    halls = stage.new_halls()
    before = await _used(stage)
    await stage.open(halls)
    opened, keys_open = await _used(stage), await _of_keys(stage, halls)
    orders, sold = orders_for(halls, stage.sizes.batch), Sold()
    await claim_all(stage, orders, sold, 1)
    await confirm_all(stage, orders, 1)
    await stage.audit_sold_out(halls, sold)
    full, keys_sold = await _used(stage), await _of_keys(stage, halls)
    await stage.clear(halls)
    return Bytes(opened - before, full - before, keys_open, keys_sold)


async def _used(stage: Stage) -> int:
    """Used memory less the buffers of connections and of the append-only file, which come and go with the load."""
    fields = {name: int(value) for name, value in FIELDS.findall(await stage.store.call("INFO", "memory"))}
    return fields[b"used_memory"] - fields[b"mem_clients_normal"] - fields[b"mem_aof_buffer"]


async def _of_keys(stage: Stage, halls: list[Hall]) -> int:
    keys = [key for hall in halls for key in stage.inventory.keys(hall.place)]
    usages = await stage.store.call_many([("MEMORY", "USAGE", key, "SAMPLES", 0) for key in keys])
    return sum(usage or 0 for usage in usages)
