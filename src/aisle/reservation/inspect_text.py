"""The views of `inspect` drawn for people: tables and the hall in letters. Pure; one string a view."""

from collections.abc import Sequence

from aisle.reservation.inspect import HoldView, KeysView, SeatsView, SectionView
from aisle.reservation.inspect_pools import PoolView

LEGEND = ". available   a available, accessible   o reserved   # sold   x blocked"
SEATS_SHOWN_MAX = 12


def sections_text(views: Sequence[SectionView]) -> str:
    head = ("place", "state", "available", "reserved", "sold", "blocked", "total", "version", "epoch", "price")
    rows = [
        (v.place, v.state, v.available, v.reserved, v.sold, v.blocked, v.total, v.version, v.epoch, v.price)
        for v in views
    ]
    return table(head, rows, left=2)


def pools_text(views: Sequence[PoolView]) -> str:
    head = ("pool", "state", "available", "held", "sold", "capacity", "version", "epoch", "price")
    rows = [(v.place, v.state, v.available, v.held, v.sold, v.capacity, v.version, v.epoch, v.price) for v in views]
    return table(head, rows, left=2)


def seats_text(view: SeatsView) -> str:
    """The hall with row 1 on top; the ruler numbers every tenth seat."""
    margin = len(str(len(view.rows)))
    width = len(view.rows[0])
    tens = "".join(f"{seat:>10}" for seat in range(10, width + 1, 10))
    ruler = f"{'':{margin}}  1{tens[1:]}"
    lines = [f"{number:>{margin}}  {row}" for number, row in enumerate(view.rows, start=1)]
    return "\n".join([f"{view.place}, version {view.version}", "", ruler, *lines, "", LEGEND])


def holds_text(views: Sequence[HoldView]) -> str:
    if not views:
        return "nobody has a seat or a place here"
    head = ("place", "id", "owner", "kind", "state", "price", "left", "seats")
    rows = [(v.place, v.id, v.owner, v.kind, v.state, v.price, _left(v.left_ms), _taken(v)) for v in views]
    return table(head, rows, left=len(head))


def keys_text(view: KeysView) -> str:
    rows = [(k.name, k.type, k.keys, "?" if k.bytes is None else k.bytes) for k in view.kinds]
    lines = [table(("name", "type", "keys", "bytes"), rows, left=2)]
    if view.other_keys:
        lines.append(f"{view.other_keys} other keys under this prefix are not Aisle's")
    lines += [f"orphan: {orphan}" for orphan in view.orphans]
    return "\n".join(lines)


def table(head: Sequence[str], rows: Sequence[Sequence[object]], *, left: int) -> str:
    """Columns as wide as their widest cell: the first `left` of them flush left, numbers flush right."""
    cells = [list(map(str, row)) for row in (head, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return "\n".join(
        "  ".join(
            f"{cell:<{width}}" if column < left else f"{cell:>{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    )


def _left(left_ms: int | None) -> str:
    if left_ms is None:
        return "-"
    if left_ms <= 0:
        return f"overdue {-left_ms // 1000} s"
    return f"{left_ms // 60_000}:{left_ms // 1000 % 60:02}"


def _taken(view: HoldView) -> str:
    if not view.seats:
        return f"{view.places} places"
    names = view.seats
    shown = " ".join(names[:SEATS_SHOWN_MAX])
    return shown if len(names) <= SEATS_SHOWN_MAX else f"{shown} and {len(names) - SEATS_SHOWN_MAX} more"
