"""Named places between an effect and its record, where a test can end the process as a crash would.

`CRASH_AT=after_claim aisle serve` dies at that place, at once and without any clean-up. The variable is no setting: it
has no `AISLE_` prefix, is in no reference page, and does nothing when it is not there. Every name is in a list here, so
that the tests can visit all of them and a misspelt one cannot pass as survived.
"""

import os

BOOKING_POINTS = (
    "after_place_commit",  # a booking is committed, its request not published
    "after_claim",  # seats are taken in the store, nobody was told
    "after_tickets",  # tickets have moved, what follows was not published
    "after_cancelled",  # a booking is CANCELLED, its message still in the outbox
    "after_relay",  # the relay has published, the outbox still has the rows
    "before_offsets_booking-service",  # all effects were had, the log will deliver the messages again
    "before_offsets_seat-reservation-service",
    "before_offsets_event-ticketing-service",
)

CART_POINTS = (
    "after_hold_noted",  # a hold is in the cart, its seats are not taken
    "after_hold_taken",  # seats are held in the store, the cart does not know them
    "after_holds_extended",  # holds have a new deadline, the cart the old one
    "after_hold_leaving",  # a hold is on its way out of the cart, its seats are still held
    "after_cart_closed",  # the cart says which booking it becomes, PostgreSQL does not have it
    "after_checkout_placed",  # the booking is PROCESSING, its seats are still held by the cart's holds
    "after_convert",  # the seats are the booking's in the store, PostgreSQL does not know
    "after_checkout_reserved",  # the booking is PENDING_PAYMENT, its cart is still there
)

# Between money and seats.
PAYMENT_POINTS = (
    "after_fence",  # a booking is PAYING, the provider was not asked
    "after_authorise",  # the provider has promised the money, nothing of it was written down
    "after_sold",  # tickets are SOLD, the money was not captured
    "after_capture",  # the money was captured, the booking is still PAYING
    "after_paid",  # a booking is PAID, its message still in the outbox
    "after_refund",  # a refund is owed, the provider was not asked
    "after_provider_refund",  # the provider has given the money back, the books do not say so
    "after_decision",  # a person has decided about other money than was asked for, nothing followed
    "after_late_plan",  # late money: seats were chosen and written down, not taken
    "after_late_claim",  # late money: seats were taken in the store, not in PostgreSQL
    "after_late_seats",  # late money: its tickets are SOLD again, the money was not captured
)

DOOR_POINTS = (
    "after_check_in",  # a guest is in, the door was not told
    "after_reissue",  # a code is void, its buyer does not have the new one
)

POINTS = (*BOOKING_POINTS, *CART_POINTS, *PAYMENT_POINTS, *DOOR_POINTS)


def crash_point(name: str) -> None:
    if os.environ.get("CRASH_AT") == name:
        assert name in POINTS, name
        os._exit(137)
