"""Money that the provider has and our books know nothing of: what was paid between a backup and the loss of the rest.

Found by asking the provider, not by remembering. Giving it back is safe to repeat: the refund's id follows from the
payment's.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import NAMESPACE_URL, UUID, uuid5

import asyncpg

from aisle.payment.provider import Provider, Taken


async def find_unclaimed(database: asyncpg.Pool, provider: Provider, since: datetime) -> list[Taken]:
    taken = await provider.taken_since(since)
    rows = await database.fetch(
        "select id from payment.payments where id = any($1::uuid[])", [one.payment for one in taken]
    )
    known = {UUID(str(row["id"])) for row in rows}
    return [one for one in taken if one.payment not in known]


async def give_back(provider: Provider, unclaimed: Sequence[Taken]) -> int:
    """Refund what was captured, let go what was only promised; returns how many the provider has confirmed."""
    done = 0
    for one in unclaimed:
        if one.captured:
            refund = uuid5(NAMESPACE_URL, f"aisle:unclaimed:{one.payment}")
            done += await provider.refund(refund, one.payment, one.reference, one.amount)
        else:
            await provider.void(one.payment, one.reference)
            done += 1
    return done
