"""A Lua file as something the store can run: its name, its text and the SHA1 by which the server remembers it.

One `.lua` file per operation lies beside the Python that calls it. Lua has no modules inside the store, so a file may
name others to put in front of it: a first line `-- with: name, name`.
"""

import hashlib
from importlib.resources import files
from typing import NamedTuple


class Script(NamedTuple):
    name: str
    source: bytes
    sha: bytes


def load_script(package: str, name: str) -> Script:
    """Read `lua/<name>.lua` of a package, with the files it names in front."""
    folder = files(package) / "lua"
    text = (folder / f"{name}.lua").read_text()
    first = text.partition("\n")[0]
    if first.startswith("-- with:"):
        shared = [part.strip() for part in first.removeprefix("-- with:").split(",")]
        text = "\n".join([*((folder / f"{part}.lua").read_text() for part in shared), text])
    source = text.encode()
    return Script(name, source, hashlib.sha1(source, usedforsecurity=False).hexdigest().encode())
