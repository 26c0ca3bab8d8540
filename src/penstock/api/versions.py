"""ApiVersions: the first thing every client asks."""

from collections.abc import Iterable, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.broker import Broker
from penstock.request import Answer, Request


async def api_versions(broker: Broker, request: Request) -> Answer:
    """No finalized features are listed, which keeps Java and franz-go on the transaction protocol we speak."""
    name = request.body.get("client_software_name", "")
    request.session.software = f"{name} {request.body.get('client_software_version', '')}".strip()
    return {
        "error_code": ErrorCode.none,
        "api_keys": [{"api_key": key, "min_version": low, "max_version": high} for key, low, high in broker.api_ranges],
    }


def ranges(apis: Iterable[Sequence[Any]]) -> list[dict[str, int]]:
    return [{"api_key": api[0], "min_version": api[2], "max_version": api[3]} for api in apis]
