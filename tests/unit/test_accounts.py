"""Rules of accounts that need no server: addresses, passwords, signatures, client addresses, cross-site requests."""

import asyncio
import base64
import os
from uuid import uuid4

import pytest
from argon2 import extract_parameters
from hypothesis import given
from hypothesis import strategies as st

from aisle.accounts.account import VERY_COMMON, Actor, Refusal, Role, normalise_email, refuse_password
from aisle.accounts.client_address import client_address, parse_proxies
from aisle.accounts.cross_site import is_cross_site, is_json, read_credentials
from aisle.accounts.passwords import NOBODY, Passwords, Verdict
from aisle.accounts.recent import ENDED_SECONDS, LIFE_SECONDS_MAX, RecentActors
from aisle.accounts.tokens import TOKEN_CHARS, Kind, Reference, Signer, keys_from_setting, new_signing_key, signing_key
from aisle.errors import Problem, StartupError

NOW_MS = 1_800_000_000_000
ACTOR = Actor(uuid4(), Role.BUYER)


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("Ada@Example.COM", "ada@example.com"),
        ("  ada@example.com\n", "ada@example.com"),
        ("ada+gigs@example.co.uk", "ada+gigs@example.co.uk"),
        ("\uff41da@example.com", "ada@example.com"),  # full-width a: another way to write the same address
        ("jos\u0065\u0301@example.com", "jos\u00e9@example.com"),
    ],
)
def test_one_spelling_per_mailbox(typed, kept):
    assert normalise_email(typed) == kept


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "ada",
        "ada@",
        "@example.com",
        "ada@example",
        "a b@example.com",
        "ada@@example.com",
        "a@b@example.com",
        "ada@example..com",
        "ada@example.com.",
        "ada@exa mple.com",
        "ada\x00@example.com",
        "ada\u202e@example.com",
        "ada@example.com\r\nBcc: x@y.zz",
        "<ada@example.com>",
        '"ada"@example.com',
        "x" * 65 + "@example.com",
        "ada@" + "x" * 250 + ".com",
    ],
)
def test_what_is_no_address_is_refused(typed):
    assert isinstance(normalise_email(typed), Refusal)


@given(st.text(max_size=80))
def test_normalising_twice_changes_nothing_more(text):
    once = normalise_email(text)
    assert isinstance(once, Refusal) or normalise_email(once) == once


@pytest.mark.parametrize(
    ("password", "refused"),
    [
        ("1234567", True),
        ("k3&vLq9!", False),
        ("a quiet place in the third row", False),
        ("x7" * 64, False),
        ("x7" * 64 + "x", True),
        ("PASSWORD123", True),
        ("zzzzzzzzzzzz", True),
        ("ada@example.com", True),
        ("\u7968\u7968\u5834\u5ea7\u4f4d\u4e00\u4e8c\u4e09", False),
    ],
)
def test_passwords_are_judged_by_length_and_by_how_early_they_are_guessed(password, refused):
    assert (refuse_password(password, "ada@example.com") is not None) is refused


def test_the_list_holds_only_passwords_that_the_length_rule_would_let_pass():
    assert len(VERY_COMMON) > 100
    assert all(8 <= len(word) <= 128 and word == word.lower() for word in VERY_COMMON)


def test_a_genuine_token_leads_to_the_digest_it_was_issued_with():
    signer = Signer([new_signing_key()])
    issued = signer.issue(Kind.SESSION, NOW_MS + 1000)
    assert len(issued.text) == TOKEN_CHARS
    assert signer.verify(Kind.SESSION, issued.text.encode(), NOW_MS) == issued.reference


def test_every_changed_or_missing_character_makes_a_token_worthless():
    signer = Signer([new_signing_key()])
    text = signer.issue(Kind.SESSION, NOW_MS + 1000).text
    for position, character in enumerate(text):
        for other in "Aa0._-=\x00":
            if other != character:
                forged = text[:position] + other + text[position + 1 :]
                assert signer.verify(Kind.SESSION, forged.encode(), NOW_MS) is None, f"position {position} {other!r}"
        assert signer.verify(Kind.SESSION, text[:position].encode(), NOW_MS) is None
        assert signer.verify(Kind.SESSION, (text[:position] + text[position + 1 :]).encode(), NOW_MS) is None
    assert signer.verify(Kind.SESSION, text.encode() + b"=", NOW_MS) is None


