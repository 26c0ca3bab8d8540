"""Every documented route with whatever its schema allows and forbids, as a buyer, a seller and a stranger.

No answer is a server error, every success fits its schema, every refusal is problem+json with a code, and the booking
path is consistent afterwards.
"""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis import settings as effort
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance

from tests.people import a_hall

pytestmark = pytest.mark.long

EXAMPLES = 4
# Streams: they answer for ever, and have tests of their own.
STREAMS = ".*/updates$"


@pytest.fixture(scope="module")
def settings():
    return {"logins_per_email": 1_000_000}


@pytest.fixture(scope="module")
def event(stage, seller):
    """Event 1 is there, so that small numbers reach a hall."""
    yield seller.opens(a_hall(("A", 3000, 5, 10), ("B", 1000, 5, 10), seats_per_buyer=100))
    stage.settle(1)


@pytest.fixture(scope="module")
def callers(stage, seller, event):
    with stage.person("buyer") as buyer:
        yield {"stranger": "", "seller": seller.token, "buyer": buyer.token}


@pytest.fixture(scope="module")
def document(stage, callers):
    return schemathesis.openapi.from_url(f"{stage.address}/api/v1/openapi.json")


api = schemathesis.pytest.from_fixture("document").exclude(path_regex=STREAMS)


@api.parametrize()
@effort(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_no_request_breaks_the_server_or_the_document(case, callers):
    for token in callers.values():
        headers = {"authorization": f"Bearer {token}"} if token else {}
        answer = case.call(headers=headers)
        case.validate_response(answer, checks=[not_a_server_error, response_schema_conformance])
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == ["application/problem+json"], answer.text
            assert answer.json()["code"]
