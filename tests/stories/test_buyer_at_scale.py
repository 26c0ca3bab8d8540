"""The booking stories once more, on Apache Kafka, a store cluster and two processes a role: only URLs differ.

All stories run there with `make kills`, which starts pytest with --scale.
"""

import pytest
from pytest_bdd import scenarios

from tests.scale.topology import ON_SCALE

pytestmark = ON_SCALE

pytest_plugins = ["tests.stories.buying"]

scenarios("features/buyer/select_seats.feature", "features/buyer/payment_window.feature")


@pytest.fixture(scope="module")
def stage(scale):
    return scale
