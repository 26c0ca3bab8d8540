"""PostgreSQL edge: the connection pool and nothing else. SQL lives in the slices, schema in `migrations/`.

Decisions read the primary only. Constraints in the schema are the last line against a double sale, so nothing here
retries: a caller that may repeat does so under its own operation id.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

import asyncpg

from aisle.config import Config
from aisle.errors import StartupError
from aisle.limits import POSTGRES_VERSION_MIN, TRANSACTION_PAUSE_SECONDS, TRANSACTION_TRIES_MAX

Value = TypeVar("Value")

# How many transactions of this process were run again.
run_again = 0

# A plan that was kept when a table was empty reads all of it when a rush has filled it, and statistics come a minute
# later: planning anew costs a fraction of a millisecond a batch. What a rush touches is in memory, so looking a row up
# by its key is not the four reads from a spinning disk that PostgreSQL assumes.
SESSION = {"plan_cache_mode": "force_custom_plan", "random_page_cost": "1.1"}

# A restart, a killed backend, a full disk, too many connections, a lock that somebody holds, a transaction given up.
AWAY = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
    asyncpg.PostgresSystemError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    # Bytes came that are no answer to what was asked: the connection is spoilt, and what was sent may be done or not.
    asyncpg.InternalClientError,
)


@asynccontextmanager
async def open_database(config: Config) -> AsyncIterator[asyncpg.Pool]:
    """Open the pool, make sure the server can carry us, close the pool on the way out."""
    pool = await open_pool(config)
    try:
        async with pool.acquire() as connection:
            await require_version(connection)
        yield pool
    finally:
        try:
            await asyncio.wait_for(pool.close(), timeout=config.database_timeout)
        except TimeoutError:
            pool.terminate()


async def connect(config: Config) -> asyncpg.Connection:
    """One connection outside the pool, for commands and migrations."""
    with _clear_errors(config.database_url):
        return await asyncpg.connect(config.database_url, timeout=config.database_timeout, command_timeout=None)


async def require_version(connection: asyncpg.Connection) -> None:
    number = int(await connection.fetchval("show server_version_num"))
    if number < POSTGRES_VERSION_MIN:
        found = await connection.fetchval("show server_version")
        raise StartupError(f"PostgreSQL {found} is too old; Aisle needs {POSTGRES_VERSION_MIN // 10_000} or newer")


def is_away(error: BaseException) -> bool:
    """PostgreSQL is away, full or in another's hands: whoever asks again later may succeed. Anything else is a bug."""
    if isinstance(error, asyncpg.InterfaceError):
        return not isinstance(error, ValueError)  # a value that does not fit its column is ours
    return isinstance(error, (OSError, TimeoutError, *AWAY))


async def in_one_go(
    pool: asyncpg.Pool,
    write: Callable[[asyncpg.Connection], Awaitable[Value]],
    *,
    lost: tuple[type[asyncpg.PostgresError], ...] = (asyncpg.DeadlockDetectedError,),
) -> Value:
    """Run one transaction. One that PostgreSQL gave up to free somebody else is run again: it left nothing."""
    global run_again  # noqa: PLW0603 - a count, for the metrics
    for tries_left in reversed(range(TRANSACTION_TRIES_MAX)):
        try:
            async with pool.acquire() as connection:
                return await write(connection)
        except lost:
            if not tries_left:
                raise
            run_again += 1
            # The one it stood in the way of goes first, or the two meet again.
            await asyncio.sleep(TRANSACTION_PAUSE_SECONDS)
    raise AssertionError("the last try returns or raises")


async def check_database(pool: asyncpg.Pool, timeout_s: float) -> None:
    """Raise if the database does not answer a trivial query in time."""
    async with asyncio.timeout(timeout_s), pool.acquire() as connection:
        await connection.fetchval("select 1")


async def open_pool(config: Config, *, min_size: int = 1, **session: str) -> asyncpg.Pool:
    with _clear_errors(config.database_url):
        return await asyncpg.create_pool(
            config.database_url,
            min_size=min_size,
            max_size=config.database_pool_size,
            timeout=config.database_timeout,
            command_timeout=config.database_timeout,
            reset=_keep_as_it_is,
            server_settings=SESSION | session,
        )


async def _keep_as_it_is(connection: asyncpg.Connection) -> None:
    """Nobody here leaves anything in a session but prepared statements: a round trip to reset it would change nothing.

    A transaction that was left open is rolled back by the library before this is called.
    """


@contextmanager
def _clear_errors(url: str) -> Iterator[None]:
    """Turn the many ways a connection can fail into one sentence that names the server and never the password."""
    server = url.rpartition("@")[2] or "the database"
    try:
        yield
    except (asyncpg.InvalidPasswordError, asyncpg.InvalidAuthorizationSpecificationError):
        raise StartupError(f"PostgreSQL at {server} refused the user name or password") from None
    except asyncpg.InvalidCatalogNameError:
        raise StartupError(f"PostgreSQL at {server}: the database does not exist") from None
    except (asyncpg.ClientConfigurationError, asyncpg.InterfaceError, ValueError) as error:
        raise StartupError(f"AISLE_DATABASE_URL is not usable: {error}") from None
    except (OSError, TimeoutError, asyncpg.PostgresConnectionError):
        raise StartupError(f"PostgreSQL at {server} does not answer") from None
    except asyncpg.PostgresError as error:
        raise StartupError(f"PostgreSQL at {server}: {error}") from None
