"""Where a party that may sit anywhere is being seated: written down before seats are taken, so that a repeat finds it.

A claim is repeatable by its id inside one subsection. A request for the whole hall chooses the subsection itself, and a
worker that repeats it after a crash might choose another one and seat the party twice. So the choice is kept in
`hall_plan:<claim id>` and replaced only by comparison with the one it was based on; whoever finds another plan
follows that. The key's expiry only tidies up.
"""

from dataclasses import dataclass

from aisle.reservation.keys import Place
from aisle.scripts import load_script
from aisle.store import Store

ADOPT = load_script("aisle.reservation", "adopt")

KEEP_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Plan:
    """Shares of the party by subsection; empty before the first choice. As text: `1:A-1=2 1:A-2=3`."""

    shares: tuple[tuple[Place, int], ...] = ()

    def __str__(self) -> str:
        return " ".join(f"{place}={size}" for place, size in self.shares)

    @classmethod
    def parse(cls, text: str) -> "Plan":
        pairs = (share.rpartition("=") for share in text.split())
        return cls(tuple((Place.parse(place), int(size)) for place, _, size in pairs))


async def adopt(store: Store, claim: str, *, known: Plan, plan: Plan) -> Plan:
    """Make `plan` the one that stands if `known` still does; returns the one that stands."""
    return Plan.parse((await store.run(ADOPT, (_key(store, claim),), (str(known), str(plan), KEEP_MS))).decode())


async def standing_plan(store: Store, claim: str) -> Plan:
    """The plan that an earlier run of this claim has left; empty if there was none."""
    return Plan.parse((await store.call("GET", _key(store, claim)) or b"").decode())


def _key(store: Store, claim: str) -> str:
    return f"{store.prefix}hall_plan:{claim}"
