"""Signed references: what a browser keeps in its cookie and a program in its Authorization header.

    s.3f9a01bc.<payload, 32 characters>.<mac, 43 characters>            87 characters, base64url without padding
    |  |        |                        HMAC-SHA256 of everything before its dot
    |  |        16 random bytes, 8 bytes expiry in ms since 1970
    |  key id: which signing key
    s = session of a browser, t = token of a program

The random part is a reference, nothing else: who it stands for is kept by the server under its SHA-256, and can be
ended there. The signature exists so that a made-up reference costs some microseconds and no I/O.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from aisle.errors import StartupError

KEY_BYTES_MIN = 32
TOKEN_CHARS = 87

_SIGNED = 43
_REFERENCE_BYTES = 16


class Kind(Enum):
    SESSION = b"s."
    BEARER = b"t."


class SigningKey(NamedTuple):
    id: bytes
    secret: bytes


class Reference(NamedTuple):
    """What a genuine token stands for: the digest it is kept under, and when it ends whatever happens."""

    digest: bytes
    expires_at_ms: int


class Issued(NamedTuple):
    text: str
    reference: Reference


class Signer:
    """Signs with the first key, accepts all of them."""

    def __init__(self, keys: Sequence[SigningKey]) -> None:
        self.use(keys)

    def use(self, keys: Sequence[SigningKey]) -> None:
        self._signing = keys[0] if keys else None
        self._secrets = {key.id: key.secret for key in keys}

    def issue(self, kind: Kind, expires_at_ms: int) -> Issued:
        assert self._signing is not None, "a signer without a key signs nothing"
        reference = secrets.token_bytes(_REFERENCE_BYTES)
        payload = base64.urlsafe_b64encode(reference + expires_at_ms.to_bytes(8, "big"))
        signed = kind.value + self._signing.id + b"." + payload
        text = signed + b"." + _mac(self._signing.secret, signed)
        return Issued(text.decode(), Reference(hashlib.sha256(reference).digest(), expires_at_ms))

    def verify(self, kind: Kind, text: bytes, now_ms: int) -> Reference | None:
        """None for whatever we did not sign, signed with a key that is gone, or signed for a time that has passed."""
        if len(text) != TOKEN_CHARS or text[:2] != kind.value or text[_SIGNED : _SIGNED + 1] != b".":
            return None
        secret = self._secrets.get(text[2:10])
        if secret is None or not hmac.compare_digest(_mac(secret, text[:_SIGNED]), text[_SIGNED + 1 :]):
            return None
        payload = base64.urlsafe_b64decode(text[11:_SIGNED])
        expires_at_ms = int.from_bytes(payload[_REFERENCE_BYTES:], "big")
        if now_ms >= expires_at_ms:
            return None
        return Reference(hashlib.sha256(payload[:_REFERENCE_BYTES]).digest(), expires_at_ms)


def signing_key(secret: bytes) -> SigningKey:
    """The id follows from the secret, so that processes given the same secret agree on it."""
    return SigningKey(hashlib.sha256(b"aisle key id" + secret).hexdigest()[:8].encode(), secret)


def new_signing_key() -> SigningKey:
    return signing_key(secrets.token_bytes(KEY_BYTES_MIN))


def keys_from_setting(setting: str) -> list[SigningKey]:
    """AISLE_SECRET_KEY: hex or base64, several separated by commas; the first signs. Empty: none."""
    return [signing_key(_decode(part.strip())) for part in setting.split(",") if part.strip()]


def _decode(text: str) -> bytes:
    try:
        secret = bytes.fromhex(text)
    except ValueError:
        try:
            secret = base64.b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4), validate=True)
        except (binascii.Error, ValueError):
            raise StartupError("AISLE_SECRET_KEY is neither hex nor base64") from None
    if len(secret) < KEY_BYTES_MIN:
        raise StartupError(f"AISLE_SECRET_KEY has {len(secret)} bytes; it needs at least {KEY_BYTES_MIN}")
    return secret


def _mac(secret: bytes, signed: bytes) -> bytes:
    return base64.urlsafe_b64encode(hmac.digest(secret, signed, "sha256"))[:-1]
