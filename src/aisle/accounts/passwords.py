"""argon2id in a small pool of threads: 19 MiB and tens of milliseconds of CPU a check, so never more than a few.

The queue in front is bounded; a full one is said at once with a Retry-After instead of making everybody wait. Nobody
can tell an unknown user from a wrong password by the clock: both cost one check.
"""

import asyncio
import base64
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError

from aisle.accounts.account import normalise_password
from aisle.errors import Problem

MEMORY_KIB = 19_456
PASSES = 2
LANES = 1
SALT_BYTES = 16
HASH_BYTES = 32
BUSY_RETRY_SECONDS = 2

# Nobody's hash: the same parameters as a real one, and no password is known to give 32 zero bytes.
NOBODY = "$argon2id$v=19$m={},t={},p={}${}${}".format(
    MEMORY_KIB,
    PASSES,
    LANES,
    base64.b64encode(bytes(SALT_BYTES)).decode().rstrip("="),
    base64.b64encode(bytes(HASH_BYTES)).decode().rstrip("="),
)

T = TypeVar("T")


class Verdict(NamedTuple):
    matches: bool
    needs_rehash: bool


class Passwords:
    def __init__(self, *, threads: int, queue: int) -> None:
        self._hasher = PasswordHasher(
            time_cost=PASSES, memory_cost=MEMORY_KIB, parallelism=LANES, hash_len=HASH_BYTES, salt_len=SALT_BYTES
        )
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="passwords")
        self._places = threading.BoundedSemaphore(threads + queue)

    async def hash(self, password: str) -> str:
        return await self._in_turn(lambda: self._hasher.hash(normalise_password(password)))

    async def check(self, stored: str | None, password: str) -> Verdict:
        """Compare with the stored hash; without one, do the same work and say no."""
        return await self._in_turn(lambda: self._verify(stored or NOBODY, normalise_password(password)))

    def close(self) -> None:
        """Let what runs finish, drop what waits."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    async def _in_turn(self, work: Callable[[], T]) -> T:
        if not self._places.acquire(blocking=False):
            raise Problem(
                503, "busy", "too many people are logging in at this moment", retry_after_s=BUSY_RETRY_SECONDS
            )
        future = self._threads.submit(work)
        # The place is given back by the thread, not by the caller: one who hangs up must not make room for two.
        future.add_done_callback(lambda _: self._places.release())
        return await asyncio.wrap_future(future)

    def _verify(self, stored: str, password: str) -> Verdict:
        try:
            self._hasher.verify(stored, password)
        except VerifyMismatchError:
            return Verdict(False, False)
        except (VerificationError, InvalidHashError) as error:
            raise AssertionError("a stored password hash is damaged") from error
        return Verdict(True, self._hasher.check_needs_rehash(stored))
