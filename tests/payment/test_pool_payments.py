"""Places of a pool are paid for and given back as seats are, in whole bookings."""

import pytest

from tests.payment.steps import pending
from tests.people import a_hall, expect, new_key
from tests.stage import running_stage

pytestmark = pytest.mark.xdist_group("stage-pool-payments")  # one stage for the module, in one worker


@pytest.fixture(scope="module")
def stage(servers, tmp_path_factory):
    with running_stage(servers, tmp_path_factory.mktemp("stage")) as stage:
        yield stage


def test_places_are_paid_for_and_given_back(stage):
    pools = [{"name": "GA", "price": 500, "capacity": 10, "places_per_buyer": 6}]
    with stage.person("seller") as seller, stage.person("buyer") as buyer:
        event = seller.opens(a_hall(("A", 3000, 1, 4), pools=pools))
        kept = pending(buyer, event, 2, pool="GA")
        buyer.pays(kept)
        booking = pending(buyer, event, 3, pool="GA")
        assert buyer.pays(booking)["amount"] == 1500
        stage.settle(event)
        expect(200, buyer.post(f"/bookings/{booking}/refund", key=new_key()))
        stage.settle(event)
        buyer.waits_until_free(event, 12)
        again = pending(buyer, event, 4, pool="GA")
        buyer.pays(again)
        stage.settle(event)
