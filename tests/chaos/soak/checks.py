"""The judge of a history: what people were told, held against each other and against what PostgreSQL has in the end.

Pure. A finding is a sentence that begins with the invariant it breaks. Only what is certain counts: somebody certainly
had a seat from the moment an answer that said so was there until the moment another such answer was asked for.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from aisle.booking.booking import MOVES, State
from tests.chaos.soak.history import FAIL, OK, History, Operation

HAS_SEATS = frozenset({"PENDING_PAYMENT", "PAYING", "PAID"})
FOR_EVER = float("inf")
CHECKED = ("I1", "I2", "I3", "I7", "I9", "I10", "I11", "I13", "I21", "I22", "I27")

Seat = tuple[int, str, int, str]


@dataclass(frozen=True)
class Span:
    """Somebody certainly had these seats, or so many places, all this time."""

    who: str
    buyer: str
    event: int
    seats: tuple[Seat, ...]
    places: int
    since: float
    until: float


@dataclass(frozen=True)
class Final:
    """A booking as PostgreSQL has it in the end."""

    id: str
    buyer: str
    event: int
    state: str
    seats: tuple[Seat, ...]
    places: int
    key: str


def judge_history(
    history: History, bookings: Sequence[Final], capacities: Mapping[int, int], *, limit: int,
    buyers: Mapping[str, str] | None = None, wall_to_monotonic: float = 0.0,
) -> list[str]:  # fmt: skip
    """`buyers` are the accounts of the names in the history; `wall_to_monotonic` is added to a date to get our time."""
    finals = {booking.id: booking for booking in bookings}
    spans = [*booking_spans(history, finals), *hold_spans(history, wall_to_monotonic)]
    found = [*seats_had_twice(spans), *pools_overfull(spans, capacities), *limits_exceeded(spans, limit)]
    found += promises_broken(history, finals)
    found += keys_with_two_effects(history, bookings, buyers or {})
    found += wrong_moves(history, finals)
    found += not_what_was_asked(history)
    found += let_in_twice(history)
    return found


def booking_spans(history: History, finals: Mapping[str, Final]) -> list[Span]:
    seen: dict[str, list[tuple[float, float, Operation]]] = defaultdict(list)
    for operation in _tellings(history):
        if operation.answer["state"] in HAS_SEATS:
            seen[operation.answer["id"]].append((operation.invoked, operation.completed, operation))
    spans = []
    for id, looks in seen.items():
        since = min(completed for _, completed, _ in looks)
        until = max(invoked for invoked, _, _ in looks)
        final = finals.get(id)
        if final is not None and final.state in HAS_SEATS:
            until = FOR_EVER
        told = looks[0][2]
        if since < until:
            seats, places = _seats(told.answer)
            spans.append(Span(f"booking {id}", told.buyer, told.answer["event_id"], seats, places, since, until))
    # What nobody was told of is still had in the end.
    for final in finals.values():
        if final.state in HAS_SEATS and final.id not in seen:
            spans.append(
                Span(f"booking {final.id}", final.buyer, final.event, final.seats, final.places, FOR_EVER, FOR_EVER)
            )
    return spans


def hold_spans(history: History, wall_to_monotonic: float) -> list[Span]:
    """A hold lasts until its deadline; its owner may end it before, and so does the loss of the store."""
    ends: dict[str, list[float]] = defaultdict(list)
    for operation in history.operations:
        if operation.kind in ("release", "checkout"):
            ends[operation.buyer].append(operation.invoked)
    losses = [at for at, what in history.marks if what == "holds lost"]
    spans = []
    for operation in history.operations:
        if operation.kind != "hold" or operation.outcome != OK:
            continue
        told = operation.answer
        until = datetime.fromisoformat(told["expires_at"]).timestamp() + wall_to_monotonic
        # A key that is asked again may tell of a hold that has ended meanwhile: only its first word counts.
        again = any(o.key == operation.key and o is not operation for o in history.operations if o.kind == "hold")
        until = min([until, *(end for end in (*ends[operation.buyer], *losses) if end > operation.invoked)])
        if not again and operation.completed < until:
            seats, places = _seats(told)
            spans.append(
                Span(f"hold {told['id']}", operation.buyer, told["event_id"], seats, places, operation.completed, until)
            )
    return spans


def seats_had_twice(spans: Iterable[Span]) -> list[str]:
    by_seat: dict[Seat, list[Span]] = defaultdict(list)
    for span in spans:
        for seat in span.seats:
            by_seat[seat].append(span)
    found = []
    for seat, owners in by_seat.items():
        owners.sort(key=lambda span: span.since)
        for n, first in enumerate(owners):
            for second in owners[n + 1 :]:
                both_last = first.until == second.until == FOR_EVER
                if first.who != second.who and (second.since < first.until or both_last):
                    invariant = "I7" if "hold" in first.who else "I1"
                    found.append(f"{invariant}: seat {seat} belonged to {first.who} and to {second.who}")
    return found


def pools_overfull(spans: Iterable[Span], capacities: Mapping[int, int]) -> list[str]:
    found = []
    for event, capacity in capacities.items():
        changes = [(s.since, s.places) for s in spans if s.event == event and s.places]
        changes += [(s.until, -s.places) for s in spans if s.event == event and s.places and s.until < FOR_EVER]
        had = most = 0
        for _, change in sorted(changes, key=lambda c: (c[0], c[1])):
            had += change
            most = max(most, had)
        if most > capacity:
            found.append(f"I2: {most} of {capacity} places of event {event} were had at once")
    return found


def limits_exceeded(spans: Iterable[Span], limit: int) -> list[str]:
    """Seats of one buyer in one event at one time, bookings only: holds of carts have a limit of their own."""
    found = []
    by_buyer: dict[tuple[str, int], list[Span]] = defaultdict(list)
    for span in spans:
        if span.who.startswith("booking"):
            by_buyer[span.buyer, span.event].append(span)
    for (buyer, event), owned in by_buyer.items():
        changes = [(s.since, len(s.seats)) for s in owned if s.seats]
        changes += [(s.until, -len(s.seats)) for s in owned if s.seats and s.until < FOR_EVER]
        had = 0
        for _, change in sorted(changes, key=lambda c: (c[0], c[1])):
            had += change
            if had > limit:
                found.append(f"I13: {buyer} had {had} seats of event {event}, the limit is {limit}")
                break
    return found


def promises_broken(history: History, finals: Mapping[str, Final]) -> list[str]:
    found = []
    for operation in _tellings(history):
        told, final = operation.answer, finals.get(operation.answer["id"])
        if final is None:
            found.append(f"I3: booking {told['id']} was answered ({told['state']}) and does not exist")
            continue
        seats, places = _seats(told)
        if told["state"] in HAS_SEATS and final.state in HAS_SEATS and (seats, places) != (final.seats, final.places):
            found.append(f"I3: booking {told['id']} was told other seats than it has")
        if told["state"] == "PAID" and final.state not in ("PAID", "REFUNDED"):
            found.append(f"I3: booking {told['id']} was told PAID and is {final.state}")
    for final in finals.values():
        if final.state == "PROCESSING":
            found.append(f"I22: booking {final.id} never got an answer")
    return found


def keys_with_two_effects(history: History, bookings: Sequence[Final], buyers: Mapping[str, str]) -> list[str]:
    found = []
    by_key: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for operation in history.operations:
        if operation.asked.get("misuse"):
            if operation.outcome == OK or (operation.outcome == FAIL and operation.status not in (422, 429, 503)):
                found.append(f"I9: key {operation.key} with another body was answered {operation.status}")
        elif operation.key and operation.outcome == OK and isinstance(operation.answer, dict):
            id = operation.answer.get("id")
            if id is not None:
                by_key[operation.buyer, operation.kind, operation.key].add(str(id))
    found += [f"I9: {kind} under key {key} made {len(ids)}" for (_, kind, key), ids in by_key.items() if len(ids) > 1]
    effects: dict[tuple[str, str], int] = defaultdict(int)
    for booking in bookings:
        effects[booking.buyer, booking.key] += 1
    found += [f"I9: {count} bookings of one key {key}" for key, count in effects.items() if count > 1]
    return found


def wrong_moves(history: History, finals: Mapping[str, Final]) -> list[str]:
    """What was told later cannot come before what was told earlier; what had ended stays so."""
    reachable = {state: _reachable(state) for state in State}
    looks: dict[str, list[Operation]] = defaultdict(list)
    for operation in _tellings(history):
        looks[operation.answer["id"]].append(operation)
    found = []
    for id, told in looks.items():
        told.sort(key=lambda operation: operation.completed)
        for n, earlier in enumerate(told):
            old = State(earlier.answer["state"])
            later = [operation for operation in told[n + 1 :] if operation.invoked > earlier.completed]
            states = {State(operation.answer["state"]) for operation in later}
            if id in finals:
                states.add(State(finals[id].state))
            found += [f"I10: booking {id} was {old} and then {new}" for new in states if new not in reachable[old]]
    return sorted(set(found))


def not_what_was_asked(history: History) -> list[str]:
    found = []
    for operation in history.operations:
        asked = operation.asked.get("body")
        if operation.outcome != OK or operation.kind not in ("hold", "book") or operation.asked.get("misuse"):
            continue
        told = operation.answer
        if not isinstance(asked, dict) or not told.get("seats"):
            continue
        seats, places = _seats(told)
        got, wanted = len(seats) + places, asked.get("quantity") or len(asked.get("seats", ()))
        if got > wanted or (got < wanted and not asked.get("allow_partial")):
            found.append(f"I11: {operation.buyer} asked for {wanted} and got {got}")
        if asked.get("mode") == "manual" and sorted(s[3] for s in seats) != sorted(asked["seats"]):
            found.append(f"I11: {operation.buyer} chose {asked['seats']} and got {seats}")
    return found


def let_in_twice(history: History) -> list[str]:
    let_in: dict[str, set[str]] = defaultdict(set)
    refunded: dict[str, list[Operation]] = defaultdict(list)
    for operation in history.operations:
        if operation.kind == "scan" and operation.outcome == OK and operation.answer["outcome"] == "accepted":
            let_in[operation.asked["ticket"]].add(operation.key)
        if operation.kind == "refund" and operation.outcome == OK:
            refunded[operation.asked["booking"]].append(operation)
    found = [f"I21: ticket {ticket} let {len(keys)} in" for ticket, keys in let_in.items() if len(keys) > 1]
    for operation in history.operations:
        if operation.kind == "scan" and operation.outcome == OK and operation.answer["outcome"] == "accepted":
            given_back = refunded.get(operation.asked["booking"])
            if given_back:
                found.append(f"I27: booking {operation.asked['booking']} was refunded and somebody is in with it")
    return found


def _tellings(history: History) -> list[Operation]:
    """Answers that show a booking."""
    return [
        operation
        for operation in history.operations
        if operation.kind in ("book", "checkout", "look", "cancel")
        and operation.outcome == OK
        and not operation.asked.get("misuse")
        and isinstance(operation.answer, dict)
        and "state" in operation.answer
    ]


def _seats(told: Mapping[str, Any]) -> tuple[tuple[Seat, ...], int]:
    seats: list[Seat] = []
    places = 0
    for part in told["seats"]:
        seats += [(told["event_id"], part["section"], part["subsection"], name) for name in part["seats"]]
        places += part["places"] if part["subsection"] == 0 else 0
    return tuple(sorted(seats)), places


def _reachable(state: State) -> set[State]:
    found, new = {state}, {state}
    while new:
        new = {target for old in new for target in MOVES[old]} - found
        found |= new
    return found
