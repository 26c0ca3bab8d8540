"""An account: who somebody is, in which role, and the rules for e-mail addresses and passwords.

Pure: no I/O, no clock. `register` and the command line ask here before they write; the schema repeats what it can.
"""

import re
import unicodedata
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

import msgspec

EMAIL_CHARS_MAX = 254
EMAIL_LOCAL_CHARS_MAX = 64
PASSWORD_CHARS_MIN = 8
PASSWORD_CHARS_MAX = 128

# The most used passwords that are long enough to pass the length rule: what a guesser tries first.
_MOST_USED = """
00000000 000000000 11111111 111111111 1111111111 11223344 112233445566 12121212 12341234 123123123 1234512345
12345678 123456789 1234567890 12345678910 123456789a 12345678a 1234qwer 123qwe123 123qweasd 147258369 1q2w3e4r
1q2w3e4r5t 1qaz2wsx 1qaz2wsx3edc 22222222 55555555 66666666 77777777 87654321 88888888 987654321 9876543210
99999999 a1b2c3d4 a123456789 aa123456 aa12345678 abc12345 abc123456 abcd1234 abcdefgh access14 adminadmin
administrator admin123 admin1234 alexander asdasdasd asdf1234 asdfasdf asdfghjkl baseball basketball bismillah
butterfly caroline changeme charlie1 chocolate computer concert1 corvette danielle dragon123 einstein elephant
elizabeth facebook football football1 forever21 gfhjkmgfhjkm hello123 helloworld iloveyou iloveyou1 iloveyou2
internet jennifer jordan23 letmein1 letmein123 liverpool liverpool1 lovelove master123 michelle midnight mustang1
myspace1 p@ssw0rd passw0rd password password1 password12 password123 password1234 pokemon1 princess princess1
q1w2e3r4 q1w2e3r4t5 qazwsxedc qq123456 qwer1234 qwerasdf qwerqwer qwerty12 qwerty123 qwerty1234 qwerty12345
qwertyui qwertyuiop rainbow1 samantha shadow123 snowball spiderman starwars sunshine sunshine1 superman superman1
superstar test1234 testtest ticket123 trustno1 victoria welcome1 welcome123 whatever zaq12wsx zxcvbnm1 zxcvbnm123
"""
VERY_COMMON = frozenset(_MOST_USED.split())

_EMAIL = re.compile(r"[^@\s\"(),:;<>\[\\\]]+@[^@\s\"(),:;<>\[\\\]_]+\.[^@\s\"(),:;<>\[\\\]_.]+")


class Role(StrEnum):
    BUYER = "buyer"
    SELLER = "seller"
    DOOR = "door"
    OPERATOR = "operator"


class Account(msgspec.Struct, frozen=True):
    id: UUID
    email: str
    role: Role
    created_at: datetime


class Actor(NamedTuple):
    """Who is asking. `session` is the digest of a browser's session, `token_id` names a program's token."""

    account_id: UUID
    role: Role
    session: bytes | None = None
    token_id: UUID | None = None


class Refusal(NamedTuple):
    code: str
    detail: str


def normalise_email(text: str) -> str | Refusal:
    """One spelling per mailbox, so that case and look-alike forms of the same letters cannot make a second account."""
    email = unicodedata.normalize("NFKC", text.strip()).lower()
    local = email.partition("@")[0]
    printable = email.isprintable() and len(email) <= EMAIL_CHARS_MAX and len(local) <= EMAIL_LOCAL_CHARS_MAX
    if not (printable and _EMAIL.fullmatch(email)) or ".." in email or email.endswith("."):
        return Refusal("invalid_email", "this is not an e-mail address")
    return email


def normalise_password(text: str) -> str:
    """The same password typed on another keyboard may arrive as other code points; they count as the same."""
    return unicodedata.normalize("NFKC", text)


def refuse_password(password: str, email: str) -> Refusal | None:
    """Length and guessability only: rules about kinds of characters make passwords worse."""
    if not PASSWORD_CHARS_MIN <= len(password) <= PASSWORD_CHARS_MAX:
        return Refusal("weak_password", f"a password has {PASSWORD_CHARS_MIN} to {PASSWORD_CHARS_MAX} characters")
    plain = password.lower()
    if plain in VERY_COMMON or len(set(plain)) == 1:
        return Refusal("weak_password", "this password is among the first that a guesser tries")
    if plain in (email, email.partition("@")[0]):
        return Refusal("weak_password", "a password cannot be the e-mail address")
    return None
