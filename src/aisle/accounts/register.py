"""Become a buyer or a seller. Called by the HTTP edge; the command line creates the other roles with `create_account`.

The unique constraint decides a race for one address. A refusal changes nothing.
"""

from datetime import UTC, datetime

from aisle.accounts.account import Account, Refusal, Role, normalise_email, normalise_password, refuse_password
from aisle.accounts.desk import Desk
from aisle.accounts.limiter import Attempt
from aisle.accounts.passwords import Passwords
from aisle.accounts.store import AccountsStore
from aisle.errors import Problem
from aisle.ids import new_id


async def register(desk: Desk, *, email: str, password: str, role: Role, address: str) -> Account:
    assert role in (Role.BUYER, Role.SELLER), "staff cannot make themselves"
    normal = normalise_email(email)
    await desk.limiter.allow(
        [
            Attempt("register_address", address, desk.config.registrations_per_address),
            Attempt("register_email", normal if isinstance(normal, str) else email, desk.config.logins_per_email),
        ]
    )
    now = datetime.fromtimestamp(desk.clock(), UTC)
    return await create_account(
        desk.accounts, desk.passwords, email=email, password=password, role=role, now=now, by_themselves=True
    )


async def create_account(
    accounts: AccountsStore,
    passwords: Passwords,
    *,
    email: str,
    password: str,
    role: Role,
    now: datetime,
    by_themselves: bool = False,
) -> Account:
    normal = normalise_email(email)
    if isinstance(normal, Refusal):
        raise Problem(422, normal.code, normal.detail)
    refusal = refuse_password(normalise_password(password), normal)
    if refusal is not None:
        raise Problem(422, refusal.code, refusal.detail)
    account = Account(new_id(now), normal, role, now)
    by = account.id if by_themselves else None
    if not await accounts.insert(account, await passwords.hash(password), by=by):
        raise Problem(409, "email_taken", "there is an account with this e-mail address")
    return account
