"""The groups this broker coordinates, as a scraper sees them: members, rebalances, lag.

Read when somebody asks, by `metrics_page`. Each group is told by its coordinator alone, so sums over brokers are right.
Reads only, in a bounded number of round trips.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from penstock.broker import Broker
from penstock.store.log import View
from penstock.store.offsets import Offset, Position

# Every group is a handful of time series for whoever stores them; of the others only their number is told.
GROUPS_SHOWN_MAX = 1_000


@dataclass(slots=True)
class GroupFigures:
    name: str
    members: int
    generation: int  # moves with every rebalance, and is stored: it goes on after a restart
    lag: Counter[str] = field(default_factory=Counter)  # topic -> offsets between what is committed and the end


@dataclass(slots=True)
class AllGroups:
    total: int = 0
    shown: list[GroupFigures] = field(default_factory=list)


async def group_figures(broker: Broker) -> AllGroups:
    groups = sorted((g for held in broker.groups.in_memory() for g in held.groups.values()), key=lambda g: g.name)
    shown = [GroupFigures(g.name, len(g.members), g.generation) for g in groups[:GROUPS_SHOWN_MAX]]
    rows = await broker.offsets.fetch([(figures.name, None) for figures in shown])
    committed = [{} if isinstance(row, ErrorCode) else _of_living_topics(broker, row) for row in rows]
    ends = await _ends(broker, {position for row in committed for position in row})
    for figures, row in zip(shown, committed, strict=True):
        for position, offset in row.items():
            if position in ends:
                figures.lag[position.topic] += max(ends[position] - offset.offset, 0)
    return AllGroups(len(groups), shown)


def group_families(groups: AllGroups) -> Iterator[Metric]:
    yield GaugeMetricFamily("penstock_groups", "Groups this broker coordinates.", value=groups.total)
    members = GaugeMetricFamily("penstock_group_members", "Members of a group.", labels=["group"])
    rebalances = CounterMetricFamily("penstock_group_rebalances", "Rebalances a group has ended.", labels=["group"])
    lag = GaugeMetricFamily(
        "penstock_group_lag", "Offsets a group has not committed yet, over a topic.", labels=["group", "topic"]
    )
    for group in groups.shown:
        members.add_metric([group.name], group.members)
        rebalances.add_metric([group.name], group.generation)
        for topic, behind in group.lag.items():
            lag.add_metric([group.name, topic], behind)
    yield from (members, rebalances, lag)


def _of_living_topics(broker: Broker, row: dict[Position, Offset]) -> dict[Position, Offset]:
    """An offset of an earlier topic of the same name says nothing about this one."""
    topics = broker.topics.by_name
    return {
        at: offset for at, offset in row.items() if at.topic in topics and topics[at.topic].id_text == offset.topic_id
    }


async def _ends(broker: Broker, positions: set[Position]) -> dict[Position, int]:
    asked = sorted(positions)
    views = await broker.log.views([(broker.topics.by_name[at.topic], at.partition) for at in asked])
    return {at: view.leo for at, view in zip(asked, views, strict=True) if isinstance(view, View)}
