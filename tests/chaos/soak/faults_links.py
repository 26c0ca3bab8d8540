"""Faults of the network between any two programs: away, one way only, slow, in pieces, cut in a frame, another byte."""

import asyncio
import random
from collections.abc import Callable

from tests.chaos.soak.links import Link
from tests.chaos.soak.nemesis import Nemesis, fault

# name of the link's kind -> the links of it
ENDS: dict[str, Callable[[Nemesis], list[Link]]] = {
    "store": lambda n: n.world.store_links(),
    "PostgreSQL": lambda n: n.world.postgres_links(),
    "log": lambda n: [n.world.links["log"]],
    "log's store": lambda n: [n.world.links["broker-store"]],
    "clients": lambda n: [node.links["client"] for node in n.world.nodes if node.serves],
}
PARTITIONS = {
    "refuse": "refuses connections", "blackhole": "swallows everything", "up_lost": "loses what is asked",
    "down_lost": "loses the answers", "cut": "is cut in the middle of frames",
}  # fmt: skip
DISTORTIONS = {"delay": "is slow", "slice": "carries bytes one by one", "corrupt": "changes the first byte of a frame"}


def _faults_of(end: str, links_of: Callable[[Nemesis], list[Link]]) -> None:
    async def misbehave(nemesis: Nemesis, chance: random.Random, kinds: tuple[str, ...]) -> int:
        links = links_of(nemesis)
        free = [link for link in links if not link.kind]
        chosen = chance.sample(free, chance.randrange(1, len(free) + 1)) if free else []
        kind = chance.choice(kinds)
        # Corruption makes client libraries give up connections: a short one is enough.
        for link in chosen:
            link.spoil(kind, delay_s=chance.uniform(0.05, 0.6))
        await asyncio.sleep(0.5 if kind in ("corrupt", "cut") else chance.choice((1, 2, 5)))
        met = sum(link.met > 0 for link in chosen)
        for link in chosen:
            link.heal(and_cut=chance.random() < 0.5)
        return met

    slow = " F16" if end == "log" else ""

    @fault("F17", f"the link to the {end} is partitioned", takes=f"link-{end}")
    async def partitioned(nemesis: Nemesis, chance: random.Random) -> int:
        return await misbehave(nemesis, chance, tuple(PARTITIONS))

    @fault(f"F18{slow}", f"the link to the {end} is slow, sliced or corrupt", takes=f"link-{end}")
    async def distorted(nemesis: Nemesis, chance: random.Random) -> int:
        return await misbehave(nemesis, chance, tuple(DISTORTIONS))


for _end, _links_of in ENDS.items():
    _faults_of(_end, _links_of)