@given(st.binary(max_size=120))
def test_no_bytes_a_client_can_send_are_taken_for_a_token_or_raise(data):
    signer = Signer([signing_key(b"k" * 32)])
    assert signer.verify(Kind.SESSION, data, NOW_MS) is None
    assert signer.verify(Kind.BEARER, b"t." + data, NOW_MS) is None


def test_a_token_ends_at_its_time_and_not_before():
    signer = Signer([new_signing_key()])
    text = signer.issue(Kind.SESSION, NOW_MS + 1000).text.encode()
    assert signer.verify(Kind.SESSION, text, NOW_MS + 999) is not None
    assert signer.verify(Kind.SESSION, text, NOW_MS + 1000) is None


def test_a_session_is_no_bearer_token_and_the_other_way_round():
    signer = Signer([new_signing_key()])
    assert signer.verify(Kind.BEARER, signer.issue(Kind.SESSION, NOW_MS + 1).text.encode(), NOW_MS) is None
    assert signer.verify(Kind.SESSION, signer.issue(Kind.BEARER, NOW_MS + 1).text.encode(), NOW_MS) is None


def test_rotation_old_keys_verify_until_they_are_removed_and_foreign_ones_never():
    old, new, foreign = new_signing_key(), new_signing_key(), new_signing_key()
    signer = Signer([old])
    before = signer.issue(Kind.SESSION, NOW_MS + 1).text.encode()
    signer.use([new, old])
    after = signer.issue(Kind.SESSION, NOW_MS + 1).text.encode()
    assert after[2:10] == new.id
    assert signer.verify(Kind.SESSION, before, NOW_MS)
    signer.use([new])
    assert signer.verify(Kind.SESSION, before, NOW_MS) is None
    assert signer.verify(Kind.SESSION, after, NOW_MS)
    assert Signer([foreign]).verify(Kind.SESSION, after, NOW_MS) is None
    # The id of a key we have in front of a signature by one we have not.
    impostor = Signer([foreign._replace(id=new.id)]).issue(Kind.SESSION, NOW_MS + 1).text.encode()
    assert signer.verify(Kind.SESSION, impostor, NOW_MS) is None


def test_references_do_not_repeat():
    signer = Signer([new_signing_key()])
    assert len({signer.issue(Kind.SESSION, NOW_MS).text for _ in range(1000)}) == 1000


def test_the_secret_key_is_read_as_hex_or_base64_and_several_at_once():
    one, two = os.urandom(32), os.urandom(48)
    setting = f"{one.hex()}, {base64.b64encode(two).decode()}"
    assert [key.secret for key in keys_from_setting(setting)] == [one, two]
    [url_safe] = keys_from_setting(base64.urlsafe_b64encode(b"\xff\xfe" * 16).decode().rstrip("="))
    assert url_safe.secret == b"\xff\xfe" * 16
    assert keys_from_setting("") == []


@pytest.mark.parametrize(
    "setting", ["short", "00" * 31, base64.b64encode(b"x" * 31).decode(), "not base64 at all!" * 4]
)
def test_a_weak_secret_key_stops_the_start_and_is_not_shown(setting):
    with pytest.raises(StartupError) as refusal:
        keys_from_setting(setting)
    assert setting not in str(refusal.value)


PROXIES = parse_proxies("10.0.0.0/8, 192.0.2.7, fd00::/8")


