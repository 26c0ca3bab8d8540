"""Every fixed bound in one place. What an operator may want to change is a setting in `config.py` instead."""

# HTTP
HEADER_BYTES_MAX = 16 * 1024
REQUEST_SECONDS_MAX = 30
REQUEST_ID_CHARS_MAX = 64
READY_CHECK_SECONDS_MAX = 0.5
READY_CACHE_SECONDS = 1.0

# Store circuit breaker: opens when half of the last ten calls failed, tries again after 30 s with three probes.
BREAKER_WINDOW_CALLS = 10
BREAKER_FAILURE_RATIO = 0.5
BREAKER_OPEN_SECONDS = 30.0
BREAKER_PROBES = 3

# Database
POSTGRES_VERSION_MIN = 150_000
MIGRATION_LOCK_SECONDS_MAX = 60

# Log
LOG_BATCH_MESSAGES_MAX = 500
LOG_QUEUE_MESSAGES_MAX = 100_000
LOG_DELIVERY_SECONDS_MAX = 30

# Events
EVENT_SEATS_MAX = 1_000_000
EVENT_SUBSECTIONS_MAX = 5_000
