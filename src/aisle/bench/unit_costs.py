"""What one booking costs in each part, in seconds and bytes: read from a result file of `make bench`.

The CPU time of each process is measured. How it divides among the steps of a booking is not, and stands here as shares:
they move the moments inside a sale, not the work of it.
"""

import json
from pathlib import Path
from typing import Any

import msgspec

from aisle.bench.rush import request_bytes
from aisle.errors import StartupError
from aisle.messages import BookingPendingPayment, Message, Part, SeatsReserved, TicketReserveRequested, encode

RESULTS = Path("bench") / "results"

# Of the API: parsing and checking before the commit, answering and handing over after it.
BEFORE_THE_COMMIT = 0.6
# Of the three services, and of PostgreSQL: the order, its ticket rows, its outcome.
RESERVATION, TICKETING, BOOKING = 0.4, 0.3, 0.3
PLACING, TICKETS, OUTCOME = 0.4, 0.35, 0.25
MESSAGES_A_BOOKING = 3
# The processes of `aisle up`.
EMBEDDED = {"aisle", "workers", "postgres", "penstock", "valkey"}
# Of files written before the buyers' own time was measured.
BUYERS_US = 20.0


class UnitCosts(msgspec.Struct, frozen=True):
    """Seconds of CPU for one booking, and bytes on the wire."""

    source: str
    api: float
    workers: float
    database: float
    log: float
    store: float
    claim: float
    buyers: float
    order_bytes: int
    message_bytes: int


def newest_result(folder: Path = RESULTS) -> Path:
    """The last result file that holds a sale and the store's own costs, by the time the sale began."""
    found = [(_read(path)["sellout"]["started_at"], path) for path in folder.glob("*.json") if _is_whole(path)]
    if not found:
        raise StartupError(f"no result of `aisle bench sellout` and `inventory` in {folder}; name a file with --costs")
    return max(found)[1]


def costs_of(path: Path) -> UnitCosts:
    """CPU time of the measured sale, by process."""
    try:
        results = _read(path)
        by_process, claim = results["sellout"]["cpu_us_by_process"], results["inventory"]["costs"]["claim"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StartupError(f"{path} is no result of `make bench` with `sellout` and `inventory`: {error!r}") from None
    return UnitCosts(
        source=path.name,
        api=by_process["aisle"] / 1e6,
        workers=by_process["workers"] / 1e6,
        database=by_process["postgres"] / 1e6,
        log=by_process["penstock"] / 1e6,
        store=by_process["valkey"] / 1e6,
        claim=min(claim["server_us"], by_process["valkey"]) / 1e6,
        buyers=results["sellout"].get("cpu_us_of_buyers", BUYERS_US) / 1e6,
        order_bytes=len(request_bytes("t" * 43, "k" * 36, b'{"event_id":1,"quantity":2,"section":"A","subsection":1}')),
        message_bytes=sum(len(encode(message)) for message in _messages_of_a_booking()) // MESSAGES_A_BOOKING,
    )


def sellout_of(path: Path) -> dict[str, Any]:
    sold: dict[str, Any] = _read(path)["sellout"]
    return sold


def _messages_of_a_booking() -> list[Message]:
    one = "0199a0c2-7f3e-7c51-9d6b-1f2a3b4c5d6e"
    shared: dict[str, Any] = {"id": one, "lane": "1", "event": 1, "section": "A", "partition": 0, "epoch": 1}
    parts = (Part(section="A", subsection=1, seats=(10, 11), price=3000),)
    return [
        TicketReserveRequested(**shared, booking=one, buyer=one, quantity=2, in_section="A", in_subsection=1),
        SeatsReserved(**shared, booking=one, buyer=one, parts=parts),
        BookingPendingPayment(**shared, booking=one, parts=parts),
    ]


def _is_whole(path: Path) -> bool:
    try:
        results = _read(path)
    except ValueError:  # such as the file that this command's own output is being sent to
        return False
    if not all(isinstance(results.get(bench), dict) for bench in ("sellout", "inventory")):
        return False
    # A sale on many processes is what this predicts, not what it learns from.
    return set(results["sellout"].get("cpu_us_by_process", {})) >= EMBEDDED


def _read(path: Path) -> dict[str, Any]:
    results: dict[str, Any] = json.loads(path.read_text())
    return results
