"""Ports that a data directory remembers: servers that know each other by address have to come back at the same one."""

from pathlib import Path

import msgspec

from aisle.embedded.errors import EmbeddedError
from aisle.embedded.home import write_private
from aisle.embedded.server import free_port


def remembered_ports(data: Path, names: list[str]) -> dict[str, int]:
    """The port of each name, chosen at the first start and kept in `data/ports.json`."""
    path = data / "ports.json"
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=dict[str, int])
    except FileNotFoundError:
        kept = {}
    except (OSError, msgspec.MsgspecError) as error:
        raise EmbeddedError(f"cannot read {path}: {error}") from None
    missing = [name for name in names if name not in kept]
    while missing:
        port = free_port()
        if port not in kept.values():
            kept[missing.pop()] = port
    write_private(path, msgspec.json.encode(kept).decode() + "\n")
    return kept
