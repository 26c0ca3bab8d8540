"""Ask the store at start which server it is, and refuse one that would lose records by its own settings.

Used by `serve`. A setting that only makes a loss possible later (no append-only file) is the operator's choice: warned
of, not refused.
"""

import re

import structlog

import respline
from penstock.config import BadConfig
from penstock.store.scripts import Store

log = structlog.get_logger("penstock.store")


async def scripts_need_transactions(store: Store) -> bool:
    """Kvrocks isolates a script but does not write it at once: there, each runs inside MULTI/EXEC."""
    return b"kvrocks_version" in await store.call("INFO", "server")


async def check_settings(store: Store, acks_fsync: bool) -> None:
    """Raises BadConfig with one sentence. `acks_fsync` says that acknowledgements wait for the store's disk."""
    lines = list(store.nodes.values()) if isinstance(store, respline.Cluster) else [store]
    for line in lines:
        info = _fields(await line.call("INFO"))
        if info.get("role", "master") not in ("master", "primary"):
            raise BadConfig("the store is a read-only replica; give the address of the primary")
        policy = info.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            raise BadConfig(f"the store's maxmemory-policy is {policy}, which may drop records; set it to noeviction")
        if acks_fsync and not await _syncs(line, info):
            raise BadConfig("--acks-fsync needs a store with appendonly yes and appendfsync everysec or always")
        if info.get("aof_enabled") == "0":
            log.warning("the store keeps no append-only file: what it holds is lost when it stops; set appendonly yes")


async def _syncs(line: Store, info: dict[str, str]) -> bool:
    """False where WAITAOF would never be answered. A server that hides its settings is believed."""
    if info.get("aof_enabled") == "0":
        return False
    try:
        policy = await line.call("CONFIG", "GET", "appendfsync")
    except respline.ServerError:
        return True
    return bool(policy != [b"appendfsync", b"no"])


def _fields(info: bytes) -> dict[str, str]:
    return dict(re.findall(r"^(\w+):(.*?)\r?$", info.decode(errors="replace"), re.MULTILINE))
