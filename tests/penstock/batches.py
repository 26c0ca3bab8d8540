"""Record batches for tests, built by aiokafka's codec."""

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from crc32c import crc32c

from penstock.wire import batch

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)


def batch_of(
    *values: bytes | None,
    key: bytes | None = b"k",
    compression: int = NONE,
    timestamp: int = 1_700_000_000_000,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=int(transactional),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        batch_size=2**31 - 1,
    )
    for at, value in enumerate(values):
        builder.append(at, timestamp + at, key, value, [])
    return bytes(builder.build())


def is_sealed(data: bytes) -> bool:
    """Whether the checksum of a batch is right, which is all a consumer checks."""
    return crc32c(data[batch.CHECKED_FROM :]) == batch.header(data).crc
