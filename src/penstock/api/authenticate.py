"""SaslHandshake and SaslAuthenticate; and what a client may ask before it has proved who it is."""

import asyncio
import struct

from kio.schema.errors import ErrorCode

from penstock.broker import Broker
from penstock.request import Answer, Request, Session
from penstock.sasl import MECHANISMS, TOKEN_BYTES_MAX, Denied
from penstock.wire.read import Malformed

HANDSHAKE, AUTHENTICATE, API_VERSIONS = 17, 36, 18
FAILED_LOGIN_DELAY_S = 0.1  # as Kafka's connection.failed.authentication.delay.ms: guessing gets slow
BEFORE_LOGIN = frozenset({HANDSHAKE, AUTHENTICATE, API_VERSIONS})


def may_ask(broker: Broker, session: Session, api_key: int) -> bool:
    if broker.users is None:
        return api_key not in (HANDSHAKE, AUTHENTICATE)
    return session.authenticated or api_key in BEFORE_LOGIN


async def sasl_handshake(broker: Broker, request: Request) -> Answer:
    mechanism, session = request.body["mechanism"], request.session
    answer = {"error_code": ErrorCode.none, "mechanisms": list(MECHANISMS)}
    if session.authenticated or broker.users is None:
        return {**answer, "error_code": ErrorCode.illegal_sasl_state}
    if mechanism not in MECHANISMS:
        return {**answer, "error_code": ErrorCode.unsupported_sasl_mechanism}
    session.exchange = MECHANISMS[mechanism](broker.users)
    # After a version 0 handshake the tokens follow as frames of their own, without headers.
    session.bare_tokens = request.version == 0
    return answer


async def sasl_authenticate(broker: Broker, request: Request) -> Answer:
    answer = {"error_code": ErrorCode.none, "error_message": None, "auth_bytes": b"", "session_lifetime": 0}
    if request.session.exchange is None:
        why = "SaslAuthenticate request received before a handshake"
        return {**answer, "error_code": ErrorCode.illegal_sasl_state, "error_message": why}
    try:
        reply = _step(broker, request.session, request.body["auth_bytes"])
    except Denied as error:
        await asyncio.sleep(FAILED_LOGIN_DELAY_S)
        return {**answer, "error_code": ErrorCode.sasl_authentication_failed, "error_message": str(error)}
    return {**answer, "auth_bytes": reply}


def bare_token(broker: Broker, session: Session, token: bytes) -> list[bytes | memoryview]:
    try:
        reply = _step(broker, session, token)
    except Denied as error:
        raise Malformed(str(error)) from error
    return [struct.pack(">i", len(reply)) + reply]


def _step(broker: Broker, session: Session, token: bytes) -> bytes:
    exchange = session.exchange
    if exchange is None or len(token) > TOKEN_BYTES_MAX:
        raise Denied("Authentication failed: unexpected token")
    try:
        reply = exchange.step(token)
    except Denied:
        broker.metrics.failed_logins += 1
        session.exchange = None
        raise
    if exchange.user is not None:
        session.principal = f"User:{exchange.user}"
        session.authenticated = True
        session.exchange = None
        session.bare_tokens = False
    return reply
