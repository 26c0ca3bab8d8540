"""The catalogue of topics: what exists, kept in the store, copied in memory.

Every API asks the copy; changes go through scripts that compare before they write, so brokers over one store cannot
make the same name twice. A topic is claimed first and its partitions made after; a crash in between leaves it
`creating`, and the next broker that loads it finishes. Deleting is the mirror image.
"""

import base64
import json
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import cast

import respline
from penstock import topic_config
from penstock.limits import PARTITIONS_TOTAL_MAX
from penstock.store.keys import Keys
from penstock.store.scripts import Call, Scripts, Store

TOPICS_AT_ONCE = 2_000


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: bytes  # 16 raw bytes
    partitions: int
    configs: dict[str, str]  # what was set; defaults are in `topic_config`
    configs_text: str  # as stored, to compare with
    settings: topic_config.Settings

    @property
    def id_text(self) -> str:
        return id_text(self.id)


@dataclass(frozen=True, slots=True)
class NewTopic:
    name: str
    partitions: int
    configs: dict[str, str]


class Outcome(Enum):
    DONE = "done"
    EXISTS = "exists"
    UNKNOWN = "unknown"
    TOO_MANY = "too many partitions in this cluster"
    RACED = "changed by somebody else at the same time"


def id_text(raw: bytes) -> str:
    """A topic id the way Kafka prints it."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


class Topics:
    def __init__(self, store: Store, scripts: Scripts, keys: Keys) -> None:
        self._store = store
        self._scripts = scripts
        self._keys = keys
        self._version: bytes | None = b"never loaded"
        self._checked_at = 0.0
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self.any_open_layout = False
        self.epoch = 0  # moves with every change of the copy; caches built from it compare this

    async def refresh(self, *, finish: bool = True) -> None:
        """Bring the copy up to date if the catalogue changed. One GET when it did not.

        `finish` also makes the partitions of topics that somebody left half-made; tools that only look say no.
        """
        self._checked_at = time.monotonic()
        version = await self._store.call("GET", self._keys.version)
        if version != self._version:
            await self._load(version, finish)

    async def refresh_if_stale(self, age_s: float = 0.2) -> None:
        """For requests that name something unknown: look again, but not once for each of them."""
        if time.monotonic() - self._checked_at > age_s:
            await self.refresh()

    async def create(self, wanted: Sequence[NewTopic]) -> list[Outcome]:
        if sum(topic.partitions for topic in wanted) > self._room():
            return [Outcome.TOO_MANY] * len(wanted)
        keys = self._keys
        replies = await self._scripts.run_many(
            [
                Call(
                    "topic_create",
                    (keys.topic(topic.name), keys.topics, keys.topic_ids, keys.version),
                    (topic.name, id_text(uuid.uuid4().bytes), topic.partitions, _configs_text(topic.configs)),
                )
                for topic in wanted
            ]
        )
        _raise_first_error(replies)
        await self.refresh()
        return [Outcome.DONE if reply == 1 else Outcome.EXISTS for reply in replies]

    async def delete(self, topics: Sequence[Topic]) -> list[Outcome]:
        keys = self._keys
        replies = await self._scripts.run_many(
            [
                Call(
                    "topic_delete",
                    (keys.topic(topic.name), keys.topics, keys.topic_ids, keys.deleting, keys.version),
                    (topic.name, topic.id_text),
                )
                for topic in topics
            ]
        )
        _raise_first_error(replies)
        await self.finish_deletions()
        await self.refresh()
        return [Outcome.DONE if reply == 1 else Outcome.UNKNOWN for reply in replies]

    async def alter(
        self, topic: Topic, *, partitions: int | None = None, configs: dict[str, str] | None = None
    ) -> Outcome:
        if partitions and partitions - topic.partitions > self._room():
            return Outcome.TOO_MANY
        configs_text = topic.configs_text if configs is None else _configs_text(configs)
        reply = await self._scripts.run(
            Call(
                "topic_alter",
                (self._keys.topic(topic.name), self._keys.version),
                (topic.id_text, topic.partitions, topic.configs_text, partitions or topic.partitions, configs_text),
            )
        )
        await self.refresh()
        return {1: Outcome.DONE, 0: Outcome.UNKNOWN}.get(reply, Outcome.RACED)

    async def finish_deletions(self) -> None:
        """Remove the partitions of topics that left the catalogue, here or in a broker that died half-way."""
        doomed = await self._store.call("HGETALL", self._keys.deleting)
        for topic_id, text in _pairs(doomed):
            count, _, name = text.decode().partition(" ")
            calls = [
                Call("partition_delete", self._keys.partition(name, partition), (topic_id,))
                for partition in range(int(count))
            ]
            _raise_first_error(await self._scripts.run_many(calls))
            await self._store.call("HDEL", self._keys.deleting, topic_id)

    def _room(self) -> int:
        return PARTITIONS_TOTAL_MAX - sum(topic.partitions for topic in self.by_name.values())

    async def _load(self, version: bytes | None, finish: bool) -> None:
        names = sorted(name.decode() for name in await self._store.call("SMEMBERS", self._keys.topics))
        replies: list[object] = []
        for at in range(0, len(names), TOPICS_AT_ONCE):
            chunk = [("HGETALL", self._keys.topic(name)) for name in names[at : at + TOPICS_AT_ONCE]]
            replies += await self._store.call_many(chunk)
        _raise_first_error(replies)
        by_name: dict[str, Topic] = {}
        for reply in replies:
            fields = dict(_pairs(reply))
            if not fields:  # deleted between the two reads; the version moved, so we will be back
                continue
            topic = self._unchanged_or_parsed(fields)
            if finish and fields[b"state"] != b"ready":
                await self._make_partitions(topic)
            by_name[topic.name] = topic
        self.by_name = by_name
        self.by_id = {topic.id: topic for topic in by_name.values()}
        self.any_open_layout = any(topic.settings.open_layout for topic in by_name.values())
        self._version = version
        self.epoch += 1

    def _unchanged_or_parsed(self, fields: dict[bytes, bytes]) -> Topic:
        """The topic in hand if nothing about it changed: callers may compare topics by identity."""
        name, configs_text = fields[b"name"].decode(), fields[b"configs"].decode()
        topic_id = base64.urlsafe_b64decode(fields[b"id"] + b"==")
        partitions = int(fields[b"partitions"])
        known = self.by_name.get(name)
        if known and (known.id, known.partitions, known.configs_text) == (topic_id, partitions, configs_text):
            return known
        configs = json.loads(configs_text)
        return Topic(name, topic_id, partitions, configs, configs_text, topic_config.settings(configs))

    async def _make_partitions(self, topic: Topic) -> None:
        calls = [
            Call("partition_create", self._keys.partition(topic.name, partition), (topic.id_text,))
            for partition in range(topic.partitions)
        ]
        _raise_first_error(await self._scripts.run_many(calls))
        ready = Call(
            "topic_ready", (self._keys.topic(topic.name), self._keys.version), (topic.id_text, topic.partitions)
        )
        await self._scripts.run(ready)


def _configs_text(configs: dict[str, str]) -> str:
    return json.dumps(configs, sort_keys=True, separators=(",", ":"))


def _pairs(flat: object) -> Iterable[tuple[bytes, bytes]]:
    """A hash reply, which is a flat list in RESP2 and a map in RESP3."""
    if isinstance(flat, dict):
        return flat.items()
    pairs = cast(list[bytes], flat)
    return zip(pairs[::2], pairs[1::2], strict=True)


def _raise_first_error(replies: Sequence[object]) -> None:
    for reply in replies:
        if isinstance(reply, respline.ServerError):
            raise reply
