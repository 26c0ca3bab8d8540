"""Carts in the hot store: the only code that touches `cart:<buyer>`.

A cart is changed by comparing it with the one that was read, so any number of devices and processes may change it at
once. Its key expires some time after its deadline; the deadline inside decides, never the expiry.
"""

import asyncio
import random
from collections.abc import Callable
from uuid import UUID

import msgspec

from aisle.booking.cart import Cart
from aisle.errors import Problem
from aisle.scripts import load_script
from aisle.store import Store

READ, SWAP = (load_script("aisle.booking", name) for name in ("cart_read", "cart_swap"))

# A buyer who comes back late is told that the time ran out, not that there never was a cart.
KEEP_MS = 600_000
TRIES_MAX = 20

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Cart).decode

# The next cart, from the one that stands and the store's time in ms. Asked again whenever another one stands by then.
Rule = Callable[[Cart | None, int], Cart | None]


class CartBusy(Problem):
    def __init__(self) -> None:
        super().__init__(503, "cart_busy", "this cart is being changed by many requests at once", retry_after_s=1)


class Carts:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self, buyer: UUID) -> tuple[Cart | None, int]:
        """The cart and the store's time in ms. A cart whose time has run out is still returned."""
        packed, now_ms = await self._read(buyer)
        return _cart(packed), now_ms

    async def change(self, buyer: UUID, rule: Rule) -> Cart | None:
        """Apply a rule; what it raises leaves the cart as it was."""
        for attempt in range(TRIES_MAX):
            packed, now_ms = await self._read(buyer)
            cart = rule(_cart(packed), now_ms)
            if await self._swap(buyer, packed, cart, now_ms):
                return cart
            await asyncio.sleep(random.uniform(0, 0.002 * attempt))  # noqa: S311 - devices of one buyer in step
        raise CartBusy

    async def swap(self, buyer: UUID, seen: Cart | None, following: Cart | None, now_ms: int) -> bool:
        """Make the cart the following one, unless another one than `seen` stands."""
        return await self._swap(buyer, _packed(seen), following, now_ms)

    async def _swap(self, buyer: UUID, packed: bytes, following: Cart | None, now_ms: int) -> bool:
        keep_ms = max(following.deadline_ms - now_ms, 0) + KEEP_MS if following is not None else 0
        swapped = await self._store.run(SWAP, (self._key(buyer),), (packed, _packed(following), keep_ms))
        return bool(swapped)

    async def _read(self, buyer: UUID) -> tuple[bytes, int]:
        packed, now_ms = await self._store.run(READ, (self._key(buyer),), ())
        return packed, int(now_ms)

    def _key(self, buyer: UUID) -> str:
        return f"{self._store.prefix}cart:{buyer}"


def _packed(cart: Cart | None) -> bytes:
    return _encode(cart) if cart is not None else b""


def _cart(packed: bytes) -> Cart | None:
    if not packed:
        return None
    try:
        return _decode(packed)
    except msgspec.MsgspecError:
        return None  # written by another version; its holds run out by themselves
