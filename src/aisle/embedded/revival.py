"""Starting a program again that died by itself: after a pause, and not for ever.

The pause gives everybody who depends on it time to notice, and keeps a server that cannot live from burning CPU.
"""

import signal
from collections.abc import Callable, Sequence

from aisle.embedded.errors import EmbeddedError
from aisle.embedded.process import Program

PAUSE_SECONDS = 2.0
DEATHS_MAX = 5
WITHIN_SECONDS = 120.0


class Revival:
    def __init__(self, log: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._log = log
        self._clock = clock
        self._deaths: dict[str, list[float]] = {}
        self._due: dict[str, float] = {}

    def attend(self, programs: Sequence[Program]) -> Program | None:
        """Note deaths, start what is due; returns a program that died too often to be tried again."""
        for program in programs:
            due = self._due.get(program.name)
            if due is not None and self._clock() >= due:
                del self._due[program.name]
                died = self._start(program)
            else:
                died = due is None and program.died
                if died:
                    self._log(
                        f"{program.name} died ({ending(program)}): {program.last_words()} (log: {program.log_path})"
                    )
            if died and self._is_hopeless(program):
                return program
        return None

    def _start(self, program: Program) -> bool:
        try:
            program.start()
        except EmbeddedError as error:
            self._log(f"{program.name} did not come back: {error}")
            return True
        self._log(f"{program.name} is ready again (pid {program.pid})")
        return False

    def _is_hopeless(self, program: Program) -> bool:
        now = self._clock()
        recent = [at for at in self._deaths.get(program.name, []) if now - at < WITHIN_SECONDS]
        self._deaths[program.name] = [*recent, now]
        self._due[program.name] = now + PAUSE_SECONDS
        return len(recent) >= DEATHS_MAX


def ending(program: Program) -> str:
    code = program.exit_code
    if code is not None and code < 0:
        return signal.Signals(-code).name
    return f"exit code {code}"
