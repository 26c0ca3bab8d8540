"""The store's server in memory: the few commands that the product sends, and its scripts, run by a real Lua.

The scripts are the product's own text; only what `redis.call` does is ours. `test_conformance` holds it against Valkey.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import msgspec
from lupa.luajit21 import LuaRuntime

from aisle.scripts import Script
from respline import ServerError
from respline.errors import server_error

Now = Callable[[], float]

# Runs a compiled script and says whether it ended well; an error table of a script carries its text in `err`.
GUARD = b"""
function(chunk, keys, argv)
  KEYS, ARGV = keys, argv
  local ok, reply = pcall(chunk)
  if ok then return true, reply end
  return false, type(reply) == 'table' and reply.err or tostring(reply)
end
"""


class HotStore:
    """All keys of one history. `now` is the server's own clock, in seconds."""

    def __init__(self, now: Now) -> None:
        self.now = now
        self.keys: dict[bytes, Any] = {}
        self.dies_at: dict[bytes, int] = {}

    def command(self, *asked: Any) -> Any:
        """One command as a client sends it."""
        name, *args = [as_bytes(arg) for arg in asked]
        if self.dies_at:
            self._forget_expired()
        return COMMANDS[name.upper()](self, *args)

    def run(self, script: Script, keys: Sequence[Any], args: Sequence[Any]) -> Any:
        engine = lua()
        engine.store = self
        return engine.run(script, [as_bytes(key) for key in keys], [as_bytes(arg) for arg in args])

    def copy(self) -> tuple[dict[bytes, Any], dict[bytes, int]]:
        """What a replica, or a file, has of it at this moment."""
        return {k: v if type(v) is bytes else type(v)(v) for k, v in self.keys.items()}, dict(self.dies_at)

    def become(self, copy: tuple[dict[bytes, Any], dict[bytes, int]]) -> None:
        self.keys, self.dies_at = copy

    def hash(self, key: bytes) -> dict[bytes, bytes]:
        return self._typed(key, dict)

    def zset(self, key: bytes) -> "Sorted":
        return self._typed(key, Sorted)

    def now_ms(self) -> int:
        return int(self.now() * 1000)

    def _typed(self, key: bytes, kind: type) -> Any:
        found = self.keys.get(key)
        if found is None:
            return kind()
        if type(found) is not kind:
            raise ServerError("WRONGTYPE", "Operation against a key holding the wrong kind of value")
        return found

    def _forget_expired(self) -> None:
        now = self.now_ms()
        for key in [key for key, at in self.dies_at.items() if at <= now]:
            del self.dies_at[key]
            self.keys.pop(key, None)


class Sorted(dict[bytes, float]):
    """A sorted set: member -> score."""

    def between(self, low: bytes, high: bytes) -> list[tuple[bytes, float]]:
        least, most = float(low), float(high)
        return sorted(
            ((member, score) for member, score in self.items() if least <= score <= most), key=lambda p: (p[1], p[0])
        )


def as_bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return score_text(value)
    return b"%d" % value


def score_text(score: float) -> bytes:
    return b"%d" % score if score == int(score) else b"%.17g" % score


def _set(store: HotStore, key: bytes, value: bytes, *options: bytes) -> bytes | None:
    words = [option.upper() for option in options]
    if b"NX" in words and key in store.keys:
        return None
    store.keys[key] = value
    store.dies_at.pop(key, None)
    if b"PX" in words:
        store.dies_at[key] = store.now_ms() + int(options[words.index(b"PX") + 1])
    return b"OK"


def _setrange(store: HotStore, key: bytes, offset: bytes, value: bytes) -> int:
    old = store._typed(key, bytes)
    at = int(offset)
    store.keys[key] = old[:at].ljust(at, b"\0") + value + old[at + len(value) :]
    return len(store.keys[key])


def _getrange(store: HotStore, key: bytes, start: bytes, end: bytes) -> bytes:
    value: bytes = store._typed(key, bytes)
    return value[int(start) : int(end) + 1]


def _delete(store: HotStore, *keys: bytes) -> int:
    return sum(store.keys.pop(key, None) is not None for key in keys)


def _hset(store: HotStore, key: bytes, *pairs: bytes) -> int:
    found = store.hash(key)
    before = len(found)
    found.update(zip(pairs[::2], pairs[1::2], strict=True))
    store.keys[key] = found
    return len(found) - before


def _hdel(store: HotStore, key: bytes, *fields: bytes) -> int:
    found = store.hash(key)
    gone = sum(found.pop(field, None) is not None for field in fields)
    return _tidy(store, key, gone)


def _hgetall(store: HotStore, key: bytes) -> list[bytes]:
    return [item for pair in store.hash(key).items() for item in pair]


def _zadd(store: HotStore, key: bytes, *pairs: bytes) -> int:
    found = store.zset(key)
    before = len(found)
    found.update({member: float(score) for score, member in zip(pairs[::2], pairs[1::2], strict=True)})
    store.keys[key] = found
    return len(found) - before


def _zrem(store: HotStore, key: bytes, *members: bytes) -> int:
    found = store.zset(key)
    gone = sum(found.pop(member, None) is not None for member in members)
    return _tidy(store, key, gone)


