"""The stage of every module here is the one topology of the run (fixture `scale`)."""

import os
from collections.abc import Iterator

import pytest

from tests.people import Person
from tests.scale.topology import ScaleStage

# Ten seconds each, and another way to what other tests show: `make kills` has the time.
collect_ignore = [] if "CHAOS_MINUTES" in os.environ else ["test_more_chaos.py"]


@pytest.fixture(scope="module")
def stage(scale: ScaleStage) -> ScaleStage:
    return scale


@pytest.fixture(scope="module")
def other_buyer(stage: ScaleStage) -> Iterator[Person]:
    with stage.person("buyer") as buyer:
        yield buyer
