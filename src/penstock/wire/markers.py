"""The control batch that ends a transaction in a partition. It takes one offset and no client shows it to anybody.

    one record:  key   = int16 version 0, int16 type (0 abort, 1 commit)
                 value = int16 version 0, int32 epoch of the coordinator

The lengths are zigzag varints of one byte each, since everything in it has a fixed size.
"""

import struct

from penstock.wire import batch

#        length  attributes, deltas  key length  version, type  value length  version, epoch  no headers
RECORD = struct.Struct(">b  bbb  b  hh  b  hi  b")


def marker(producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int, now_ms: int) -> bytes:
    size = RECORD.size - 1
    record = RECORD.pack(size * 2, 0, 0, 0, 4 * 2, 0, int(commit), 6 * 2, 0, coordinator_epoch, 0)
    return batch.assembled(
        record,
        count=1,
        last_offset_delta=0,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        attributes=batch.TRANSACTIONAL | batch.CONTROL,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
