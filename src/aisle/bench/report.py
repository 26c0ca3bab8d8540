"""What every benchmark says beside its figures, and how it says it: one JSON object, or lines for a person.

Standard output carries the result and nothing else. Progress goes to a terminal only, so that a pipe stays clean.
"""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

BAR_WIDTH = 24


def circumstances() -> dict[str, object]:
    """When, where and on which code; `load_before` tells how busy others kept the machine."""
    return {
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": _machine(),
        "load_before": [round(load, 2) for load in os.getloadavg()],
        **_commit(),
    }


def show(result: Mapping[str, object], *, as_json: bool) -> None:
    encoded = msgspec.json.encode(result)
    if as_json:
        sys.stdout.write(msgspec.json.format(encoded, indent=1).decode() + "\n")
        return
    for name, value in msgspec.json.decode(encoded, type=dict[str, object]).items():
        sys.stdout.write(f"{name:26} {_as_line(value)}\n")


def say(line: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"  {line}\n")


def bar(label: str, done: int, total: int) -> None:
    """How far it is, over the line that said so last; the line ends when all is done."""
    if label and sys.stderr.isatty():
        filled = BAR_WIDTH * done // max(total, 1)
        end = "\n" if done >= total else ""
        sys.stderr.write(f"\r  [{'#' * filled:{BAR_WIDTH}}] {done:,} of {total:,}  {label}{end}")
        sys.stderr.flush()


def _as_line(value: object) -> str:
    if isinstance(value, Mapping):
        return ("\n" + " " * 27).join(f"{name}: {_in_brackets(part)}" for name, part in value.items())
    return str(value)


def _in_brackets(value: object) -> str:
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{name} {_in_brackets(part)}" for name, part in value.items()) + ")"
    return str(value)


def _machine() -> str:
    model = re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*(\d+) kB", _read("/proc/meminfo"), re.MULTILINE)
    return ", ".join([
        model[1] if model else platform.machine(),
        f"{os.cpu_count()} cores",
        f"{int(memory[1]) / 2**20:.0f} GiB" if memory else "memory unknown",
        f"{platform.system()} {platform.release()}",
        f"Python {platform.python_version()}",
    ])  # fmt: skip


def _commit() -> dict[str, object]:
    """Of the repository that holds this package; an installed copy may lie inside somebody else's."""
    ours = _git("ls-files", "__init__.py")
    revision = _git("rev-parse", "--short", "HEAD") if ours else ""
    return {"commit": revision or "unknown", "modified": bool(_git("status", "--porcelain", "--", ".."))}


def _git(*arguments: str) -> str:
    package = Path(__file__).parents[1]
    try:
        answer = subprocess.run(["git", "-C", package, *arguments], capture_output=True, text=True, check=False)  # noqa: S603, S607 - fixed words
    except FileNotFoundError:
        return ""
    return answer.stdout.strip()


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
