"""Starting a dead program again, on a clock that the test moves."""

import sys
from pathlib import Path

from aisle.embedded.revival import DEATHS_MAX, PAUSE_SECONDS, WITHIN_SECONDS, Revival
from aisle.embedded.supervisor import Supervisor
from tests.running import wait_until

SHORT_LIFE = "import sys; print('up', flush=True); sys.exit(3)"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_program_that_keeps_dying_is_given_up_after_a_few_tries(data: Path) -> None:
    clock, said = Clock(), []
    revival = Revival(said.append, clock)
    with Supervisor(data, log=lambda line: None) as supervisor:
        program = supervisor.start_program("mayfly", [sys.executable, "-c", SHORT_LIFE], {})
        for _ in range(DEATHS_MAX):
            wait_until(lambda: program.died, "the mayfly has died")
            assert revival.attend([program]) is None
            assert not program.running, "it is not started before the pause is over"
            clock.now += PAUSE_SECONDS
            assert revival.attend([program]) is None
        wait_until(lambda: program.died, "the mayfly has died once too often")
        assert revival.attend([program]) is program
    assert sum("died (exit code 3)" in line for line in said) == DEATHS_MAX + 1


def test_deaths_long_ago_are_forgiven(data: Path) -> None:
    clock = Clock()
    revival = Revival(lambda line: None, clock)
    with Supervisor(data, log=lambda line: None) as supervisor:
        program = supervisor.start_program("mayfly", [sys.executable, "-c", SHORT_LIFE], {})
        for _ in range(DEATHS_MAX + 2):
            wait_until(lambda: program.died, "the mayfly has died")
            assert revival.attend([program]) is None
            clock.now += WITHIN_SECONDS
            assert revival.attend([program]) is None
