"""Errors as HTTP answers: RFC 9457 problem+json, always with a stable `code` a program can act on.

No stack trace and no text of an unexpected exception ever leaves the process; the request id leads to the log line.
"""

from typing import Any

import msgspec
import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException
from litestar.types import ExceptionHandlersMap

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


def exception_answers() -> ExceptionHandlersMap:
    return {Problem: _answer_problem, HTTPException: _answer_http_exception, Exception: _answer_unexpected}


def _answer_problem(request: Request[Any, Any, Any], error: Problem) -> Response[bytes]:
    headers = {"retry-after": str(error.retry_after_s)} if error.retry_after_s is not None else {}
    return _response(error.status, error.code, error.detail, headers, **error.more)


def _answer_http_exception(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    more: dict[str, Any] = {}
    detail = error.detail
    if isinstance(error, ValidationException):
        detail = "the request does not fit its schema"
        more = {"errors": error.extra or []}
    code = _CODES.get(error.status_code, "request_failed" if error.status_code < 500 else "internal")
    return _response(error.status_code, code, detail, dict(error.headers or {}), **more)


def _answer_unexpected(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    log.error("unexpected_error", path=request.scope["path"], exc_info=error)
    return _response(500, "internal", "something went wrong on our side; the request id leads to the cause", {})


def _response(status: int, code: str, detail: str, headers: dict[str, str], **more: Any) -> Response[bytes]:
    return Response(
        problem_body(status, code, detail, **more), status_code=status, media_type=MEDIA_TYPE, headers=headers
    )
