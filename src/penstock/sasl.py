"""Who may talk to the broker: users with salted passwords, and the exchanges that prove one (PLAIN, SCRAM-SHA-256).

Pure: no I/O but reading the users file once. The file has a line per user, made by `penstock user NAME`, in the form
PostgreSQL also uses; it holds no password, and nothing in it lets anybody log in to another system:

    <name>:SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>          (salt and keys in base64)

An exchange takes what the client sent and answers bytes for it, and is over when `user` is set. Wrong passwords and
unknown names end in the same words after the same steps.
"""

import base64
import binascii
import hashlib
import hmac
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from penstock.config import BadConfig

ITERATIONS = 4096
TOKEN_BYTES_MAX = 4096
LINE = re.compile(r"([^:\s]+):SCRAM-SHA-256\$(\d{1,7}):([^$]+)\$([^:]+):(\S+)")
CLIENT_FIRST = re.compile(r"([ny]|p=[^,]*),(?:a=[^,]*)?,(n=([^,]*),r=([\x21-\x2b\x2d-\x7e]+))(?:,.*)?", re.DOTALL)
CLIENT_FINAL = re.compile(r"(c=([^,]+),r=([^,]+)),p=([^,]+)")


class Denied(Exception):
    """The exchange failed. The message is for the client and tells nothing about which part was wrong."""


@dataclass(frozen=True, slots=True)
class Credential:
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of(cls, password: str, salt: bytes | None = None, iterations: int = ITERATIONS) -> "Credential":
        salt = os.urandom(16) if salt is None else salt
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
        client_key = _hmac(salted, b"Client Key")
        return cls(iterations, salt, hashlib.sha256(client_key).digest(), _hmac(salted, b"Server Key"))

    def line(self, name: str) -> str:
        keys = f"{_base64(self.stored_key)}:{_base64(self.server_key)}"
        return f"{name}:SCRAM-SHA-256${self.iterations}:{_base64(self.salt)}${keys}"


@dataclass(slots=True)
class Users:
    by_name: dict[str, Credential]
    # Unknown users get a salt too, always the same for a name, so that asking does not tell who exists.
    _secret: bytes = field(default_factory=lambda: os.urandom(32))

    @classmethod
    def read(cls, path: str) -> "Users":
        users = {}
        for number, line in enumerate(Path(path).read_text().splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            found = LINE.fullmatch(line.strip())
            if not found:
                raise BadConfig(f"{path}, line {number}: not a line that `penstock user` makes")
            name, iterations, salt, stored, server = found.groups()
            try:
                keys = [base64.b64decode(text, validate=True) for text in (salt, stored, server)]
            except binascii.Error as error:
                raise BadConfig(f"{path}, line {number}: bad base64") from error
            users[name] = Credential(int(iterations), *keys)
        return cls(users)

    def credential(self, name: str) -> Credential:
        known = self.by_name.get(name)
        if known:
            return known
        return Credential(ITERATIONS, _hmac(self._secret, name.encode())[:16], os.urandom(32), os.urandom(32))


class Plain:
    def __init__(self, users: Users) -> None:
        self._users = users
        self.user: str | None = None

    def step(self, token: bytes) -> bytes:
        """`[authorize as] NUL name NUL password`"""
        try:
            asked_for, name, password = token.decode().split("\0")
        except (UnicodeDecodeError, ValueError) as error:
            raise Denied("Authentication failed: invalid PLAIN message") from error
        known = self._users.credential(name)
        given = Credential.of(password, known.salt, known.iterations)
        if not hmac.compare_digest(given.stored_key, known.stored_key) or asked_for not in ("", name):
            raise Denied("Authentication failed: Invalid username or password")
        self.user = name
        return b""


class Scram:
    """RFC 5802 with SHA-256 and no channel binding, seen from the server."""

    def __init__(self, users: Users) -> None:
        self._users = users
        self._name = ""
        self._first = ""
        self._nonce = ""
        self._credential: Credential | None = None
        self.user: str | None = None

    def step(self, token: bytes) -> bytes:
        try:
            text = token.decode()
        except UnicodeDecodeError as error:
            raise Denied("Authentication failed: invalid SCRAM message") from error
        return self._challenge(text) if self._credential is None else self._verify(text, self._credential)

    def _challenge(self, text: str) -> bytes:
        found = CLIENT_FIRST.fullmatch(text)
        if not found or found[1].startswith("p"):
            raise Denied("Authentication failed: invalid SCRAM message")
        self._name = found[3].replace("=2C", ",").replace("=3D", "=")
        self._credential = credential = self._users.credential(self._name)
        self._nonce = found[4] + _base64(os.urandom(18))
        challenge = f"r={self._nonce},s={_base64(credential.salt)},i={credential.iterations}"
        self._first = f"{found[2]},{challenge}"
        return challenge.encode()

    def _verify(self, text: str, credential: Credential) -> bytes:
        found = CLIENT_FINAL.fullmatch(text)
        # biws and eSws are "n,," and "y,,": no channel binding was asked for.
        if not found or found[2] not in ("biws", "eSws") or not hmac.compare_digest(found[3], self._nonce):
            raise Denied("Authentication failed: invalid SCRAM message")
        message = f"{self._first},{found[1]}".encode()
        try:
            proof = base64.b64decode(found[4], validate=True)
        except binascii.Error as error:
            raise Denied("Authentication failed: invalid SCRAM message") from error
        signature = _hmac(credential.stored_key, message)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        if not hmac.compare_digest(hashlib.sha256(client_key).digest(), credential.stored_key):
            raise Denied("Authentication failed during authentication due to invalid credentials with SASL mechanism")
        self.user = self._name
        return b"v=" + base64.b64encode(_hmac(credential.server_key, message))


Exchange = Plain | Scram
MECHANISMS: dict[str, type[Plain] | type[Scram]] = {"PLAIN": Plain, "SCRAM-SHA-256": Scram}


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
