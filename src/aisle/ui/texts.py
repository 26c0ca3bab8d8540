"""Every word people read, in one file a language (`texts/en.json`), for templates and browser modules alike.

A key that does not exist is an error, in a template at once and in a module by a test. `{name}` is filled in by `text`.
"""

from importlib.resources import files

import msgspec

TEXTS: dict[str, str] = msgspec.json.decode((files("aisle.ui") / "texts" / "en.json").read_bytes(), type=dict[str, str])


def text(key: str, **values: object) -> str:
    words = TEXTS[key]
    for name, value in values.items():
        words = words.replace(f"{{{name}}}", str(value))
    return words


def as_module() -> bytes:
    """The same texts as an ES module."""
    # U+2028 and U+2029 end a line in old engines, even inside a string.
    packed = msgspec.json.encode(TEXTS).replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return b"export const TEXTS = " + packed + b";\n"