@pytest.mark.parametrize(
    ("peer", "forwarded", "counted"),
    [
        ("203.0.113.9", None, "203.0.113.9"),
        ("203.0.113.9", "1.2.3.4", "203.0.113.9"),  # not our proxy: what it says is worth nothing
        ("10.0.0.1", "1.2.3.4", "1.2.3.4"),
        ("10.0.0.1", "6.6.6.6, 1.2.3.4", "1.2.3.4"),  # the client wrote the left part itself
        ("10.0.0.1", "6.6.6.6, 1.2.3.4, 192.0.2.7", "1.2.3.4"),
        ("10.0.0.1", "10.0.0.2, 10.0.0.3", "10.0.0.2"),
        ("10.0.0.1", None, "10.0.0.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "nonsense", "10.0.0.1"),
        ("10.0.0.1", "6.6.6.6, nonsense", "10.0.0.1"),
        ("::ffff:203.0.113.9", None, "203.0.113.9"),
        ("::ffff:10.0.0.1", "1.2.3.4", "1.2.3.4"),
        ("2001:db8:1:2:3:4:5:6", None, "2001:db8:1:2::/64"),
        ("fd00::1", "2001:db8:1:2::9", "2001:db8:1:2::/64"),
        (None, "1.2.3.4", "unknown"),
    ],
)
def test_whom_an_attempt_is_counted_for(peer, forwarded, counted):
    headers = [(b"host", b"x")] + ([(b"x-forwarded-for", forwarded.encode())] if forwarded is not None else [])
    assert client_address(peer, headers, PROXIES) == counted


def test_two_forwarded_headers_are_read_as_one_list():
    headers = [(b"x-forwarded-for", b"6.6.6.6"), (b"x-forwarded-for", b"1.2.3.4")]
    assert client_address("10.0.0.1", headers, PROXIES) == "1.2.3.4"


def test_a_trusted_proxy_that_is_no_address_stops_the_start():
    with pytest.raises(StartupError, match="AISLE_TRUSTED_PROXIES"):
        parse_proxies("10.0.0.1, proxy.local")


SESSION = (b"cookie", b"theme=dark; __Host-aisle=s.x; other=1")
HOST = (b"host", b"tickets.example:8443")


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ([SESSION], True),
        ([SESSION, (b"sec-fetch-site", b"same-origin")], False),
        ([SESSION, (b"sec-fetch-site", b"none")], False),
        ([SESSION, (b"sec-fetch-site", b"same-site")], True),
        ([SESSION, (b"sec-fetch-site", b"cross-site")], True),
        ([SESSION, (b"sec-fetch-site", b"cross-site"), (b"origin", b"https://tickets.example:8443")], True),
        ([SESSION, (b"origin", b"https://tickets.example:8443")], False),
        ([SESSION, (b"origin", b"https://Tickets.Example:8443")], False),
        ([SESSION, (b"origin", b"https://tickets.example")], True),
        ([SESSION, (b"origin", b"https://evil.example")], True),
        ([SESSION, (b"origin", b"https://tickets.example:8443.evil.example")], True),
        ([SESSION, (b"origin", b"null")], True),
        ([SESSION, (b"origin", b"")], True),
        ([SESSION, (b"referer", b"https://tickets.example:8443/")], True),
        ([], False),  # a program without a session
        ([(b"origin", b"https://evil.example")], True),  # logging the victim into the attacker's account
        ([(b"sec-fetch-site", b"cross-site")], True),
        ([SESSION, (b"authorization", b"Bearer t.x"), (b"origin", b"https://evil.example")], False),
    ],
)
def test_who_may_have_made_the_browser_send_this(headers, refused):
    headers = [HOST, *headers]
    found = dict(headers)
    assert is_cross_site(found, read_credentials(found)) is refused


@pytest.mark.parametrize(
    ("kind", "json"),
    [
        (b"application/json", True),
        (b"Application/JSON; charset=utf-8", True),
        (b"text/plain", False),
        (b"text/plain; application/json", False),
        (b"application/x-www-form-urlencoded", False),
        (b"multipart/form-data; boundary=x", False),
        (b"", False),
    ],
)
def test_only_json_is_json(kind, json):
    assert is_json({b"content-type": kind}) is json


