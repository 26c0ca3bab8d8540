"""The booking stories once more, on Apache Kafka: the same product, one URL changed."""

import pytest
from pytest_bdd import scenarios

pytestmark = [pytest.mark.xdist_group("stage-kafka"), pytest.mark.long]  # one stage for the module, in one worker

pytest_plugins = ["tests.stories.buying"]

scenarios("features/buyer/select_seats.feature", "features/buyer/payment_window.feature")


@pytest.fixture(scope="module")
def settings():
    return {"kind": "kafka"}
