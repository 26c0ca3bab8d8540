"""The defects of other systems, put into ours: the simulation finds each within the number of seeds it states."""

from tests.simulation.defects import DEFECTS
from tests.simulation.test_histories import simulate


def test_every_defect_is_found():
    found = simulate("--each-defect")
    assert set(found) == set(DEFECTS)
    missed = {name: DEFECTS[name].what for name, after in found.items() if after is None}
    assert missed == {}
