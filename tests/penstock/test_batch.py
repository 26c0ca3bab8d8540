"""The record batch: judged, placed, stamped; and its records read and built."""

import contextlib
import struct

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from penstock.wire import batch, records
from tests.penstock.batches import GZIP, LZ4, NONE, SNAPPY, ZSTD, batch_of, is_sealed


def refusal(data: bytes) -> ErrorCode:
    verdict = batch.checked(data)
    assert isinstance(verdict, batch.Refused)
    return verdict.code


def altered(data: bytes, at: int, layout: str, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(layout, changed, at, value)
    return batch._sealed(changed)


def test_a_sound_batch_is_accepted_and_every_flipped_bit_under_the_checksum_is_noticed() -> None:
    sound = batch_of(b"one", b"two")
    assert isinstance(batch.checked(sound), batch.Batch)
    for at in range(17, len(sound)):
        flipped = bytearray(sound)
        flipped[at] ^= 0x10
        assert refusal(bytes(flipped)) == ErrorCode.corrupt_message


def test_what_a_producer_may_not_send_has_its_own_code() -> None:
    sound = batch_of(b"one", b"two")
    assert refusal(sound[:60]) == ErrorCode.corrupt_message
    assert refusal(sound[:-1]) == ErrorCode.corrupt_message
    assert refusal(sound + sound) == ErrorCode.invalid_record
    assert refusal(altered(sound, 16, ">b", 1)) == ErrorCode.invalid_record
    assert refusal(altered(sound, 57, ">i", 3)) == ErrorCode.invalid_record
    assert refusal(altered(sound, 57, ">i", -1)) == ErrorCode.invalid_record
    assert refusal(altered(sound, 21, ">h", 5)) == ErrorCode.unsupported_compression_type
    assert refusal(altered(sound, 21, ">h", batch.CONTROL)) == ErrorCode.invalid_record
    assert refusal(altered(sound, 21, ">h", batch.TRANSACTIONAL)) == ErrorCode.invalid_record
    assert refusal(altered(sound, 43, ">q", 5)) == ErrorCode.invalid_record


def test_placing_a_batch_keeps_its_checksum_and_stamping_renews_it() -> None:
    sound = batch_of(b"one", b"two")
    placed = batch.placed(sound, 41, leader_epoch=3)
    assert isinstance(batch.checked(placed), batch.Batch)
    assert batch.header(placed).base_offset == 41
    stamped = batch.checked(batch.stamped(sound, 99))
    assert isinstance(stamped, batch.Batch)
    assert (stamped.max_timestamp, stamped.attributes) == (99, batch.LOG_APPEND_TIME)


@pytest.mark.parametrize("compression", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_records_come_out_of_every_compression(compression: int) -> None:
    values = [b"x" * n for n in (0, 1, 100_000)]
    data = batch.placed(batch_of(*values, compression=compression, timestamp=5), 10)
    found = list(records.iterate(data))
    assert [(r.offset, r.timestamp, r.key, r.value) for r in found] == [
        (10 + n, 5 + n, b"k", value) for n, value in enumerate(values)
    ]


@pytest.mark.parametrize("compression", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_decompression_bomb_is_refused(compression: int) -> None:
    bomb = bytes(80 * 1024 * 1024)
    compress = {
        GZIP: lambda: cramjam.gzip.compress(bomb),
        SNAPPY: lambda: cramjam.snappy.compress_raw(bomb),
        LZ4: lambda: cramjam.lz4.compress(bomb),
        ZSTD: lambda: cramjam.zstd.compress(bomb),
    }[compression]
    data = batch.assembled(
        bytes(compress()), count=1, last_offset_delta=0, base_timestamp=0, max_timestamp=0, attributes=compression
    )
    with pytest.raises(records.BadRecords):
        list(records.iterate(data))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 4), st.integers(1, 50))
def test_noise_inside_a_sealed_batch_is_read_or_refused(noise: bytes, compression: int, count: int) -> None:
    data = batch.assembled(
        noise, count=count, last_offset_delta=count - 1, base_timestamp=0, max_timestamp=0, attributes=compression
    )
    with contextlib.suppress(records.BadRecords):
        list(records.iterate(data))


def test_a_built_batch_keeps_gaps_times_nulls_and_headers() -> None:
    rows = [
        records.Record(5, 10, None, b"x", ()),
        records.Record(9, 8, b"k", None, [("h", None), ("h", b"2")]),
    ]
    built = records.build(rows, 5)
    assert is_sealed(built)
    assert [tuple(r) for r in records.iterate(built)] == [
        (5, 10, None, b"x", []),
        (9, 8, b"k", None, [("h", None), ("h", b"2")]),
    ]
