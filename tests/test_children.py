"""A test process that is killed leaves nobody behind."""

import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests import children
from tests.embedded.conftest import gone
from tests.patience import PATIENCE_SECONDS, eventually

ROOT = Path(__file__).parent.parent
SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.mark.parametrize(
    ("module", "starts", "leashed"), [("tests.children", "start", True), ("subprocess", "Popen", False)]
)
def test_what_a_killed_test_process_started_dies_with_it(module: str, starts: str, leashed: bool) -> None:
    """The second case is the same without the leash: there the child lives on."""
    program = f"from {module} import {starts}; print({starts}({SLEEPS!r}).pid, flush=True); input()"
    with children.start([sys.executable, "-c", program], cwd=ROOT, stdin=-1, stdout=-1, text=True) as test_process:
        child = psutil.Process(int(test_process.stdout.readline()))
        test_process.send_signal(signal.SIGKILL)
        test_process.wait(PATIENCE_SECONDS)
        if leashed:
            eventually(lambda: gone(child), "the kernel has killed it")
        else:
            assert not gone(child)
            child.kill()
