"""Everything an API function may use, built once by `serve.running_broker` and passed to every call."""

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.config import Address, Config
from penstock.coordination import Coordination
from penstock.groups import Groups
from penstock.metrics import Metrics
from penstock.nodes import Nodes
from penstock.offsets import Offsets
from penstock.sasl import Users
from penstock.store.keys import Keys
from penstock.store.log import Log
from penstock.store.producer_ids import ProducerIds
from penstock.store.scripts import Scripts, Store
from penstock.store.topics import Topics
from penstock.transaction_coordinator import TransactionCoordinator
from penstock.waiters import Waiters


@dataclass(slots=True)
class Broker:
    config: Config
    advertised: Address
    cluster_id: str
    now_ms: Callable[[], int]
    store: Store
    scripts: Scripts
    keys: Keys
    nodes: Nodes
    topics: Topics
    log: Log
    waiters: Waiters
    producer_ids: ProducerIds
    coordination: Coordination
    groups: Groups
    offsets: Offsets
    transactions: TransactionCoordinator
    metrics: Metrics
    users: Users | None = None  # None: nobody needs to log in
    api_ranges: list[tuple[int, int, int]] = field(default_factory=list)  # (key, low, high) of dispatch.APIS
    # Encoded Metadata bodies by (version, topic names), valid for one state of the catalogue and the brokers.
    metadata_cache: dict[tuple[int, tuple[str, ...]], bytes] = field(default_factory=dict)
    metadata_state: tuple[int, int] = (-1, -1)