@pytest.mark.parametrize(
    ("header", "value"),
    [
        (b"__Host-aisle=s.x", b"s.x"),
        (b"a=1; __Host-aisle=s.x;b=2", b"s.x"),
        (b"x__Host-aisle=s.x", None),
        (b"a=__Host-aisle; b=2", None),
        (b"__Host-aisle", b""),
        (b";;;", None),
    ],
)
def test_the_session_is_found_among_other_cookies(header, value):
    assert read_credentials({b"cookie": header}).cookie == value


async def test_an_unknown_user_costs_the_same_work_as_a_known_one():
    passwords = Passwords(threads=1, queue=1)
    try:
        real = await passwords.hash("a quiet place")
        assert extract_parameters(NOBODY) == extract_parameters(real)
        assert await passwords.check(None, "a quiet place") == Verdict(False, False)
        assert await passwords.check(real, "a quiet place") == Verdict(True, False)
        assert await passwords.check(real, "a quiet plaice") == Verdict(False, False)
    finally:
        passwords.close()


async def test_the_queue_for_passwords_is_bounded_and_those_who_hang_up_leave_no_hole_in_it():
    passwords = Passwords(threads=1, queue=2)
    try:
        waiting = [asyncio.create_task(passwords.check(None, "x")) for _ in range(10)]
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        refused = [o for o in outcomes if isinstance(o, Problem)]
        assert len(refused) == 7
        assert {(o.status, o.code) for o in refused} == {(503, "busy")}
        assert all(o.retry_after_s for o in refused)
        for _ in range(5):
            gone = [asyncio.create_task(passwords.check(None, "x")) for _ in range(3)]
            await asyncio.sleep(0)
            for task in gone:
                task.cancel()
            await asyncio.gather(*gone, return_exceptions=True)
            await until_free(passwords)
        assert await passwords.check(None, "x") == Verdict(False, False)
    finally:
        passwords.close()


async def until_free(passwords: Passwords) -> None:
    """A check that runs cannot be called back; its place is free when its thread is."""
    async with asyncio.timeout(60):
        while True:
            try:
                await passwords.check(None, "x")
                return
            except Problem:
                await asyncio.sleep(0.01)


REFERENCE = Reference(b"d" * 32, NOW_MS)


def test_somebody_recognised_is_remembered_for_two_seconds_at_most():
    recent = RecentActors(life_s=60)
    recent.remember(b"text", REFERENCE, ACTOR, now=100.0)
    assert recent.get(b"text", 100.0 + LIFE_SECONDS_MAX - 0.01) is ACTOR
    assert recent.get(b"text", 100.0 + LIFE_SECONDS_MAX) is None
    assert recent.get(b"another text", 100.0) is None


def test_nobody_is_remembered_past_the_end_of_the_session():
    recent = RecentActors()
    recent.remember(b"text", Reference(b"d" * 32, 100_500), ACTOR, now=100.0)
    assert recent.get(b"text", 100.4) is ACTOR
    assert recent.get(b"text", 100.5) is None


def test_an_answer_that_was_on_its_way_cannot_bring_an_ended_session_back():
    recent = RecentActors()
    recent.remember(b"text", REFERENCE, ACTOR, now=100.0)
    recent.end(REFERENCE.digest, now=100.5)
    assert recent.get(b"text", 100.6) is None
    assert recent.remember(b"text", REFERENCE, ACTOR, now=101.0) is False
    assert recent.get(b"text", 101.0) is None
    assert recent.remember(b"text", REFERENCE, ACTOR, now=100.5 + ENDED_SECONDS) is True


def test_what_is_remembered_is_bounded_and_the_oldest_makes_room():
    recent = RecentActors(entries_max=3)
    for number in range(5):
        recent.remember(bytes([number]), REFERENCE, ACTOR, now=100.0)
    assert len(recent) == 3
    assert [recent.get(bytes([n]), 100.0) is not None for n in range(5)] == [False, False, True, True, True]


def test_a_clock_that_was_set_back_prolongs_nothing():
    recent = RecentActors()
    recent.remember(b"text", REFERENCE, ACTOR, now=100_000.0)
    assert recent.get(b"text", 100_000.0 - 3600) is None
