"""Draw the pictures of docs/explanation/seat-choice.md: small halls before and after `choose`.

Only the halls and the parties are written here. Who sits where, and the name of the rung, come from the model, and a
test compares the stored pictures with what this file draws, so a picture cannot show what the model does not do.

    python docs/pictures/draw_seat_choice.py        writes docs/explanation/pictures/seat-choice-*.svg
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from aisle.reservation.seating import Choice, Party, choose
from aisle.reservation.subsection import SeatState, Subsection

FOLDER = Path(__file__).parent.parent / "explanation" / "pictures"

SEAT, PITCH, LABEL, TOP, BETWEEN = 22, 28, 44, 58, 36
FILLS = {".": "#ffffff", "a": "#dbeafe", "X": "#9ca3af", "A": "#9ca3af", "o": "#15803d", "O": "#15803d"}
INK, PAPER, RIM, ACCESSIBLE_RIM = "#1f2937", "#f9fafb", "#6b7280", "#1d4ed8"


@dataclass(frozen=True, slots=True)
class Scene:
    """A row per string: "." free, "a" free and accessible, "X" taken."""

    name: str
    party: Party
    rows: tuple[str, ...]


SCENES = (
    Scene("adjacent", Party(2), ("X...XXXX", "....X..X", "........")),
    Scene("adjacent-orphan", Party(2), ("XX.XXXXX", "X...XXXX", "XX...X.X")),
    Scene("split-halves", Party(5), ("..XXX.XX", "...X...X", "X.X..X.X")),
    Scene("split-company", Party(4), ("...X.XXX", "XXXXXXXX", "XX..XXXX")),
    Scene("split-near", Party(4), ("..XXXXXX", "X.XXXXXX", "XXXX..XX", "XX..XXXX")),
    Scene("split-alone", Party(3), ("XX.XXX.X", "X..XXXXX", "XXXXX..X")),
    Scene("partial", Party(4, allow_partial=True), ("XX.XXXXX", "XXXXX..X")),
    Scene("walls", Party(3), ("..aa..XX", "XXX...XX")),
    Scene("accessible", Party(3, accessible=1), ("........", "X..a...X", "aa......")),
    Scene("accessible-split", Party(3, accessible=1), ("...XXXXX", "XXXaXXaX")),
)


def pictures() -> dict[str, str]:
    """File name -> SVG, in the order of the page."""
    return {f"seat-choice-{scene.name}.svg": picture(scene) for scene in SCENES}


def picture(scene: Scene) -> str:
    after, how = play(scene)
    hall_width = LABEL + PITCH * len(scene.rows[0])
    width, height = 2 * hall_width + BETWEEN, TOP + PITCH * len(scene.rows) + 8
    text = caption(scene.party)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' role="img" font-family="sans-serif" font-size="13" fill="{INK}">',
        f"<title>{escape(f'{text}: {how}')}</title>",
        f'<rect width="{width}" height="{height}" rx="6" fill="{PAPER}"/>',
        f'<text x="8" y="20" font-weight="bold">{escape(text)}</text>',
        f'<text x="8" y="44">before</text><text x="{hall_width + BETWEEN}" y="44">after: {how}</text>',
        *hall(scene.rows, left=0),
        *hall(after, left=hall_width + BETWEEN - 8),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def play(scene: Scene) -> tuple[tuple[str, ...], str]:
    """The rows with the party in them ("o", on an accessible seat "O") and the rung, as the model decides."""
    seats = list("".join(scene.rows))
    width = len(scene.rows[0])
    accessible = frozenset(index for index, seat in enumerate(seats) if seat == "a")
    states = [SeatState.SOLD if seat == "X" else SeatState.AVAILABLE for seat in seats]
    choice = choose(Subsection(len(scene.rows), width, accessible), states, scene.party)
    assert isinstance(choice, Choice), f"{scene.name} seats nobody"
    for seat in choice.seats:
        seats[seat] = "O" if seat in accessible else "o"
    return tuple("".join(seats[start : start + width]) for start in range(0, len(seats), width)), choice.how.value


def caption(party: Party) -> str:
    people = f"a party of {party.size}"
    if party.accessible:
        people += f", {party.accessible} on an accessible seat"
    return people + (", fewer will do" if party.allow_partial else "")


def hall(rows: tuple[str, ...], left: int) -> Iterator[str]:
    for number, row in enumerate(rows):
        y = TOP + PITCH * number
        yield f'<text x="{left + 8}" y="{y + 16}" fill="{RIM}" font-size="11">row {number + 1}</text>'
        for place, seat in enumerate(row):
            rim, stroke = (ACCESSIBLE_RIM, 3) if seat in "aAO" else (RIM, 1)
            yield (
                f'<rect x="{left + LABEL + PITCH * place}" y="{y}" width="{SEAT}" height="{SEAT}" rx="5"'
                f' fill="{FILLS[seat]}" stroke="{rim}" stroke-width="{stroke}"/>'
            )


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, svg in pictures().items():
        (FOLDER / name).write_text(svg)


if __name__ == "__main__":
    main()
