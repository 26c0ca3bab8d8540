"""What the replies of a transaction mean, in particular when the server refuses to begin it. No server."""

import asyncio

import pytest

from respline import OutcomeUnknown, Reply, ServerError
from respline.batch import Transaction

BUSY = ServerError("BUSY", "a script is running")


async def outcome(*replies: Reply, asking: bool = False) -> list[Reply]:
    future: asyncio.Future[list[Reply]] = asyncio.get_running_loop().create_future()
    transaction = Transaction(future, len(replies), asking)
    transaction.replies.extend(replies)
    transaction.settle()
    return await future


async def test_the_caller_gets_what_exec_answered() -> None:
    assert await outcome(b"OK", b"QUEUED", b"QUEUED", [1, BUSY]) == [1, BUSY]
    assert await outcome(b"OK", b"OK", b"QUEUED", [1], asking=True) == [1]


async def test_commands_that_ran_without_multi_are_an_unknown_outcome() -> None:
    with pytest.raises(OutcomeUnknown, match="outside a transaction"):
        await outcome(BUSY, 1, 2, ServerError("ERR", "EXEC without MULTI"))
    with pytest.raises(OutcomeUnknown, match="outside a transaction"):
        await outcome(b"OK", BUSY, 1, ServerError("ERR", "EXEC without MULTI"), asking=True)


async def test_a_server_that_refuses_all_of_it_ran_nothing() -> None:
    with pytest.raises(ServerError, match="BUSY"):
        await outcome(BUSY, BUSY, BUSY, BUSY)


async def test_a_discarded_transaction_names_its_first_refusal() -> None:
    abort = ServerError("EXECABORT", "Transaction discarded because of previous errors.")
    with pytest.raises(ServerError, match="First refusal: MOVED 1 h:1") as discarded:
        await outcome(b"OK", b"QUEUED", ServerError("MOVED", "1 h:1"), abort)
    assert isinstance(discarded.value.__cause__, ServerError)
    with pytest.raises(ServerError, match="EXECABORT"):
        await outcome(b"OK", b"QUEUED", None)
