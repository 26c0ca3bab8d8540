"""The verb `aisle demo`: load the demonstration into a running Aisle, and let simulated buyers loose on it.

Called by `cli` and, on request, by `aisle up`. What is shown lives in `aisle.demo`.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Iterator
from typing import Any

from aisle.config import Config, read_config
from aisle.errors import StartupError


def mount_demo(verbs: "argparse._SubParsersAction[Any]") -> None:
    demo = verbs.add_parser("demo", help="load a demonstration into a running Aisle")
    demo.add_argument("--buyers", type=int, default=0, metavar="N", help="then let N simulated buyers loose on it")
    demo.add_argument("--seconds", type=float, default=300, help="for so long (300)")
    demo.set_defaults(verb=_demo)


def _demo(arguments: argparse.Namespace) -> int:
    from aisle.demo.crowd import BUYERS_MAX, run_crowd, summary
    from aisle.demo.load import load_demo
    from aisle.servers_file import address_of, with_running_servers

    if not 0 <= arguments.buyers <= BUYERS_MAX or not 0 < arguments.seconds <= 86_400:
        raise StartupError(f"--buyers is 0 to {BUYERS_MAX}, --seconds up to 86400")
    config = with_running_servers(read_config(os.environ))
    if not config.database_url or not config.store_url:
        raise StartupError("AISLE_DATABASE_URL or AISLE_STORE_URL is not set, and no `aisle up` is running here")
    address = address_of(config)
    try:
        events = asyncio.run(load_demo(config, address))
        for line in introduction(address):
            _say(line)
        if arguments.buyers:
            _say(f"{arguments.buyers} buyers for {arguments.seconds:.0f} s; Ctrl-C sends them home")
            crowd = run_crowd(config, address, events, buyers=arguments.buyers, seconds=arguments.seconds, say=_say)
            _say(summary(asyncio.run(crowd)))
    except OSError as error:
        raise StartupError(f"{address} does not answer: {error}") from None
    except KeyboardInterrupt:
        return 130
    return 0


def introduction(address: str) -> Iterator[str]:
    from aisle.demo.season import LOGINS

    yield f"  Demonstration {address}/"
    for login in LOGINS:
        yield f"    {login.role:<7} {login.email:<22} {login.password}"


def try_demo(config: Config, address: str) -> list[str]:
    """For `aisle up`: the lines to print. A demonstration that cannot be loaded is no reason not to serve."""
    from aisle.demo.load import load_demo

    try:
        asyncio.run(load_demo(config, address))
    except (StartupError, OSError) as error:
        return [f"  no demonstration: {error}"]
    return list(introduction(address))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
