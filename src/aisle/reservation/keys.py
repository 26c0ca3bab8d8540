"""Every key of the hot store, in one place. `docs/reference/store.md` shows each with an example.

The keys of one subsection share a hash tag, `{event:section-subsection}`, so that one script touches one slot of a
cluster. The parts of a name are checked here: a `:` or a brace in a section's name would forge another key or slot.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

PART = re.compile(r"[A-Za-z0-9_]{1,32}")
IDENTIFIER = re.compile(r"[A-Za-z0-9_-]{1,64}")
MEMBER = re.compile(r"(\d{1,18}):([A-Za-z0-9_]{1,32})-(\d{1,6})")


class BadName(ValueError):
    """A section, pool or identifier that may not become part of a key."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A subsection of an event: the unit that one script works on. `A-1` of event 1 is Place(1, "A", 1)."""

    event: int
    section: str
    subsection: int

    def __post_init__(self) -> None:
        if not (isinstance(self.event, int) and 0 < self.event < 10**18):
            raise BadName(f"an event is a positive number, not {self.event!r}")
        if not (isinstance(self.section, str) and PART.fullmatch(self.section)):
            raise BadName(f"a section is 1 to 32 letters, digits or underscores, not {self.section!r}")
        if not (isinstance(self.subsection, int) and 0 < self.subsection < 10**6):
            raise BadName(f"a subsection is a positive number, not {self.subsection!r}")

    def __str__(self) -> str:
        return f"{self.event}:{self.section}-{self.subsection}"

    @classmethod
    def parse(cls, text: str) -> "Place":
        match = MEMBER.fullmatch(text)
        if match is None:
            raise BadName(f"{text[:40]!r} is not a place such as '1:A-1'")
        return cls(int(match[1]), match[2], int(match[3]))


@lru_cache(maxsize=200_000)
def subsection_keys(prefix: str, place: Place) -> tuple[str, ...]:
    """KEYS of every script of a subsection, in the order they are declared."""
    return tuple(
        f"{prefix}{name}:{{{place}}}"
        for name in ("seats_bf", "section_config", "section_stats", "row_avail", "seat_meta", "holds", "locks:exp")
    )


def lapsed(prefix: str, place: object) -> str:
    """zset of a subsection's or pool's holds that ran out and that PostgreSQL has not written down yet."""
    return f"{prefix}lapsed:{{{place}}}"


def event_sections(prefix: str, event: int) -> str:
    """zset of an event's subsections, best first."""
    return f"{prefix}event_sections:{event}"


def holding(prefix: str) -> str:
    """zset of the places that may have live holds, with the time the last one was announced: what sweepers visit."""
    return f"{prefix}holding"


def generation(prefix: str) -> str:
    """hash that names the installation and the server runs that were verified: tells a flushed or replaced store."""
    return f"{prefix}generation"


def operation(prefix: str) -> str:
    """hash of what operators' commands left behind: when store and tickets were last compared, the last backup."""
    return f"{prefix}operation"


def check_identifier(value: str, what: str) -> str:
    if not (isinstance(value, str) and IDENTIFIER.fullmatch(value)):
        raise BadName(f"{what} is 1 to 64 letters, digits, '-' or '_', not {value!r}")
    return value
