"""Errors as HTTP answers: RFC 9457 problem+json, always with a stable `code` a program can act on.

No stack trace and no text of an unexpected exception ever leaves the process; the request id leads to the log line.
"""

from typing import Any, NamedTuple

import msgspec
import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException
from litestar.types import ExceptionHandlersMap

from aisle.db import is_away
from aisle.errors import Problem

MEDIA_TYPE = "application/problem+json"

_CODES = {
    400: "invalid_request",
    401: "not_logged_in",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "body_too_large",
    415: "unsupported_media_type",
    429: "too_many_requests",
}

log = structlog.get_logger()


def problem_body(status: int, code: str, detail: str, **more: Any) -> bytes:
    return msgspec.json.encode(
        {"type": f"urn:aisle:problem:{code}", "status": status, "code": code, "detail": detail, **more}
    )


class ErrorAnswer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def answer_of(error: Exception, path: str) -> ErrorAnswer:
    """What the one who asked gets to read; what we did not expect is logged with its stack."""
    if isinstance(error, Problem):
        headers = {"retry-after": str(error.retry_after_s)} if error.retry_after_s is not None else {}
        return ErrorAnswer(error.status, headers, problem_body(error.status, error.code, error.detail, **error.more))
    if isinstance(error, HTTPException):
        more: dict[str, Any] = {}
        detail = error.detail
        if isinstance(error, ValidationException):
            detail = "the request does not fit its schema"
            more = {"errors": error.extra or []}
        code = _CODES.get(error.status_code, "request_failed" if error.status_code < 500 else "internal")
        body = problem_body(error.status_code, code, detail, **more)
        return ErrorAnswer(error.status_code, dict(error.headers or {}), body)
    if is_away(error):
        log.warning("database_away", path=path, reason=str(error) or type(error).__name__)
        detail = "the database is not answering; it may or may not be done: ask again under the same key"
        return ErrorAnswer(503, {"retry-after": "1"}, problem_body(503, "database_unavailable", detail))
    log.error("unexpected_error", path=path, exc_info=error)
    detail = "something went wrong on our side; the request id leads to the cause"
    return ErrorAnswer(500, {}, problem_body(500, "internal", detail))


def exception_answers() -> ExceptionHandlersMap:
    return {Exception: _answer, HTTPException: _answer}


def _answer(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    status, headers, body = answer_of(error, request.scope["path"])
    return Response(body, status_code=status, media_type=MEDIA_TYPE, headers=headers)
