"""Every failure Aisle reports by name.

Refusals that a rule foresees are values, bugs are assertions; what is left are these. Edges catch them: the HTTP edge
turns a `Problem` into problem+json, the command line turns a `StartupError` into one line on stderr and exit code 2.
"""

from typing import Any


class AisleError(Exception):
    """Root of the tree; never raised itself."""


class StartupError(AisleError):
    """The process cannot start as it was asked to. The message is one sentence for the operator."""


class Problem(AisleError):
    """An answer to an HTTP request that is not a success: RFC 9457 with a stable `code`.

    `more` are members that only some problems have, such as the seats in the way.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        retry_after_s: int | None = None,
        more: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.retry_after_s = retry_after_s
        self.more = more or {}


class StoreUnavailable(Problem):
    """The hot store cannot be reached, or the circuit breaker is open. Nothing was changed."""

    def __init__(self, detail: str, *, retry_after_s: int = 1) -> None:
        super().__init__(503, "store_unavailable", detail, retry_after_s=retry_after_s)


class StoreUnverified(Problem):
    """The store was restarted, flushed or replaced, and is being compared with PostgreSQL. Nothing was changed."""

    def __init__(self, standing: str) -> None:
        super().__init__(503, "store_unverified", f"the store is {standing} and being verified", retry_after_s=2)


class StoreOutcomeUnknown(Problem):
    """The store took a write and did not answer: it may or may not have happened. Repeat with the same operation id."""

    def __init__(self, detail: str) -> None:
        super().__init__(503, "store_outcome_unknown", detail, retry_after_s=1)


class StoreScriptFailed(AisleError):
    """A script stopped with an error reply (wrong type, out of memory, read-only replica). Nothing was half-applied."""

    def __init__(self, script: str, code: str, message: str) -> None:
        super().__init__(f"{script}: {code} {message}")
        self.script = script
        self.code = code


class Overloaded(Problem):
    def __init__(self) -> None:
        super().__init__(503, "overloaded", "too many requests are waiting; try again shortly", retry_after_s=1)
