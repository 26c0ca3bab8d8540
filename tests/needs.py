"""What a test needs beside the repository. Where it is missing the test is skipped with a reason; in CI it fails.

Every skip for want of something goes through here: in CI everything can be had, so a skip there would be a gap that
nobody sees.
"""

import os
import shutil
from typing import NoReturn

import pytest


def need(program: str, where: str) -> None:
    if shutil.which(program) is None:
        cannot(f"{program} is not installed ({where})")


def cannot(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
