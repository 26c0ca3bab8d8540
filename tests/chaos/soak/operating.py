"""What an operator does after the store was lost, with the commands of the product: rebuild every event, verify, admit.

Several `aisle` commands run in one process, since starting one is most of what it costs.
"""

import asyncio
import contextlib
import io
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from tests.chaos.soak.world import World
from tests.running import as_environment, clean_environment

PATIENCE_SECONDS = 150


@dataclass
class Operator:
    world: World
    rebuilds: int = 0
    seconds: float = 0.0
    last: str = ""
    _number: int = 0

    async def recover(self) -> bool:
        """Until the store is what PostgreSQL knows and claims are let through; false if that never came."""
        started = time.monotonic()
        while time.monotonic() - started < PATIENCE_SECONDS:
            try:
                events = await self._events()
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await asyncio.sleep(1)
                continue
            rebuild = [["rebuild", "--event", str(event)] for event in events]
            done = await self.run([*rebuild, ["verify", "--admit", "--fresh"]])
            self.rebuilds += 1
            self.last = json.dumps([one for one in done if one["code"]], indent=1)
            if done and done[-1]["code"] == 0:
                self.seconds = max(self.seconds, time.monotonic() - started)
                return True
            await asyncio.sleep(1)
        return False

    async def verify(self) -> dict[str, Any]:
        [done] = await self.run([["verify", "--json"]])
        return done

    async def run(self, commands: list[list[str]]) -> list[dict[str, Any]]:
        env = clean_environment(as_environment(self.world.config))
        self._number += 1
        answer = self.world.folder / f"operator-{self._number}.json"
        child = await self.world.born(
            ["operate", json.dumps(commands), str(answer)], env, self.world.folder / "operator.log"
        )
        while child.poll() is None:
            await asyncio.sleep(0.1)
        return list(_read(answer)) if child.poll() == 0 else [{"code": 2, "out": f"ended with {child.poll()}"}]

    async def _events(self) -> list[int]:
        connection = await asyncpg.connect(self.world.config.database_url, timeout=5)
        try:
            rows = await connection.fetch("select id from ticketing.events where state <> 'new' order by id")
            return [row["id"] for row in rows]
        finally:
            await connection.close()


def _read(path: Path) -> Any:
    return json.loads(path.read_text())


def operate(commands: str, answer: str) -> None:
    Path(answer).write_text(json.dumps(_run_all(json.loads(commands))))


def _run_all(commands: list[list[str]]) -> list[dict[str, Any]]:
    from aisle.cli import main

    done = []
    for command in commands:
        said, complained, code = io.StringIO(), io.StringIO(), 0
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
            try:
                main(command)
            except SystemExit as end:
                code = int(end.code or 0)
        out = said.getvalue()[-3000:] + complained.getvalue()[-500:]
        done.append({"command": " ".join(command), "code": code, "out": out})
    return done
