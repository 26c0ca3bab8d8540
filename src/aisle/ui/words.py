"""Amounts and moments in the words of people: used by the templates, repeated in `static/words.js` for the browser."""

from datetime import datetime
from zoneinfo import ZoneInfo

# Currencies whose minor unit is not a hundredth (ISO 4217).
_DECIMALS = dict.fromkeys(("CLP", "ISK", "JPY", "KRW", "PYG", "UGX", "VND", "XAF", "XOF", "XPF"), 0)
_DECIMALS |= dict.fromkeys(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"), 3)
_SIGNS = {"EUR": "€", "GBP": "£", "USD": "$", "JPY": "¥", "TWD": "NT$"}


def money(minor: int, currency: str) -> str:
    decimals = _DECIMALS.get(currency, 2)
    sign = _SIGNS.get(currency, f"{currency}\N{NO-BREAK SPACE}")
    whole, part = divmod(minor, 10**decimals)
    return f"{sign}{whole:,}" + (f".{part:0{decimals}}" if part else "")


def moment(at: datetime, time_zone: str) -> str:
    """`Wednesday 9 December 2026, 18:30`, as the clocks at the venue show it."""
    there = at.astimezone(ZoneInfo(time_zone))
    return f"{there:%A} {there.day} {there:%B %Y}, {there:%H:%M}"


def day(at: datetime, time_zone: str) -> tuple[str, str, str]:
    """(`Wed`, `9`, `Dec`) for the leaf of a calendar."""
    there = at.astimezone(ZoneInfo(time_zone))
    return f"{there:%a}", str(there.day), f"{there:%b}"


def city(time_zone: str) -> str:
    """`Lisbon` for `Europe/Lisbon`: whose clock a time was read from."""
    return time_zone.rpartition("/")[2].replace("_", " ")
