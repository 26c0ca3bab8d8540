"""What the demonstration shows: three logins and three events, described as a seller would describe them.

Pure. The passwords are public; whoever loads the demonstration is told so. Nothing here is ever loaded unasked.
"""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from aisle.accounts.account import Role


class Login(NamedTuple):
    role: Role
    email: str
    password: str


DOOR = Login(Role.DOOR, "door@aisle.example", "demo door 2026")
LOGINS = (
    Login(Role.SELLER, "seller@aisle.example", "demo seller 2026"),
    Login(Role.BUYER, "buyer@aisle.example", "demo buyer 2026"),
    DOOR,
)


def season(now: datetime) -> list[dict[str, Any]]:
    """A theatre, a stadium with lanes of its own, and a cellar that is sold out in a minute."""
    evening = now.replace(hour=18, minute=30, second=0, microsecond=0)
    return [
        {**_theatre(), "starts_at": (evening + timedelta(days=24)).isoformat()},
        {**_stadium(), "starts_at": (evening + timedelta(days=61)).isoformat()},
        {**_cellar(), "starts_at": (evening + timedelta(days=10)).isoformat()},
    ]


def _theatre() -> dict[str, Any]:
    return {
        "name": "The Tempest",
        "venue": "Harbour Theatre",
        "description": "Shakespeare's last island, staged with a live string quartet. Two hours, one interval. "
        "Wheelchair places are at the ends of the first rows; the grand tier is reached by lift.",
        "currency": "EUR",
        "time_zone": "Europe/Lisbon",
        "seats_per_booking": 8,
        "seats_per_buyer": 8,
        "sections": [
            {
                "name": "Stalls",
                "price": 6800,
                "subsections": [
                    {"rows": 14, "seats_per_row": 12, "first": 1, "accessible": ["1-1", "1-2", "2-1"]},
                    {"rows": 14, "seats_per_row": 16, "first": 2, "blocked": ["14-8", "14-9"]},  # the sound desk
                    {"rows": 14, "seats_per_row": 12, "first": 3, "accessible": ["1-11", "1-12", "2-12"]},
                ],
            },
            {
                "name": "Circle",
                "price": 4900,
                "subsections": [{"rows": 8, "seats_per_row": 14, "count": 3, "accessible": ["1-1", "1-14"]}],
            },
            {
                "name": "Balcony",
                "price": 2900,
                # Seats behind the two pillars are not sold.
                "subsections": [
                    {"rows": 6, "seats_per_row": 18, "count": 3, "blocked": ["3-5", "3-14", "4-5", "4-14"]}
                ],
            },
        ],
    }


def _stadium() -> dict[str, Any]:
    tiers = [("Floor", 14900, 6, 24, 24), ("Lower", 11900, 12, 26, 26), ("Middle", 8900, 16, 24, 28)]
    tiers += [("Upper", 5900, 16, 28, 30), ("Gallery", 3900, 20, 24, 30)]
    return {
        "name": "Night Train: the last tour",
        "venue": "Riverside Stadium",
        "description": "Four hours, two stages, every song. The whole stadium goes on sale in the same minute.",
        "currency": "EUR",
        "time_zone": "Europe/Lisbon",
        "sections": [
            {
                "name": name,
                "price": price,
                "subsections": [
                    {"rows": rows, "seats_per_row": seats, "count": count, "accessible": ["1-1", f"1-{seats}"]}
                ],
            }
            for name, price, count, rows, seats in tiers
        ],
    }


def _cellar() -> dict[str, Any]:
    return {
        "name": "Late Set: Ines Duarte Trio",
        "venue": "The Cellar",
        "description": "Piano, bass and drums, forty-eight seats and some room to stand, no amplification.",
        "currency": "EUR",
        "time_zone": "Europe/Lisbon",
        "seats_per_booking": 4,
        "seats_per_buyer": 4,
        "sections": [
            {
                "name": "Front",
                "price": 3200,
                "subsections": [{"rows": 3, "seats_per_row": 8, "accessible": ["1-1", "1-8"]}],
            },
            {"name": "Bar", "price": 2200, "subsections": [{"rows": 3, "seats_per_row": 8}]},
        ],
        "pools": [{"name": "Standing", "price": 1400, "capacity": 30, "places_per_buyer": 4}],
    }
