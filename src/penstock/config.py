"""What an operator may choose. Built by `cli` from flags and passed on; nothing is read from the environment."""

from dataclasses import dataclass

from penstock import limits


class BadConfig(ValueError):
    """One clear sentence for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """`127.0.0.1:9092`, `[::1]:9092`, `:9092` (all interfaces)."""
        host, colon, port = text.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise BadConfig(f"{text!r} is not HOST:PORT")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))


@dataclass(frozen=True, slots=True)
class Config:
    listen: Address
    store_url: str
    advertise: Address | None = None  # what clients are told to connect to; the listening address if not given
    keyspace: str = "penstock"
    node_id: int = 1
    auto_create_topics: bool = True
    default_partitions: int = 1
    store_timeout_s: float = 5.0
    # acks=all also waits for this many replicas of the store, and with `acks_fsync` for its disk.
    acks_replicas: int = 0
    acks_fsync: bool = False
    # A consumer that was served from the tail a moment ago is served again after this long: in a rush, one answer of
    # many records instead of one each. 0 answers at once, as Kafka does.
    fetch_gather_ms: int = 0
    retention_interval_s: float = 30.0
    # The first members of a group wait this long for more, so that a fleet that starts causes one rebalance, not many.
    group_initial_delay_ms: int = 3_000
    group_session_min_ms: int = limits.SESSION_MIN_MS
    group_session_max_ms: int = limits.SESSION_MAX_MS
    group_size_max: int = limits.GROUP_SIZE_MAX
    offsets_retention_ms: int = limits.OFFSETS_RETENTION_MS  # of groups without members
    offsets_sweep_s: float = 600.0
    drain_s: float = 5.0
    tls_certificate: str | None = None  # file of the chain; with it the port speaks TLS
    tls_key: str | None = None
    sasl_users: str | None = None  # file of users; with it every client must log in
    metrics_listen: Address | None = None
    frame_bytes_max: int = limits.FRAME_BYTES_MAX
    connections_max: int = limits.CONNECTIONS_MAX
    in_flight_bytes_max: int = limits.IN_FLIGHT_BYTES_MAX

    def __post_init__(self) -> None:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise BadConfig("TLS needs both a certificate and a key")
        if not self.keyspace or set(self.keyspace) & set("{}: \t\n"):
            raise BadConfig(f"keyspace {self.keyspace!r} must be a word without braces, colons or spaces")
        if not 0 <= self.node_id < 2**31:
            raise BadConfig(f"node id {self.node_id} is not between 0 and 2147483647")
        if not 1 <= self.default_partitions <= limits.PARTITIONS_PER_TOPIC_MAX:
            raise BadConfig(f"{self.default_partitions} partitions: from 1 to {limits.PARTITIONS_PER_TOPIC_MAX}")
        if not 0 <= self.fetch_gather_ms <= limits.FETCH_GATHER_MS_MAX:
            raise BadConfig(f"fetches are gathered for 0 to {limits.FETCH_GATHER_MS_MAX} ms")
        if self.group_initial_delay_ms < 0 or not 0 < self.group_session_min_ms <= self.group_session_max_ms:
            raise BadConfig("a group's initial delay must not be negative, nor its session bounds empty")
