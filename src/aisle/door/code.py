"""The text in a ticket's QR code: which seat of which event, in which version, signed. Nothing about the person.

    byte 0          1: this format
    bytes 1-4       key id: the first four bytes of the SHA-256 of the public key
    then            event, place, seat, version: unsigned LEB128 integers
    last 64 bytes   Ed25519 signature of everything before it

as base32 without padding: 120 capital letters and digits, which a QR code packs at 5.5 bits each (version 5, level M).
`docs/reference/ticket-code.md` shows how a stranger verifies one. Pure: no I/O, no clock.
"""

import base64
import binascii
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

FORMAT = 1
KEY_ID_BYTES = 4
SIGNATURE_BYTES = 64
CODE_CHARS_MAX = 180
NUMBER_BYTES_MAX = 9

_HEAD_BYTES = 1 + KEY_ID_BYTES


class Content(NamedTuple):
    event: int
    place: int
    seat: int
    version: int


class Unreadable(StrEnum):
    """Why a text is not believed. What is no code at all counts as tampered with: a door need not tell them apart."""

    TAMPERED = "tampered"
    UNKNOWN_KEY = "unknown_key"


def write_code(content: Content, key_id: str, private: Ed25519PrivateKey) -> str:
    signed = bytes([FORMAT]) + bytes.fromhex(key_id) + b"".join(map(_number, content))
    return base64.b32encode(signed + private.sign(signed)).rstrip(b"=").decode()


def read_code(text: str, keys: Mapping[str, Ed25519PublicKey]) -> Content | Unreadable:
    raw = _unpacked(text)
    if raw is None or len(raw) <= _HEAD_BYTES + SIGNATURE_BYTES or raw[0] != FORMAT:
        return Unreadable.TAMPERED
    key = keys.get(key_id_in(raw))
    if key is None:
        return Unreadable.UNKNOWN_KEY
    signed, signature = raw[:-SIGNATURE_BYTES], raw[-SIGNATURE_BYTES:]
    try:
        key.verify(signature, signed)
    except InvalidSignature:
        return Unreadable.TAMPERED
    numbers = _numbers(signed[_HEAD_BYTES:])
    return Content(*numbers) if len(numbers) == len(Content._fields) else Unreadable.TAMPERED


def key_id_of(text: str) -> str | None:
    """Which key a text claims to be signed with; None if it cannot be a code."""
    raw = _unpacked(text)
    return key_id_in(raw) if raw is not None and len(raw) > _HEAD_BYTES else None


def key_id_in(raw: bytes) -> str:
    return raw[1:_HEAD_BYTES].hex()


def _unpacked(text: str) -> bytes | None:
    text = text.strip().upper()
    if len(text) > CODE_CHARS_MAX:
        return None
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        return None
    # The last character has bits to spare; only one of the texts that decode alike is the code.
    return raw if base64.b32encode(raw).rstrip(b"=").decode() == text else None


def _number(value: int) -> bytes:
    assert 0 <= value < 1 << (7 * NUMBER_BYTES_MAX)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _numbers(packed: bytes) -> list[int]:
    numbers, value, shift = [], 0, 0
    for byte in packed:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(value)
            value = shift = 0
    return numbers if shift == 0 else []
