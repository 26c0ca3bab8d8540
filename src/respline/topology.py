"""The nodes of a cluster: one line to each master, the owner of each slot, and the upkeep of both.

`Cluster` asks it where a slot lives and tells it about redirections. The map is read again in the background whenever a
redirection or a lost node shows that it is old, until every master answers; callers never wait for that.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from respline.address import Address, host_and_port
from respline.dial import backoff
from respline.errors import BadUrl, NotSent, ResplineError, ServerError
from respline.line import Line
from respline.options import Options
from respline.routing import SLOTS
from respline.slotmap import HostPort, SlotRange, from_shards, from_slots


class Topology:
    def __init__(self, seeds: Sequence[Address], options: Options) -> None:
        self.lines: dict[HostPort, Line] = {}
        self.masters: list[Line] = []
        self._seeds = list(seeds)
        self._options = options
        self._owners: list[Line | None] = [None] * SLOTS
        self._stale = False
        self._closed = False
        self._upkeep: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def whole(self) -> bool:
        return None not in self._owners and all(line.connected for line in self.masters)

    def owner(self, slot: int) -> Line:
        line = self._owners[slot]
        if line is None:
            self.refresh_soon()
            raise NotSent(f"no node of the cluster is known to serve slot {slot}")
        return line

    def anyone(self) -> Line:
        line = next((line for line in self.lines.values() if line.connected), None)
        if line is None:
            raise NotSent("no node of the cluster is connected")
        return line

    async def redirected(self, refusal: ServerError, asked: Line) -> Line:
        """The line that a MOVED or ASK reply points to. Raises NotSent if it cannot be reached."""
        try:
            slot, where = refusal.message.split()
            host, port = host_and_port(where)
            number = int(slot) % SLOTS
        except (ValueError, BadUrl):
            raise NotSent(f"{asked.address} sent a redirection that cannot be read: {refusal}") from None
        line = await self._line_to((host or asked.address.host, port))
        if refusal.code == "MOVED":
            self._owners[number] = line
            if line not in self.masters:
                self.masters.append(line)
            self._stale = True
            self.refresh_soon()
        await line.ready(self._options.connect_timeout)
        return line

    async def start(self) -> None:
        """Reads the first map. Raises NotSent if none of the seeds knows one."""
        try:
            await self._read_map()
        except NotSent:
            await self.aclose()
            raise
        if not self.whole:
            self.refresh_soon()

    def refresh_soon(self) -> None:
        if not self._closed and (self._upkeep is None or self._upkeep.done()):
            self._upkeep = asyncio.get_running_loop().create_task(self._refresh(), name="respline cluster map")

    async def aclose(self) -> None:
        self._closed = True
        if self._upkeep is not None:
            self._upkeep.cancel()
            await asyncio.wait([self._upkeep])
        await asyncio.gather(*(line.aclose() for line in self.lines.values()), *self._closing)

    async def _refresh(self) -> None:
        for delay in backoff():
            self._stale = False
            try:
                await self._read_map()
            except NotSent:
                # The old map stays; whoever calls meanwhile is told by the lines themselves.
                self._stale = True
            if self.whole and not self._stale:
                return
            await asyncio.sleep(delay)

    async def _read_map(self) -> None:
        """Asks the nodes one after the other until one knows the map."""
        connected = [node for node, line in self.lines.items() if line.connected]
        reasons: list[str] = []
        for node in dict.fromkeys([*connected, *((seed.host, seed.port) for seed in self._seeds)]):
            line = await self._line_to(node)
            try:
                ranges = await self._ask_for_map(line)
            except (ResplineError, ValueError, TypeError, LookupError) as error:
                reasons.append(f"{line.address}: {error}")
                continue
            if ranges:
                await self._adopt(ranges)
                return
            reasons.append(f"{line.address}: serves no slots")
        raise NotSent(f"no node told the map of the cluster ({'; '.join(reasons)})")

    async def _ask_for_map(self, line: Line) -> list[SlotRange]:
        await line.ready(timeout=0)
        host = line.address.host
        try:
            return from_slots(await line.call("CLUSTER", "SLOTS"), host)
        except ServerError as refusal:
            if refusal.code == "CLUSTERDOWN":
                raise
            return from_shards(await line.call("CLUSTER", "SHARDS"), host, self._seeds[0].tls)

    async def _adopt(self, ranges: list[SlotRange]) -> None:
        nodes = dict.fromkeys(each.node for each in ranges)
        lines = dict(zip(nodes, await asyncio.gather(*map(self._line_to, nodes)), strict=True))
        owners: list[Line | None] = [None] * SLOTS
        for each in ranges:
            owners[each.first : each.last + 1] = [lines[each.node]] * (each.last - each.first + 1)
        self._owners = owners[:SLOTS]
        self.masters = list(lines.values())
        for node in self.lines.keys() - nodes.keys():
            # It finishes what it has in flight; nothing new is routed to it.
            task = asyncio.get_running_loop().create_task(self.lines.pop(node).aclose())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _line_to(self, node: HostPort) -> Line:
        """The line to a node, made if there is none. It may not be connected: then it goes on trying by itself."""
        if self._closed:
            raise NotSent("the cluster is closed")
        if node not in self.lines:
            host, port = node
            address = replace(self._seeds[0], host=host, port=port)
            line = self.lines[node] = Line(address, self._options, on_lost=self.refresh_soon)
            await line.start(must_connect=False)
            return line
        return self.lines[node]
