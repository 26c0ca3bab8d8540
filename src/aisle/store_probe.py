"""Find out which server we talk to, and refuse one on which our scripts would not mean what they say.

The probe does once, on a key of its own, what every claim does: create a string of zero bytes, flip bits in a script,
read them back. Kvrocks, for one, would make a bitmap of a key born by BITFIELD, and answer GETRANGE with an error.
"""

import os
import re
from typing import NamedTuple

import respline
from aisle.errors import StartupError
from aisle.scripts import load_script
from respline import ResplineError


class Server(NamedTuple):
    flavour: str
    version: str
    run_id: str

    @property
    def scripts_are_crash_atomic(self) -> bool:
        return self.flavour != "kvrocks"


async def probe(line: respline.Store, prefix: str) -> Server:
    key = f"{prefix}probe:{{{os.urandom(6).hex()}}}"
    flip = load_script("aisle", "probe")
    try:
        info = _fields(await line.call("INFO"))
        if info.get("role", "master") not in ("master", "primary"):
            raise StartupError("store: the server is a read-only replica; give the address of the primary")
        if info.get("maxmemory_policy", "noeviction") != "noeviction":
            raise StartupError(
                f"store: maxmemory-policy is {info['maxmemory_policy']}, which may drop seats; set it to noeviction"
            )
        flipped, kind = await line.call("EVAL", flip.source, 1, key)
    except ResplineError as error:
        raise StartupError(f"store: not usable as a Redis-compatible store: {error}") from None
    if (flipped, kind) != (b"\x00\x40\x00\x00", b"string"):
        raise StartupError(f"store: the start-up probe read {flipped!r} ({kind!r}); scripts would not be safe here")
    return _server(info)


def _server(info: dict[str, str]) -> Server:
    for flavour, field in (("kvrocks", "kvrocks_version"), ("valkey", "valkey_version"), ("redis", "redis_version")):
        if field in info:
            return Server(flavour, info[field], info.get("run_id", ""))
    raise StartupError("store: the server does not say which it is")


def _fields(info: bytes) -> dict[str, str]:
    return dict(re.findall(r"^(\w+):(.*?)\r?$", info.decode(errors="replace"), re.MULTILINE))
