"""What this slice works with, put together once per process by the composition root and passed to its verbs.

While it is open it follows the signing keys in PostgreSQL, so that a rotation needs no restart.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import asyncpg
import structlog

from aisle.accounts.bearer import BearerTokens
from aisle.accounts.client_address import Network, parse_proxies
from aisle.accounts.limiter import Limiter
from aisle.accounts.passwords import Passwords
from aisle.accounts.sessions import Sessions
from aisle.accounts.store import AccountsStore
from aisle.accounts.tokens import Signer, SigningKey, keys_from_setting
from aisle.config import Config
from aisle.errors import Problem
from aisle.store import Store

KEYS_REFRESH_SECONDS = 30.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Desk:
    config: Config
    clock: Callable[[], float]
    proxies: tuple[Network, ...]
    accounts: AccountsStore
    passwords: Passwords
    signer: Signer
    sessions: Sessions
    bearers: BearerTokens
    limiter: Limiter


@asynccontextmanager
async def open_desk(
    config: Config, database: asyncpg.Pool, store: Store, *, clock: Callable[[], float] = time.time
) -> AsyncIterator[Desk]:
    given = keys_from_setting(config.secret_key)
    keys = given or await AccountsStore(database).signing_keys()
    desk = make_desk(config, database, store, keys, clock=clock)
    follower = None if given else asyncio.create_task(_follow_keys(desk))
    try:
        yield desk
    finally:
        if follower is not None:
            follower.cancel()
            with suppress(asyncio.CancelledError):
                await follower
        desk.passwords.close()


def make_desk(
    config: Config, database: asyncpg.Pool, store: Store, keys: Sequence[SigningKey], *, clock: Callable[[], float]
) -> Desk:
    """Opens nothing: what is passed in is used when the first request comes."""
    accounts = AccountsStore(database)
    signer = Signer(keys)
    return Desk(
        config=config,
        clock=clock,
        proxies=parse_proxies(config.trusted_proxies),
        accounts=accounts,
        passwords=Passwords(threads=config.password_threads, queue=config.password_queue),
        signer=signer,
        sessions=Sessions(
            store, signer, idle_s=config.session_idle_seconds, lifetime_s=config.session_seconds_max, clock=clock
        ),
        bearers=BearerTokens(accounts, signer, clock=clock),
        limiter=Limiter(store),
    )


async def _follow_keys(desk: Desk) -> None:
    while True:
        await asyncio.sleep(KEYS_REFRESH_SECONDS)
        try:
            desk.signer.use(await desk.accounts.signing_keys())
        except Problem as error:
            log.warning("signing_keys_not_refreshed", reason=error.detail)
