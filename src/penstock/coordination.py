"""Which coordinator slots this broker holds. Groups and transactional ids are spread over 32 slots by their name.

A slot belongs to the live broker that rendezvous hashing names; that broker takes the slot's lease in the store, and
one that is no longer named gives it up. The lease says who should answer; what makes a late writer harmless is the
epoch, which every script that writes for a slot compares. Nobody may trust memory of a slot while `epoch` is None.
"""

import uuid
from collections.abc import Callable, Sequence

from penstock.nodes import LEASE_MS, Node, Nodes
from penstock.store.group_keys import SLOTS, CoordinatorKeys, slot_of
from penstock.store.scripts import Call, Scripts

# We stop trusting a lease before the store does, so that two brokers never answer for one slot.
MARGIN_MS = 1_000


class Coordination:
    def __init__(self, scripts: Scripts, keys: CoordinatorKeys, nodes: Nodes, clock_ms: Callable[[], int]) -> None:
        self._scripts = scripts
        self._keys = keys
        self._nodes = nodes
        self._clock_ms = clock_ms  # monotonic
        self._run = uuid.uuid4().hex
        self._held: dict[int, tuple[int, int]] = {}  # slot -> (epoch, trusted until)

    def node_for(self, name: str) -> Node:
        """The broker that clients should ask about this group or transactional id."""
        return self._nodes.coordinator(slot_of(name))

    def epoch(self, slot: int) -> int | None:
        """The fencing token for writes of this slot, or None while we may not answer for it."""
        epoch, until = self._held.get(slot, (0, 0))
        return epoch if self._clock_ms() < until else None

    def is_ours(self, slot: int) -> bool:
        """Whether we should hold this slot, whoever holds it now."""
        return self._nodes.coordinator(slot) == self._nodes.me

    async def beat(self) -> None:
        """Renew what is ours and give up what is not."""
        slots = range(SLOTS)
        await self.claim([slot for slot in slots if self.is_ours(slot)])
        await self._give_up([slot for slot in self._held if not self.is_ours(slot)])

    async def claim(self, slots: Sequence[int]) -> None:
        """Take or renew these leases as far as they are free."""
        asked_at = self._clock_ms()
        for slot, reply in zip(slots, await self._leases(slots, LEASE_MS), strict=True):
            if isinstance(reply, list) and reply[0] == 1:
                self._held[slot] = (reply[1], asked_at + LEASE_MS - MARGIN_MS)
            elif isinstance(reply, list):
                self._held.pop(slot, None)

    def lost(self, slot: int) -> None:
        """A script told us that somebody else has the slot."""
        self._held.pop(slot, None)

    async def leave(self) -> None:
        await self._give_up(list(self._held))

    async def _give_up(self, slots: Sequence[int]) -> None:
        for slot in slots:
            self.lost(slot)
        await self._leases(slots, 0)

    async def _leases(self, slots: Sequence[int], lease_ms: int) -> list[object]:
        if not slots:
            return []
        args = (self._nodes.me.id, self._run, lease_ms)
        calls = [Call("coordinator_lease", (self._keys.lease(slot),), args) for slot in slots]
        return list(await self._scripts.run_many(calls))