def _zrangebyscore(store: HotStore, key: bytes, low: bytes, high: bytes, *options: bytes) -> list[bytes]:
    words = [option.upper() for option in options]
    found = store.zset(key).between(low, high)
    if b"LIMIT" in words:
        at = words.index(b"LIMIT")
        found = found[int(options[at + 1]) :][: int(options[at + 2])]
    return _members(found, b"WITHSCORES" in words)


def _zrange(store: HotStore, key: bytes, start: bytes, stop: bytes, *options: bytes) -> list[bytes]:
    found = store.zset(key).between(b"-inf", b"inf")
    last = int(stop) if int(stop) >= 0 else len(found) + int(stop)
    return _members(found[int(start) : last + 1], bool(options))


def _members(found: Sequence[tuple[bytes, float]], with_scores: bool) -> list[bytes]:
    if not with_scores:
        return [member for member, _ in found]
    return [item for member, score in found for item in (member, score_text(score))]


def _zscore(store: HotStore, key: bytes, member: bytes) -> bytes | None:
    score = store.zset(key).get(member)
    return None if score is None else score_text(score)


def _tidy(store: HotStore, key: bytes, gone: int) -> int:
    if not store.keys.get(key, True):
        del store.keys[key]
    return gone


def _time(store: HotStore) -> list[bytes]:
    now = int(store.now() * 1_000_000)
    return [b"%d" % (now // 1_000_000), b"%d" % (now % 1_000_000)]


def _type(store: HotStore, key: bytes) -> bytes:
    return {bytes: b"string", dict: b"hash", Sorted: b"zset"}.get(type(store.keys.get(key)), b"none")


COMMANDS: dict[bytes, Callable[..., Any]] = {
    b"GET": lambda store, key: store._typed(key, bytes) if key in store.keys else None,
    b"SET": _set,
    b"SETRANGE": _setrange,
    b"GETRANGE": _getrange,
    b"DEL": _delete,
    b"EXISTS": lambda store, *keys: sum(key in store.keys for key in keys),
    b"HGET": lambda store, key, field: store.hash(key).get(field),
    b"HMGET": lambda store, key, *fields: list(map(store.hash(key).get, fields)),
    b"HSET": _hset,
    b"HDEL": _hdel,
    b"HGETALL": _hgetall,
    b"HVALS": lambda store, key: list(store.hash(key).values()),
    b"ZADD": _zadd,
    b"ZREM": _zrem,
    b"ZCARD": lambda store, key: len(store.zset(key)),
    b"ZSCORE": _zscore,
    b"ZRANGEBYSCORE": _zrangebyscore,
    b"ZRANGE": _zrange,
    b"TIME": _time,
    b"TYPE": _type,
    b"SCAN": lambda store, *_: [b"0", list(store.keys)],
}


class Lua:
    """One Lua for all histories of a process; `store` is the one whose script runs now."""

    def __init__(self) -> None:
        self._lua = LuaRuntime(encoding=None, unpack_returned_tuples=True, register_eval=False)
        self._table = self._lua.table_from
        self._guard = self._lua.eval(GUARD)
        self._chunks: dict[bytes, Any] = {}
        self.store: HotStore
        names = self._lua.globals()
        names[b"redis"] = self._table({b"call": self._call, b"pcall": self._pcall})
        names[b"cmsgpack"] = self._table({b"pack": self._pack, b"unpack": self._unpack})

    def run(self, script: Script, keys: list[bytes], args: list[bytes]) -> Any:
        chunk = self._chunks.get(script.sha)
        if chunk is None:
            chunk = self._chunks[script.sha] = self._lua.compile(script.source)
        ended_well, reply = self._guard(chunk, self._table(keys), self._table(args))
        if not ended_well:
            raise server_error(reply.decode(errors="replace"))
        return self._reply(reply)

    def _call(self, name: bytes, *args: Any) -> Any:
        store = self.store
        if store.dies_at:
            store._forget_expired()
        found = COMMANDS[name](store, *[arg if type(arg) is bytes else as_bytes(arg) for arg in args])
        if found is None:
            return False
        if type(found) is list:
            return self._table([False if item is None else item for item in found])
        return found

    def _pcall(self, name: bytes, *args: Any) -> Any:
        try:
            return self._call(name, *args)
        except ServerError as error:
            return self._table({b"err": str(error).encode()})

    def _unpack(self, packed: bytes) -> Any:
        return self._to_lua(msgspec.msgpack.decode(packed))

    def _to_lua(self, value: Any) -> Any:
        if type(value) is list:
            return self._table([self._to_lua(item) for item in value])
        if type(value) is dict:
            return self._table({self._to_lua(key): self._to_lua(item) for key, item in value.items()})
        return value.encode() if type(value) is str else value

    def _pack(self, table: Any) -> bytes:
        return msgspec.msgpack.encode(_from_lua(table))

    def _reply(self, value: Any) -> Any:
        """A script's return value as a client sees it: a list ends at its first nil, numbers lose their fraction."""
        if isinstance(value, bytes | int) and not isinstance(value, bool):
            return value
        if isinstance(value, float):
            return int(value)
        if value is None or value is False:
            return None
        if value is True:
            return 1
        return [self._reply(item) for item in value.values()]


def _from_lua(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    if value is None or isinstance(value, bool | int | float):
        return value
    keys = list(value.keys())
    if keys == list(range(1, len(keys) + 1)):
        return [_from_lua(item) for item in value.values()]
    return {_from_lua(key): _from_lua(item) for key, item in value.items()}


@cache
def lua() -> Lua:
    return Lua()
