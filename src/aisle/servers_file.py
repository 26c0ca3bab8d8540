"""Where a running `aisle up` tells the other commands how to reach its servers: `<data directory>/servers.json`.

    {"database_url": "postgresql://...", "store_url": "unix://...", "kafka": "127.0.0.1:...", "port": 8080}

Mode 0600, because the addresses hold passwords.

Written by `aisle up`, removed when it stops. After a kill -9 the file stays and leads nowhere, which the command that
follows it says.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from aisle.config import Config
from aisle.embedded.home import write_private
from aisle.errors import StartupError


class Addresses(msgspec.Struct, forbid_unknown_fields=True):
    database_url: str
    store_url: str
    kafka: str = ""
    port: int = 0


@contextmanager
def servers_file(config: Config) -> Iterator[None]:
    """The file is there while the block runs."""
    path = _path(config)
    addresses = Addresses(config.database_url, config.store_url, config.kafka, config.port)
    write_private(path, msgspec.json.encode(addresses).decode() + "\n")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def with_running_servers(config: Config) -> Config:
    """Fill the addresses that no setting gives with those of a running `aisle up`, if there is one."""
    if config.store_url and config.database_url:
        return config
    found = _read(_path(config))
    if found is None:
        return config
    return msgspec.structs.replace(
        config,
        database_url=config.database_url or found.database_url,
        store_url=config.store_url or found.store_url,
        kafka=config.kafka or found.kafka,
    )


def address_of(config: Config) -> str:
    """Where the HTTP server of this installation answers: that of a running `aisle up`, else as the settings say."""
    found = _read(_path(config))
    return f"http://{config.host}:{found.port if found and found.port else config.port}"


def _read(path: Path) -> Addresses | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Addresses)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise StartupError(f"cannot read {path}: {error}") from None


def _path(config: Config) -> Path:
    return Path(config.data_dir) / "servers.json"
