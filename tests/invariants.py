"""What must hold whatever happened: called at the end of tests that sell, crash, race or rebuild."""

from aisle.reservation.verify import verify
from aisle.store import Store


async def assert_store_consistent(store: Store, event: int) -> None:
    """Bits == counters == rows == owners == records == index, and no key of the event belongs to nothing."""
    report = await verify(store, event)
    assert report.clean, "\n".join(map(str, report.findings))
    assert report.places > 0, "an event without subsections proves nothing"
