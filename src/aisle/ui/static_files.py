"""Scripts, styles and pictures: read once at start, then answered from memory.

Pages name them under a path that holds a digest of all of them, so a browser keeps them for a year and never mixes two
releases: modules import each other by relative paths and stay under the same digest. Only names read at start are
answered, so no path leads anywhere else.
"""

import gzip
import hashlib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

from litestar import Request, Response, route
from litestar.exceptions import NotFoundException
from litestar.params import FromPath

from aisle.ui.texts import as_module

MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "LICENSE": "text/plain; charset=utf-8",
}
FOR_EVER = "public, max-age=31536000, immutable"


class File(NamedTuple):
    media_type: str
    plain: bytes
    packed: bytes


@cache
def static_files() -> dict[str, File]:
    found = {"texts.js": as_module()} | dict(_read(files("aisle.ui") / "static", ""))
    return {
        name: File(MEDIA_TYPES[name.rpartition(".")[2]], content, gzip.compress(content, mtime=0))
        for name, content in sorted(found.items())
    }


@cache
def digest() -> str:
    packed = b"".join(name.encode() + file.plain for name, file in static_files().items())
    return hashlib.sha256(packed).hexdigest()[:12]


def address(name: str) -> str:
    """Where a page finds a static file; a name that does not exist is an error."""
    assert name in static_files(), f"there is no static file {name}"
    return f"/static/{digest()}/{name}"


AnyRequest = Request[Any, Any, Any]


@route("/static/{file_path:path}", http_method=["GET", "HEAD"], include_in_schema=False)
async def static_file(file_path: FromPath[str], request: AnyRequest) -> Response[bytes]:
    name = file_path.lstrip("/")
    build, _, rest = name.partition("/")
    kept = build == digest()
    file = static_files().get(rest if kept else name)
    if file is None:
        raise NotFoundException("no such file")
    headers = {"cache-control": FOR_EVER if kept else "no-cache", "vary": "accept-encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.packed, media_type=file.media_type, headers={**headers, "content-encoding": "gzip"})
    return Response(file.plain, media_type=file.media_type, headers=headers)


def _read(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _read(entry, f"{prefix}{entry.name}/")
        else:
            found.append((prefix + entry.name, entry.read_bytes()))
    return found
