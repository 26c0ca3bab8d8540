"""A Lua file as something the store can run: its name, its text and the SHA1 by which the server remembers it.

One `.lua` file per operation lies beside the Python that calls it. Lua has no modules inside the store, so a line
`-- with: name, name` stands for the text of other files: at the top for what every call needs, inside a function for
what only that function needs, because the server makes the functions at the top anew in every call.
"""

import hashlib
import re
from importlib.resources import files
from typing import NamedTuple

WITH = re.compile(r"^ *-- with: (.+)$", re.MULTILINE)


class Script(NamedTuple):
    name: str
    source: bytes
    sha: bytes


def load_script(package: str, name: str) -> Script:
    source = read_lua(package, name).encode()
    return Script(name, source, hashlib.sha1(source, usedforsecurity=False).hexdigest().encode())


def read_lua(package: str, name: str) -> str:
    """Text of `lua/<name>.lua` of a package, with the files it names in their places."""
    text = (files(package) / "lua" / f"{name}.lua").read_text()
    return WITH.sub(lambda line: "\n".join(read_lua(package, part.strip()) for part in line[1].split(",")), text)
