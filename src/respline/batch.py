"""Several replies that belong to one future: a list of commands, or a transaction, however long it is."""

import asyncio

from respline.command import Reply
from respline.errors import OutcomeUnknown, ResplineError, ServerError


class Batch:
    __slots__ = ("future", "replies", "size")

    def __init__(self, future: asyncio.Future[list[Reply]], size: int) -> None:
        self.future = future
        self.size = size
        self.replies: list[Reply] = []

    def settle(self) -> None:
        """All replies are here. A cancelled caller no longer wants them; taking them off the wire kept the order."""
        if not self.future.done():
            self.future.set_result(self.replies)


class Asking(Batch):
    """The replies to ASKING and to one command; the caller gets the latter, as from a single call."""

    __slots__ = ()

    def settle(self) -> None:
        if self.future.done():
            return
        reply = self.replies[-1]
        if isinstance(reply, ServerError):
            self.future.set_exception(reply)
        else:
            self.future.set_result(reply)


class Transaction(Batch):
    """The replies to MULTI, to each command as it was queued, and to EXEC; the caller gets what EXEC answered."""

    __slots__ = ("asking",)

    def __init__(self, future: asyncio.Future[list[Reply]], size: int, asking: bool) -> None:
        super().__init__(future, size)
        self.asking = asking  # One more reply comes first, to ASKING.

    def settle(self) -> None:
        if self.future.done():
            return
        begun, *queued, outcome = self.replies[self.asking :]
        refusals = [reply for reply in queued if isinstance(reply, ServerError)]
        if isinstance(begun, ServerError):
            self.future.set_exception(_never_began(begun, all_refused=len(refusals) == len(queued)))
        elif isinstance(outcome, ServerError):
            self.future.set_exception(_aborted(outcome, refusals))
        elif not isinstance(outcome, list):
            self.future.set_exception(ServerError("EXECABORT", "the server discarded the transaction"))
        else:
            self.future.set_result(outcome)


def _never_began(refusal: ServerError, all_refused: bool) -> ResplineError:
    """Without MULTI the server ran what followed one by one, unless it refused that too (busy with a script, say)."""
    if all_refused:
        return refusal
    return OutcomeUnknown(f"the server refused MULTI ({refusal}): some commands may have run outside a transaction")


def _aborted(outcome: ServerError, refusals: list[ServerError]) -> ServerError:
    """Names the command that spoilt the transaction, which EXEC itself does not."""
    if not refusals:
        return outcome
    error = ServerError(outcome.code, f"{outcome.message} First refusal: {refusals[0]}")
    error.__cause__ = refusals[0]
    return error
