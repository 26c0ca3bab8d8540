"""Somebody tries again and again: the limit holds across processes and cannot be talked away with a header."""

import asyncio

import pytest
import redis

from aisle.accounts.limiter import Attempt, Limiter
from aisle.errors import Problem
from aisle.metrics import Metrics
from aisle.store import open_store
from tests.conftest import with_settings
from tests.integration.visitors import Visitor, keys_in_store, new_email
from tests.running import serving


async def outcome(limiter: Limiter, attempt: Attempt) -> str:
    try:
        await limiter.allow([attempt])
    except Problem as problem:
        return problem.code
    return "allowed"


async def test_a_bucket_lets_its_size_through_at_once_whoever_asks(config):
    attempt = Attempt("test", "somebody", 5)
    async with open_store(config, Metrics()) as one, open_store(config, Metrics()) as two:
        limiters = [Limiter(one), Limiter(two)]
        outcomes = await asyncio.gather(*(outcome(limiters[n % 2], attempt) for n in range(40)))
        assert sorted(outcomes) == ["allowed"] * 5 + ["too_many_requests"] * 35
        assert await outcome(limiters[0], Attempt("test", "somebody else", 5)) == "allowed"


async def test_a_token_comes_back_after_its_share_of_the_minute(config):
    attempt = Attempt("test", "somebody", 3)
    async with open_store(config, Metrics()) as store:
        limiter = Limiter(store)
        for _ in range(3):
            await limiter.allow([attempt])
        with pytest.raises(Problem) as refusal:
            await limiter.allow([attempt])
        assert 19 <= refusal.value.retry_after_s <= 20
        [(key, ttl_ms)] = keys_in_store(config, "bucket:*")
        assert 0 < ttl_ms <= 60_000, "a bucket that is full again leaves nothing behind"
        with redis.Redis.from_url(config.store_url) as admin:
            admin.set(key, float(admin.get(key)) - 20_000)  # as if twenty seconds had passed
        assert await outcome(limiter, attempt) == "allowed"
        assert await outcome(limiter, attempt) == "too_many_requests"


async def test_no_address_or_email_lies_in_the_store(config):
    async with open_store(config, Metrics()) as store:
        await Limiter(store).allow([Attempt("test", "ada@example.com", 3)])
    [(key, _)] = keys_in_store(config, "bucket:*")
    assert b"ada" not in key


async def test_a_store_that_cannot_count_refuses(config):
    attempt = Attempt("test", "somebody", 3)
    async with open_store(config, Metrics()) as store:
        limiter = Limiter(store)
        await limiter.allow([attempt])
        [(key, _)] = keys_in_store(config, "bucket:*")
        with redis.Redis.from_url(config.store_url) as admin:
            admin.delete(key)
            admin.hset(key, "wrong", "type")
        assert await outcome(limiter, attempt) == "store_unavailable"


def test_guessing_one_password_is_stopped_wherever_the_guesses_claim_to_come_from(config):
    with serving(with_settings(config, logins_per_email=3)) as (_, address), Visitor(address) as guesser:
        email = new_email()
        answers = [
            guesser.send(
                "POST",
                "/sessions",
                json={"email": spelling, "password": f"guess number {n}"},
                headers={"x-forwarded-for": f"198.51.100.{n}"},
            )
            for n, spelling in enumerate([email, email.upper(), f" {email}", email, email])
        ]
    assert [a.status_code for a in answers] == [401, 401, 401, 429, 429]
    assert answers[-1].json()["code"] == "too_many_requests"
    assert int(answers[-1].headers["retry-after"]) >= 1


def test_a_forwarded_address_is_believed_only_from_a_trusted_proxy(config):
    def attempts(settings, forwarded):
        with serving(settings) as (_, address), Visitor(address) as visitor:
            return [
                visitor.send(
                    "POST",
                    "/sessions",
                    json={"email": new_email(), "password": "some password"},
                    headers={"x-forwarded-for": value},
                ).status_code
                for value in forwarded
            ]

    strict = with_settings(config, logins_per_address=2)
    spoofed = [f"198.51.100.{n}" for n in range(4)]
    assert attempts(strict, spoofed) == [401, 401, 429, 429]

    behind = with_settings(strict, trusted_proxies="127.0.0.1", store_prefix=f"{config.store_prefix}proxy.")
    assert attempts(behind, spoofed) == [401, 401, 401, 401]
    same_client = [f"203.0.113.{n}, 198.51.100.77" for n in range(4)]  # the left part is the client's invention
    assert attempts(behind, same_client) == [401, 401, 429, 429]


def test_registrations_from_one_address_are_limited(config):
    with serving(with_settings(config, registrations_per_address=2)) as (_, address), Visitor(address) as visitor:
        answers = [visitor.register(new_email()) for _ in range(3)]
    assert [a.status_code for a in answers] == [201, 201, 429]
