"""The keys that sign ticket codes, and how their private halves lie in the database.

Pure. With AISLE_SECRET_KEY a private half is sealed with a key made from it, so that a copy of the database forges
nothing; without it there is nothing to seal with, and `aisle ticket-keys list` says so (decision 0007).
"""

import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from aisle.door.code import KEY_ID_BYTES

_NONCE_BYTES = 12


class TicketKey(NamedTuple):
    id: str
    public: bytes
    private: bytes
    sealed_with: str
    created_at: datetime | None = None
    revoked_at: datetime | None = None


class Sealer:
    """Seals with the first secret, opens with any of them."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        keys = [hashlib.sha256(b"aisle ticket keys" + secret).digest() for secret in secrets]
        self._keys: Mapping[str, bytes] = {hashlib.sha256(key).hexdigest()[:8]: key for key in keys}

    def new_key(self) -> TicketKey:
        private = Ed25519PrivateKey.generate()
        public = private.public_key().public_bytes_raw()
        id = hashlib.sha256(public).digest()[:KEY_ID_BYTES].hex()
        return TicketKey(id, public, *self._seal(private.private_bytes_raw(), id))

    def open(self, key: TicketKey) -> Ed25519PrivateKey | None:
        """None if it was sealed with a secret that we were not given."""
        if not key.sealed_with:
            return Ed25519PrivateKey.from_private_bytes(key.private)
        secret = self._keys.get(key.sealed_with)
        if secret is None:
            return None
        nonce, sealed = key.private[:_NONCE_BYTES], key.private[_NONCE_BYTES:]
        try:
            # Bound to the id: a private half cannot be moved under another public one.
            raw = ChaCha20Poly1305(secret).decrypt(nonce, sealed, key.id.encode())
        except InvalidTag:
            return None
        return Ed25519PrivateKey.from_private_bytes(raw)

    def _seal(self, raw: bytes, id: str) -> tuple[bytes, str]:
        for secret_id, secret in self._keys.items():
            nonce = os.urandom(_NONCE_BYTES)
            return nonce + ChaCha20Poly1305(secret).encrypt(nonce, raw, id.encode()), secret_id
        return raw, ""


def public_key(key: TicketKey) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(key.public)


def as_jwk(key: TicketKey) -> dict[str, str]:
    """The public half as RFC 8037 writes it."""
    x = base64.urlsafe_b64encode(key.public).rstrip(b"=").decode()
    return {"kty": "OKP", "crv": "Ed25519", "use": "sig", "kid": key.id, "x": x}
