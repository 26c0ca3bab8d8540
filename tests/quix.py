"""An environment with Quix Streams under .cache, made from the hashed lock file once.

It is one of its own, since Quix Streams pins an older confluent-kafka than ours.
"""

import fcntl
import hashlib
import sys
from pathlib import Path

from tests import children
from tests.needs import cannot

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "compat" / "quix" / "requirements.txt"
FOLDER = ROOT / ".cache" / "quix-venv"


def quix_python() -> Path:
    """The interpreter of that environment; skips the test where it cannot be had, fails it in CI."""
    FOLDER.parent.mkdir(exist_ok=True)
    with (FOLDER.parent / "quix-venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two workers may want it at the same moment
        return _installed()


def _installed() -> Path:
    stamp, wanted = FOLDER / "complete", hashlib.sha256(LOCK.read_bytes()).hexdigest()
    interpreter = FOLDER / "bin" / "python"
    if stamp.is_file() and stamp.read_text() == wanted:
        return interpreter
    steps = [
        [sys.executable, "-m", "venv", "--clear", str(FOLDER)],
        [str(interpreter), "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(LOCK)],
    ]
    for step in steps:
        ended = children.run(step, capture_output=True, text=True)
        if ended.returncode:
            cannot(f"Quix Streams cannot be installed here: {ended.stderr.strip()[-300:]}")
    stamp.write_text(wanted)
    return interpreter


if __name__ == "__main__":  # before the tests, as the other programs
    quix_python()
