"""What the one who asked gets to read when something breaks."""

import asyncpg
import msgspec
import pytest

from aisle.problems import answer_of

AWAY = [
    asyncpg.AdminShutdownError("terminating connection due to administrator command"),
    asyncpg.CannotConnectNowError("the database system is starting up"),
    asyncpg.TooManyConnectionsError("sorry, too many clients already"),
    asyncpg.DiskFullError("No space left on device"),
    asyncpg.DeadlockDetectedError("deadlock detected"),
    asyncpg.QueryCanceledError("canceling statement due to statement timeout"),
    asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"),
    asyncpg.InterfaceError("connection is closed"),
    ConnectionRefusedError(),
    TimeoutError(),
]


@pytest.mark.parametrize("error", AWAY, ids=lambda error: type(error).__name__)
def test_a_database_that_is_away_is_503_with_a_time_to_come_back(error):
    status, headers, body = answer_of(error, "/api/v1/bookings")
    assert (status, headers["retry-after"]) == (503, "1")
    assert msgspec.json.decode(body)["code"] == "database_unavailable"
    assert str(error) not in msgspec.json.decode(body)["detail"] or not str(error)


@pytest.mark.parametrize("error", [KeyError("seat"), asyncpg.UniqueViolationError("duplicate key")], ids=str)
def test_what_nobody_expected_is_500_and_says_nothing_of_itself(error):
    status, _, body = answer_of(error, "/api/v1/bookings")
    assert (status, msgspec.json.decode(body)["code"]) == (500, "internal")
    assert str(error).encode() not in body
