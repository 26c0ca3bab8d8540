"""Named places between an effect and its record, where a test can end the process as a crash would.

`CRASH_AT=after_claim aisle serve` dies at that place, at once and without any clean-up. The variable is no setting: it
has no `AISLE_` prefix, is in no reference page, and does nothing when it is not there. Every name is in POINTS, so that
the tests can visit all of them and a misspelt one cannot pass as survived.
"""

import os

POINTS = (
    "after_place_commit",  # a booking is committed, its request not published
    "after_claim",  # seats are taken in the store, nobody was told
    "after_tickets",  # tickets have moved, what follows was not published
    "after_cancelled",  # a booking is CANCELLED, its message still in the outbox
    "after_relay",  # the relay has published, the outbox still has the rows
    "before_offsets_booking-service",  # all effects were had, the log will deliver the messages again
    "before_offsets_seat-reservation-service",
    "before_offsets_event-ticketing-service",
)


def crash_point(name: str) -> None:
    if os.environ.get("CRASH_AT") == name:
        assert name in POINTS, name
        os._exit(137)
