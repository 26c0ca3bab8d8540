"""Every bound of the broker in one place. A bound that an operator may want to move is also in `config`."""

FRAME_BYTES_MAX = 100 * 1024 * 1024  # Kafka's socket.request.max.bytes
LOGIN_FRAME_BYTES_MAX = 64 * 1024  # before a client has proved who it is
COLD_FRAME_BYTES_MAX = 8 * 1024 * 1024  # every request but Produce: none of them has a reason to be larger
REQUEST_ELEMENTS_MAX = 250_000  # array elements in one decoded request
CONNECTIONS_MAX = 10_000
IN_FLIGHT_BYTES_MAX = 256 * 1024 * 1024  # request frames received and not answered, all connections
QUEUED_REQUESTS_MAX = 64  # pipelined requests waiting on one connection before its socket is no longer read
RECEIVE_BUFFER_BYTES = 256 * 1024

TOPIC_NAME_MAX = 249
PARTITIONS_PER_TOPIC_MAX = 10_000
PARTITIONS_TOTAL_MAX = 200_000
TOPICS_PER_REQUEST_MAX = 2_000

OFFSET_MAX = 2**53 - 1  # the store's scripts compute with doubles
BATCH_RECORDS_MAX = 1_000_000
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
SEQUENCE_MODULUS = 2**31

FETCH_BYTES_MAX = 55 * 1024 * 1024  # Kafka's fetch.max.bytes of a broker
FETCH_WAIT_MS_MAX = 60_000
FETCH_GATHER_MS_MAX = 10_000
# Below this an answer came from the tail of the log; above it a consumer is catching up and is not made to wait.
FETCH_TAIL_BYTES = 64 * 1024
FETCH_ENTRIES_MAX = 512  # stream entries asked of the store in one read of one partition
OPEN_BATCH_RECORDS_MAX = 20_000  # records of one batch in the open layout: one script writes them all
OPEN_ADOPT_MAX = 5_000  # entries of plain clients that one script gives offsets to
COMPACTION_KEYS_MAX = 2_000_000  # keys of one log; records of further keys are kept
TAIL_BYTES_PER_PARTITION = 1024 * 1024  # newest batches kept in memory, so that a live consumer costs no store read
TAIL_BYTES_TOTAL = 64 * 1024 * 1024

PRODUCER_ID_BLOCK = 1_000
PRODUCERS_PER_PARTITION_MAX = 10_000

GROUPS_PER_SLOT_MAX = 10_000  # of the 32 coordinator slots of a cluster
GROUP_SIZE_MAX = 5_000
SESSION_MIN_MS, SESSION_MAX_MS = 6_000, 30 * 60 * 1000  # Kafka's group.min/max.session.timeout.ms
OFFSET_METADATA_MAX = 4096
OFFSETS_RETENTION_MS = 7 * 24 * 3600 * 1000
BENCH_CONSUMERS_MAX = 10_000
