"""What a store failure means in Kafka's words.

The codes themselves are kio's `ErrorCode` (an IntEnum with a `retriable` flag). A function that refuses returns
such a code; only a broken store is an exception, and it is turned into a code here, at the edge.
"""

from kio.schema.errors import ErrorCode

import respline

# Server replies that say "this cannot work until somebody repairs the store".
STORAGE_CODES = frozenset({"OOM", "MISCONF", "READONLY", "NOREPLICAS", "MASTERDOWN", "LOADING", "CLUSTERDOWN"})


def store_error_code(error: BaseException) -> ErrorCode:
    """The retriable Kafka error for a store that refused, vanished or did not answer in time.

    A time-out is unknown, not failed: REQUEST_TIMED_OUT makes an idempotent producer send the same batch again,
    and the append script recognises it.
    """
    if isinstance(error, respline.ServerError):
        return ErrorCode.kafka_storage_error if error.code in STORAGE_CODES else ErrorCode.unknown_server_error
    if isinstance(error, respline.OutcomeUnknown):
        return ErrorCode.request_timed_out
    return ErrorCode.kafka_storage_error
