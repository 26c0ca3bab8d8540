"""What other brokers over the same store do to partitions we serve, and how we tell them.

Every append is announced while somebody else holds a lease; a broker that hears of one looks again and wakes its
waiting fetches. A lost announcement costs a fetch its full wait and no more: it asks the store when its time is up.
"""

import respline
from penstock.nodes import Nodes
from penstock.store.keys import Keys
from penstock.store.log import Log
from penstock.store.open_log import Ends
from penstock.store.scripts import Store
from penstock.store.topics import Topics
from penstock.waiters import Key, Waiters


class Peers:
    def __init__(self, store: Store, keys: Keys, nodes: Nodes, topics: Topics, log: Log, waiters: Waiters) -> None:
        self._store = store
        self._keys = keys
        self._nodes = nodes
        self._topics = topics
        self._log = log
        self._waiters = waiters
        self._open_ends: dict[Key, int] = {}
        self._seen = (nodes.epoch, store.counters.reconnects)

    async def listen(self, url: str) -> respline.Listener:
        listener = await respline.open_listener(url, self._heard, self._log.forget, name="penstock-peers")
        await listener.subscribe([self._keys.appends])
        return listener

    async def beat(self) -> None:
        """Renew the lease; forget what we know of the logs when brokers came or went or the store was away."""
        await self._nodes.beat()
        self._log.announce_on = "" if self._nodes.alone else self._keys.appends
        seen = (self._nodes.epoch, self._store.counters.reconnects)
        if seen != self._seen:
            self._seen = seen
            self._log.forget()

    async def refresh_catalogue(self) -> None:
        epoch = self._topics.epoch
        await self._topics.refresh()
        if self._topics.epoch != epoch:
            self._log.forget_topics_except(self._topics.by_id)
        if self._store.counters.reconnects != self._seen[1]:
            await self.beat()

    async def look_at_open_logs(self) -> None:
        """Plain clients do not announce what they add, so streams that somebody waits on are looked at."""
        if not self._topics.any_open_layout:
            return
        waited = [
            (topic, key[1])
            for key in self._waiters.watched()
            if (topic := self._topics.by_id.get(key[0])) and topic.settings.open_layout
        ]
        if not waited:
            self._open_ends.clear()
            return
        found = await self._log.open.ends(waited)
        seen: dict[Key, int] = {}
        for (topic, partition), ends in zip(waited, found, strict=True):
            if isinstance(ends, Ends):
                key = (topic.id, partition)
                seen[key] = ends.leo
                if ends.leo != self._open_ends.get(key):
                    self._waiters.changed(key)
        self._open_ends = seen

    def _heard(self, channel: bytes, payload: bytes) -> None:
        # "<node id> <partition> <topic>"
        node_id, partition, name = payload.decode().split(" ", 2)
        topic = self._topics.by_name.get(name)
        if topic and int(node_id) != self._nodes.me.id:
            self._log.touched(topic, int(partition))
