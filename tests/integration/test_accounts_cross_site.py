"""Another site's page uses the visitor's browser: what it can make the browser send, and that nothing comes of it."""

import pytest

from tests.integration.visitors import COOKIE, GOOD_PASSWORD, Visitor, keys_in_store, new_email, visiting_settings
from tests.running import serving


@pytest.fixture(scope="module")
def settings(database_url, servers, worker_id):
    return visiting_settings(servers, database_url, f"{worker_id}.site:")


@pytest.fixture(scope="module")
def victim(settings):
    with serving(settings) as (_, address), Visitor(address) as visitor:
        visitor.address = address
        visitor.email = new_email()
        visitor.register(visitor.email)
        visitor.log_in(visitor.email)
        yield visitor


EVIL = "https://evil.example"


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"origin": EVIL}, 403, "cross_site_request"),
        ({"origin": "null"}, 403, "cross_site_request"),
        ({"origin": ""}, 403, "cross_site_request"),
        ({"sec-fetch-site": "cross-site"}, 403, "cross_site_request"),
        ({"sec-fetch-site": "same-site"}, 403, "cross_site_request"),
        ({"content-type": "text/plain"}, 415, "unsupported_media_type"),
        ({"content-type": "application/x-www-form-urlencoded"}, 415, "unsupported_media_type"),
        ({"content-type": "multipart/form-data; boundary=x"}, 415, "unsupported_media_type"),
    ],
)
def test_a_forged_post_makes_no_token(victim, headers, status, code):
    content = {"content-type": "application/json", **headers}
    answer = victim.send("POST", "/tokens", content=b'{"name": "forged"}', headers=content)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert victim.get("/tokens").json() == {"items": []}


def test_a_request_that_says_nothing_of_its_origin_is_refused_with_a_session(victim, settings):
    import httpx

    cookie = {"cookie": f"{COOKIE}={victim.cookie}"}
    answer = httpx.delete(f"{victim.address}/api/v1/sessions/current", headers=cookie)
    assert (answer.status_code, answer.json()["code"]) == (403, "cross_site_request")
    assert len(keys_in_store(settings, f"session:{victim.session_digest()}")) == 1
    assert httpx.get(f"{victim.address}/api/v1/me", headers=cookie).status_code == 200, "reading is safe"


def test_a_page_of_this_site_may(victim):
    token = victim.send("POST", "/tokens", json={"name": "own"}, headers={"sec-fetch-site": "same-origin"})
    assert token.status_code == 201
    assert victim.delete(f"/tokens/{token.json()['id']}").status_code == 204


def test_a_foreign_page_cannot_log_the_visitor_into_an_account_of_its_own(victim):
    with Visitor(victim.address) as fresh:
        body = {"email": victim.email, "password": GOOD_PASSWORD}
        answer = fresh.send("POST", "/sessions", json=body, headers={"origin": EVIL})
    assert (answer.status_code, answer.json()["code"]) == (403, "cross_site_request")
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("path", ["/me", "/tokens"])
def test_no_answer_lets_another_origin_read_it(victim, path):
    answer = victim.send("GET", path, headers={"origin": EVIL})
    assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert answer.headers["cache-control"] == "no-store"
