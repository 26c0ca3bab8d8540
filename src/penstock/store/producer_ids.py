"""Producer ids, unique over all brokers of a store: taken in blocks, so that most cost no round trip."""

from penstock.limits import PRODUCER_ID_BLOCK
from penstock.store.keys import Keys
from penstock.store.scripts import Store


class ProducerIds:
    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys
        self._free = range(0)

    async def next(self) -> int:
        if not self._free:
            end = int(await self._store.call("INCRBY", self._keys.producer_ids, PRODUCER_ID_BLOCK))
            # Another request may have fetched a block while we waited; the ids of the replaced one are just not used.
            self._free = range(end - PRODUCER_ID_BLOCK, end)
        taken, self._free = self._free[0], self._free[1:]
        return taken
