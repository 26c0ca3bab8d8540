"""Prove who you are, and get a session. A wrong password and an unknown address get the same answer at the same cost.

Every log-in makes a new reference and ends the session the browser came with: one that was planted beforehand is worth
nothing afterwards.
"""

import structlog

from aisle.accounts.account import Account, Actor, normalise_email
from aisle.accounts.desk import Desk
from aisle.accounts.limiter import Attempt
from aisle.audit import Deed
from aisle.errors import Problem

log = structlog.get_logger()


async def log_in(desk: Desk, *, email: str, password: str, address: str, current: Actor | None) -> tuple[Account, str]:
    """The account and the text of its new session."""
    account = await prove(desk, email=email, password=password, address=address)
    # Before there is a session: nobody is logged in without a trace.
    await desk.accounts.note(Deed.LOGGED_IN, account.id, role=account.role)
    cookie = await desk.sessions.open(account.id, account.role)
    if current is not None and current.session is not None:
        await desk.sessions.end(current)
    log.info("logged_in", actor_id=str(account.id), role=account.role.value)
    return account, cookie


async def prove(desk: Desk, *, email: str, password: str, address: str) -> Account:
    """The account whose address and password these are; 401 otherwise."""
    normal = normalise_email(email)
    known = normal if isinstance(normal, str) else None
    await desk.limiter.allow(
        [
            Attempt("login_address", address, desk.config.logins_per_address),
            Attempt("login_email", known or email, desk.config.logins_per_email),
        ]
    )
    login = await desk.accounts.find_login(known) if known is not None else None
    verdict = await desk.passwords.check(login.password_hash if login else None, password)
    if login is None or not verdict.matches:
        log.info("login_refused")
        await desk.accounts.note(Deed.LOGIN_REFUSED, login.account.id if login is not None else None)
        raise Problem(401, "wrong_credentials", "the e-mail address or the password is wrong")
    if verdict.needs_rehash:
        await desk.accounts.replace_hash(login.account.id, login.password_hash, await desk.passwords.hash(password))
    return login.account
