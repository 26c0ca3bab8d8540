"""Many people register the same address at the same moment. The first test shows that the race is real."""

import asyncio

import asyncpg
import httpx

from tests.conftest import with_settings
from tests.integration.visitors import ADDRESS_LIMITS_OFF, GOOD_PASSWORD, new_email
from tests.running import serving

RUSH = 20


async def test_looking_first_and_inserting_then_lets_one_address_in_twice(database_url):
    async with asyncpg.create_pool(database_url, min_size=RUSH, max_size=RUSH) as pool:
        await pool.execute("create table if not exists public.careless_accounts (email text)")
        together = asyncio.Barrier(RUSH)

        async def careless(email: str) -> None:
            async with pool.acquire() as connection:
                taken = await connection.fetchval(
                    "select exists (select 1 from public.careless_accounts where email = $1)", email
                )
                await together.wait()  # the pause that a busy machine makes by itself
                if not taken:
                    await connection.execute("insert into public.careless_accounts values ($1)", email)

        email = new_email()
        await asyncio.gather(*(careless(email) for _ in range(RUSH)))
        count = await pool.fetchval("select count(*) from public.careless_accounts where email = $1", email)
        await pool.execute("drop table public.careless_accounts")
    assert count > 1, "the race no longer shows: the next test proves nothing"


def test_the_constraint_decides_and_exactly_one_registration_wins(config):
    email = new_email()
    settings = with_settings(config, password_queue=RUSH, **ADDRESS_LIMITS_OFF)

    async def rush(address: str) -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=address, timeout=60) as client:
            spellings = [email, email.upper()]
            bodies = [
                {"email": spellings[n % 2], "password": f"{GOOD_PASSWORD} {n}", "role": "buyer"} for n in range(RUSH)
            ]
            return await asyncio.gather(*(client.post("/api/v1/users", json=body) for body in bodies))

    async def accounts() -> int:
        connection = await asyncpg.connect(config.database_url)
        try:
            return await connection.fetchval("select count(*) from accounts.accounts where email = $1", email)
        finally:
            await connection.close()

    with serving(settings) as (_, address):
        answers = asyncio.run(rush(address))
        assert sorted(a.status_code for a in answers) == [201] + [409] * (RUSH - 1)
        assert {a.json()["code"] for a in answers if a.status_code == 409} == {"email_taken"}
        winner = next(n for n, a in enumerate(answers) if a.status_code == 201)
        body = {"email": email, "password": f"{GOOD_PASSWORD} {winner}"}
        assert httpx.post(f"{address}/api/v1/sessions", json=body).status_code == 201, "the winner's password counts"
    assert asyncio.run(accounts()) == 1
