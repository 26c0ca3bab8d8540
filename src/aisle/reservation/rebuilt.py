"""What a rebuild did, for the operator who asked for it. Pure."""

from dataclasses import dataclass

from aisle.errors import AisleError
from aisle.reservation.keys import Place
from aisle.reservation.pool import PoolPlace


class RebuildRaced(AisleError):
    """Another rebuild of the same place began meanwhile; that one counts, and nothing was written by this one."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a rebuild did to one subsection or pool. `on_sale` is how it was left."""

    place: Place | PoolPlace
    epoch: int
    seats: int
    bookings: int
    holds_kept: int
    holds_dropped: tuple[str, ...]
    bookings_dropped: tuple[str, ...]
    records_unreadable: int
    on_sale: bool
