"""Signatures of webhooks: an HMAC over the moment and the raw body, in the form `t=<seconds>,v1=<hex>`.

The moment is signed with the body, so an old webhook cannot be sent again with a new date.
"""

import hashlib
import hmac
from datetime import datetime

from aisle.limits import WEBHOOK_SECONDS_MAX
from aisle.payment.provider import NoticeRefused


def sign(secret: str, body: bytes, now: datetime) -> str:
    moment = str(int(now.timestamp()))
    return f"t={moment},v1={_digest(secret, moment, body)}"


def check_signature(secret: str, header: str, body: bytes, now: datetime) -> None:
    """Raise NoticeRefused unless the header signs exactly this body, a short while ago."""
    fields = dict(field.partition("=")[::2] for field in header.split(","))
    moment, given = fields.get("t", ""), fields.get("v1", "")
    if not (moment.isascii() and moment.isdecimal() and len(moment) < 12 and given):
        raise NoticeRefused(400, "webhook_unsigned", "the signature header is missing or malformed")
    if not hmac.compare_digest(_digest(secret, moment, body).encode(), given.encode("utf-8", "replace")):
        raise NoticeRefused(400, "webhook_bad_signature", "the signature does not fit the body")
    if abs(now.timestamp() - int(moment)) > WEBHOOK_SECONDS_MAX:
        raise NoticeRefused(400, "webhook_too_old", f"a webhook counts for {WEBHOOK_SECONDS_MAX} s")


def _digest(secret: str, moment: str, body: bytes) -> str:
    return hmac.new(secret.encode(), moment.encode() + b"." + body, hashlib.sha256).hexdigest()
