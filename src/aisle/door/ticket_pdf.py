"""Tickets on paper: one page a seat with its event, price, holder and QR code. Pure; bytes come out.

Letters that DejaVu Sans has are embedded. Chinese, Japanese and Korean are named fonts that PDF readers bring along:
embedding one of those would make every ticket some megabytes. What nobody can draw is shown as an empty box.
"""

import io
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from itertools import groupby
from zoneinfo import ZoneInfo

import segno
from reportlab.lib.pagesizes import A5
from reportlab.lib.units import mm as reportlab_mm
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas

from aisle.door.ticket import Show, Ticket
from aisle.money import format_money

mm = float(reportlab_mm)
SANS, CHINESE, KOREAN = "DejaVuSans", "STSong-Light", "HYSMyeongJo-Medium"
WIDTH, HEIGHT = float(A5[0]), float(A5[1])
MARGIN = 15 * mm
QR_SIDE = 84 * mm
BOX = "\u25a1"

DARK, GREY = 0.1, 0.45


def tickets_pdf(show: Show, tickets: Sequence[Ticket], holder: str) -> bytes:
    _register_fonts()
    out = io.BytesIO()
    # Without a date and a random id in it, the same tickets are the same bytes.
    canvas = Canvas(out, pagesize=A5, invariant=1)
    canvas.setTitle(f"Tickets: {show.name}")
    for ticket in tickets:
        _page(canvas, show, ticket, holder)
        canvas.showPage()
    canvas.save()
    return out.getvalue()


def _page(canvas: Canvas, show: Show, ticket: Ticket, holder: str) -> None:
    y = HEIGHT - MARGIN - 6 * mm
    y = _lines(canvas, show.name, y, size=18, lines_max=3)
    starts = show.starts_at.astimezone(ZoneInfo(show.time_zone))
    y = _lines(canvas, f"{starts:%A} {starts.day} {starts:%B %Y, %H:%M} ({show.time_zone})", y, size=10, lines_max=1)
    y = _lines(canvas, show.venue, y, size=10, lines_max=2) - 4 * mm
    y = _columns(canvas, [*_where(ticket), ("Price", format_money(ticket.price, show.currency))], y)
    y = _lines(canvas, f"Booked by {holder}", y, size=9, lines_max=2, grey=GREY)
    side = min(QR_SIDE, y - MARGIN - 14 * mm)
    _qr(canvas, ticket.code, (WIDTH - side) / 2, y - side, side)
    foot = f"Ticket {ticket.id} of event {show.id}, version {ticket.version}. It lets one person in, once."
    _lines(canvas, foot, MARGIN + 6 * mm, size=7, lines_max=2, grey=GREY)


def _where(ticket: Ticket) -> list[tuple[str, str]]:
    if ticket.row == 0:
        return [("Admission", ticket.section), ("Place", str(ticket.seat)), ("", "")]
    return [
        ("Section", f"{ticket.section}-{ticket.subsection}"),
        ("Row", str(ticket.row)),
        ("Seat", str(ticket.seat)),
    ]


def _columns(canvas: Canvas, cells: Sequence[tuple[str, str]], y: float) -> float:
    widths = (0.3, 0.15, 0.15, 0.4)
    x = MARGIN
    for (label, value), share in zip(cells, widths, strict=True):
        width = share * (WIDTH - 2 * MARGIN)
        _draw(canvas, label, x, y, 7, GREY)
        size = 15.0
        while _width(value, size) > width - 2 * mm and size > 6:
            size -= 0.5
        _draw(canvas, value, x, y - 7 * mm, size, DARK)
        x += width
    return y - 16 * mm


def _lines(canvas: Canvas, text: str, y: float, *, size: float, lines_max: int, grey: float = DARK) -> float:
    """Draw text from `y` down, at most so many lines; where the next line would be."""
    lines = list(_wrapped(text, size, WIDTH - 2 * MARGIN))
    if len(lines) > lines_max:
        lines = [*lines[: lines_max - 1], lines[lines_max - 1].rstrip()[:-1] + "\u2026"]
    for line in lines:
        _draw(canvas, line, MARGIN, y, size, grey)
        y -= size * 1.35
    return y


def _wrapped(text: str, size: float, width: float) -> Iterator[str]:
    line = ""
    for word in _words(" ".join(text.split())):
        if line and _width(line + word.rstrip(), size) > width:
            yield line.rstrip()
            line = ""
        line += word
    if line.strip():
        yield line.rstrip()


def _words(text: str) -> Iterator[str]:
    """Where a line may break: after a space, around a letter that is no Latin one, and inside a monster of a word."""
    word = ""
    for letter in text:
        word += letter
        if letter == " " or ord(letter) >= 0x2E80 or len(word) >= 20:
            yield word
            word = ""
    yield word


def _draw(canvas: Canvas, text: str, x: float, y: float, size: float, grey: float) -> None:
    canvas.setFillGray(grey)
    for font, letters in _runs(text):
        canvas.setFont(font, size)
        canvas.drawString(x, y, letters)
        x += pdfmetrics.stringWidth(letters, font, size)


def _width(text: str, size: float) -> float:
    return sum(float(pdfmetrics.stringWidth(letters, font, size)) for font, letters in _runs(text))


def _runs(text: str) -> Iterator[tuple[str, str]]:
    """The text in pieces of one font each."""
    drawn = [_drawable(letter) for letter in text]
    for font, run in groupby(drawn, key=lambda pair: pair[0]):
        yield font, "".join(letter for _, letter in run)


def _drawable(letter: str) -> tuple[str, str]:
    code = ord(letter)
    if 0xAC00 <= code <= 0xD7A3 or 0x1100 <= code <= 0x11FF:
        return KOREAN, letter
    if 0x2E80 <= code <= 0x9FFF or 0xF900 <= code <= 0xFAFF or 0xFF00 <= code <= 0xFFEF:
        return CHINESE, letter
    return SANS, letter if letter.isprintable() and code in _sans_letters() else BOX


def _qr(canvas: Canvas, code: str, x: float, y: float, side: float) -> None:
    """As rectangles, one for each run of dark modules in a row: sharp at any size."""
    rows = [list(row) for row in segno.make(code, error="m", micro=False).matrix_iter(border=4)]
    module = side / len(rows)
    path = canvas.beginPath()
    for n, row in enumerate(rows):
        column = 0
        for dark, run in groupby(row):
            length = len(list(run))
            if dark:
                path.rect(x + column * module, y + side - (n + 1) * module, length * module, module)
            column += length
    canvas.setFillGray(0)
    canvas.drawPath(path, stroke=0, fill=1)


@cache
def _register_fonts() -> None:
    with (files("aisle.door") / "fonts" / "DejaVuSans.ttf").open("rb") as font:
        pdfmetrics.registerFont(TTFont(SANS, io.BytesIO(font.read())))
    pdfmetrics.registerFont(UnicodeCIDFont(CHINESE))
    pdfmetrics.registerFont(UnicodeCIDFont(KOREAN))


@cache
def _sans_letters() -> frozenset[int]:
    return frozenset(pdfmetrics.getFont(SANS).face.charToGlyph)
