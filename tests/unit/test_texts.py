"""Every text that templates or browser modules name exists, and none is left that nobody names."""

import re
from pathlib import Path

from aisle.ui.texts import TEXTS, text
from aisle.ui.words import money

UI = Path(__file__).parent.parent.parent / "src" / "aisle" / "ui"
SOURCES = [path for path in UI.rglob("*") if path.suffix in {".html", ".js", ".py"} and "vendor" not in path.parts]
WORDS = "\n".join(path.read_text() for path in sorted(SOURCES))
# Keys that are put together: the beginning, as in `text(`problem.${code}`)` and `t("legend." ~ kind)`.
BEGINNINGS = tuple(set(re.findall(r"[\"`]([a-z]+\.(?:[a-z]+\.)?)(?:\$\{|\" ~)", WORDS)))


def test_every_text_that_is_named_exists():
    called = set(re.findall(r"\b(?:t|text)\(\"([a-z]+\.[A-Za-z_.]+)\"[,)]", WORDS))
    assert len(called) > 50
    assert sorted(called - set(TEXTS)) == []


def test_every_text_is_named():
    left = [key for key in TEXTS if f'"{key}"' not in WORDS and not key.startswith(BEGINNINGS)]
    assert left == []


def test_values_are_filled_in_and_braces_of_people_stay():
    assert text("home.found", search="{city} & <b>") == "Results for “{city} & <b>”"


def test_amounts_have_the_decimals_of_their_currency():
    amounts = [
        money(6800, "EUR"),
        money(6850, "EUR"),
        money(6800, "JPY"),
        money(6805, "KWD"),
        money(123_456_700, "CHF"),
    ]
    assert amounts == ["€68", "€68.50", "¥6,800", "KWD\N{NO-BREAK SPACE}6.805", "CHF\N{NO-BREAK SPACE}1,234,567"]
