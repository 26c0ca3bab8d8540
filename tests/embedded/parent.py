"""A supervisor in a process of its own, for tests that signal or kill it: starts what it is told to, then waits.

Prints the pids as one JSON line as soon as all answer; exits with what wait() says.
"""

import json
import signal
import sys
import time
from pathlib import Path
from threading import Timer

from aisle.embedded.supervisor import EmbeddedError, Supervisor

SLEEPER = (
    "import signal, time; signal.signal(signal.SIGTERM, lambda *_: exit(0)); print('up', flush=True); time.sleep(600)"
)


def announce(pids: dict[str, int], handler_before_wait: object) -> None:
    while signal.getsignal(signal.SIGTERM) is handler_before_wait:
        time.sleep(0.01)
    sys.stdout.write(json.dumps(pids) + "\n")
    sys.stdout.flush()


def main(data: Path, names: list[str]) -> int:
    try:
        with Supervisor(data) as supervisor:
            pids = {}
            if "postgres" in names:
                pids["postgres"] = supervisor.start_postgres().pid
            if "valkey" in names:
                pids["valkey"] = supervisor.start_valkey().pid
            if "sleeper" in names:
                log = data / "logs" / "sleeper.log"
                argv = [sys.executable, "-c", SLEEPER]
                pids["sleeper"] = supervisor.start_program("sleeper", argv, {}, lambda: "up" in log.read_text()).pid
            # The line goes out once signals are awaited, so that the reader's signal meets wait() and not this line.
            Timer(0, announce, [pids, signal.getsignal(signal.SIGTERM)]).start()
            return supervisor.wait()
    except EmbeddedError as error:
        sys.stderr.write(f"{error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
