"""axe-core, which finds what keeps people with disabilities out of a page. Fetched once, by its lock file."""

import fcntl
import shutil
from functools import cache
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from tests import children
from tests.needs import cannot, need

ROOT = Path(__file__).parent.parent.parent
GIVEN = Path(__file__).parent / "axe"
FOLDER = ROOT / ".cache" / "axe"
FETCH_SECONDS_MAX = 120


@cache
def _source() -> str:
    need("npm", "it comes with Node.js")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        script = FOLDER / "node_modules" / "axe-core" / "axe.min.js"
        if not script.is_file():
            for path in GIVEN.iterdir():
                shutil.copy(path, FOLDER)
            command = ["npm", "ci", "--ignore-scripts"]
            ended = children.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX)
            if ended.returncode:
                cannot(f"axe-core cannot be fetched: {ended.stderr.strip()[-300:]}")
        return script.read_text()


def serious_violations(page: Page) -> list[str]:
    """One line for each element that breaks a rule whose impact axe calls serious or critical."""
    page.evaluate(_source())  # through the debugger, so that the page's policy stays as strict as it is
    found: dict[str, Any] = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{rule['id']}: {node['target']} {node.get('failureSummary', '')}"
        for rule in found["violations"]
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]
