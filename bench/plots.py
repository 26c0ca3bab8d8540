"""The pictures of the README, drawn from results: bars with their values, as SVG that needs no server and no script.

Light and dark by the reader's own setting. A picture whose benchmark is not among the results is not drawn.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

WIDTH, LABEL, VALUE, BAR, PITCH, TOP = 720, 230, 90, 18, 28, 46

STYLE = """
text { font: 13px sans-serif; fill: #1f2937 }
.title { font-weight: bold }
.bar { fill: #2563eb }
.other { fill: #9ca3af }
@media (prefers-color-scheme: dark) { text { fill: #e5e7eb } .bar { fill: #60a5fa } .other { fill: #6b7280 } }
"""

PARTS = {
    "aisle": "API process",
    "workers": "workers",
    "postgres": "PostgreSQL",
    "penstock": "Penstock (log)",
    "valkey": "Valkey (store)",
}

Results = Mapping[str, Mapping[str, Any]]
# What the bar is called, its length, whether it is ours.
Bar = tuple[str, float, bool]


def pictures(results: Results) -> dict[str, str]:
    """File name -> SVG."""
    drawn = {}
    if sellout := results.get("sellout"):
        drawn["sellout.svg"] = _sellout(sellout)
        drawn["cpu.svg"] = _cpu(sellout)
    if growth := results.get("growth"):
        drawn["growth.svg"] = _growth(growth)
    return drawn


def _sellout(result: Mapping[str, Any]) -> str:
    bars = [("Aisle", result["seconds"], True)]
    if result["yardstick_seconds"]:
        bars.append(("a transaction a booking, rows locked", result["yardstick_seconds"], False))
    return _drawn(f"Seconds until {result['seats']:,} seats are sold", bars, "{:,.1f} s")


def _cpu(result: Mapping[str, Any]) -> str:
    spent = result["cpu_us_by_process"]
    bars = [(PARTS[name], spent[name], True) for name in PARTS]
    return _drawn(f"CPU microseconds a booking: {result['cpu_us_per_booking']:,.0f} together", bars, "{:,.0f} us")


def _growth(result: Mapping[str, Any]) -> str:
    bars = [
        (f"{int(count):,} {what if count != '1' else what[:-1]}", step["cpu_us_per_booking"], True)
        for what, steps in (("seats", result["by_seats"]), ("events", result["by_events"]))
        for count, step in steps.items()
    ]
    return _drawn("CPU microseconds a booking as halls and events grow", bars, "{:,.0f} us")


def _drawn(title: str, bars: Sequence[Bar], form: str) -> str:
    height = TOP + PITCH * len(bars)
    longest = max(value for _, value, _ in bars) or 1
    told = ", ".join(f"{name} {form.format(value)}" for name, value, _ in bars)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' role="img">',
        f"<title>{escape(f'{title}: {told}')}</title>",
        f"<style>{STYLE}</style>",
        f'<text class="title" x="0" y="20">{escape(title)}</text>',
    ]
    for n, (name, value, ours) in enumerate(bars):
        top, length = TOP + PITCH * n, round((WIDTH - LABEL - VALUE) * value / longest, 1)
        kind = "bar" if ours else "other"
        lines += [
            f'<text x="0" y="{top + 14}">{escape(name)}</text>',
            f'<rect class="{kind}" x="{LABEL}" y="{top}" width="{length}" height="{BAR}" rx="2"/>',
            f'<text x="{LABEL + length + 8}" y="{top + 14}">{form.format(value)}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])
