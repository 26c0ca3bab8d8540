"""One buyer who takes seats, gives them back and takes them again keeps them from everybody: that has a limit."""

import pytest

from tests.people import a_hall, expect, new_key

HOLDS_PER_MINUTE = 5


@pytest.fixture(scope="module")
def settings():
    return {"holds_per_buyer": HOLDS_PER_MINUTE}


def test_holding_and_letting_go_in_a_loop_is_throttled_for_that_buyer_alone(stage, seller, buyer):
    event = seller.opens(a_hall(("A", 3000, 4, 8)))
    answers = []
    for _ in range(HOLDS_PER_MINUTE + 3):
        answer = buyer.post(f"/events/{event}/holds", {"quantity": 2}, key=new_key())
        answers.append(answer)
        assert buyer.send("DELETE", "/cart").status_code < 300
    statuses = [answer.status_code for answer in answers]
    assert statuses[:HOLDS_PER_MINUTE] == [201] * HOLDS_PER_MINUTE
    assert 429 in statuses[HOLDS_PER_MINUTE:]
    refusal = answers[statuses.index(429)]
    assert (refusal.json()["code"], int(refusal.headers["retry-after"]) > 0) == ("too_many_requests", True)
    assert buyer.free(event) == 32, "a refusal holds nothing"
    with stage.person("buyer") as ben:
        expect(201, ben.post(f"/events/{event}/holds", {"quantity": 2}, key=new_key()))
        assert ben.send("DELETE", "/cart").status_code < 300
