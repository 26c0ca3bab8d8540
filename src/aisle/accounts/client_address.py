"""Whose request is this, by network address: the peer of the socket, unless the peer is a proxy we were told to trust.

X-Forwarded-For is written by whoever wants to; only what a trusted proxy appended counts, so it is read from the right
up to the first address that is not a trusted proxy.
"""

import ipaddress
from collections.abc import Iterable, Sequence

from aisle.errors import StartupError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

FORWARDED_HOPS_MAX = 20


def parse_proxies(setting: str) -> tuple[Network, ...]:
    """AISLE_TRUSTED_PROXIES: addresses and networks, separated by commas."""
    try:
        return tuple(ipaddress.ip_network(part.strip()) for part in setting.split(",") if part.strip())
    except ValueError as error:
        raise StartupError(f"AISLE_TRUSTED_PROXIES: {error}") from None


def client_address(peer: str | None, headers: Iterable[tuple[bytes, bytes]], proxies: Sequence[Network]) -> str:
    """The name under which a client is counted: an IPv4 address, or the /64 that one IPv6 customer owns."""
    current = _parse(peer or "")
    if current is None:
        return "unknown"
    if _trusted(current, proxies):
        forwarded = b",".join(value for name, value in headers if name == b"x-forwarded-for").decode("latin-1")
        for hop in forwarded.split(",")[::-1][:FORWARDED_HOPS_MAX]:
            address = _parse(hop.strip())
            if address is None:
                break
            current = address
            if not _trusted(current, proxies):
                break
    return _counted_as(current)


def _parse(text: str) -> Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _trusted(address: Address, proxies: Sequence[Network]) -> bool:
    return any(address in network for network in proxies)


def _counted_as(address: Address) -> str:
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
