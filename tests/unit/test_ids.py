"""Time-ordered identifiers."""

from datetime import UTC, datetime, timedelta

from aisle.ids import new_id

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def test_ids_sort_by_the_millisecond_they_were_made_in():
    made = [new_id(NOON + timedelta(milliseconds=n)) for n in range(1000)]
    assert made == sorted(made)


def test_ids_of_one_millisecond_differ_and_are_version_seven():
    made = {new_id(NOON) for _ in range(1000)}
    assert len(made) == 1000
    assert {(i.version, i.variant) for i in made} == {(7, "specified in RFC 4122")}
    assert next(iter(made)).int >> 80 == int(NOON.timestamp() * 1000)
