"""The verb `aisle bench NAME`: measure a part of the platform on servers that the benchmark starts itself.

Called by `cli` alone. Each name is one function; what it measures lives in `aisle.bench`.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aisle.errors import StartupError


def mount_bench(verbs: "argparse._SubParsersAction[Any]") -> None:
    bench = verbs.add_parser("bench", help="measure a part of the platform on servers of its own")
    names = bench.add_subparsers(required=True, metavar="NAME")

    inventory = _measuring(names, "inventory", "seats in the hot store: claims, search, memory, rivals", _inventory)
    inventory.add_argument(
        "--store-option", action="append", default=[], metavar="NAME=VALUE", help="a setting of the Valkey it starts"
    )
    _mount_sellout(names)
    _measuring(names, "pay", "a sold-out event paid for over HTTP with the sandbox provider", _pay)
    _measuring(names, "status", "the state of an event read over HTTP", _status)
    sse = _measuring(names, "sse", "browsers that watch an event while it is sold", _sse)
    sse.add_argument("--viewers", type=int, default=10_000, metavar="N", help="how many watch (10,000)")
    _measuring(names, "overload", "far more orders than can be written", _overload)
    _measuring(names, "growth", "what a booking costs in larger halls and among more events", _growth)
    _measuring(names, "map", "the map of 50,000 seats in a real browser", _map)
    _mount_capacity(names)


def _measuring(
    names: "argparse._SubParsersAction[Any]", name: str, what: str, verb: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = names.add_parser(name, help=what)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that it works, measures nothing")
    parser.set_defaults(verb=verb)
    return parser


def _mount_sellout(names: "argparse._SubParsersAction[Any]") -> None:
    sellout = _measuring(names, "sellout", "an event sold out over HTTP, with everything switched on", _sellout)
    sellout.add_argument(
        "--order", choices=["random", "hot"], default="random", help="hot: everybody wants the best seats that are left"
    )
    sellout.add_argument("--parties", choices=["two", "mix"], default="two", help="mix: parties of 1 to 6")
    sellout.add_argument(
        "--topology", choices=["embedded", "scale"], default="embedded", help="scale: as `aisle scale` starts it"
    )
    sellout.add_argument(
        "--kafka-jars", default=".cache/kafka", metavar="DIR", help="for --topology scale (default .cache/kafka)"
    )


def _mount_capacity(names: "argparse._SubParsersAction[Any]") -> None:
    capacity = names.add_parser("capacity", help="a simulation: how soon would a topology sell out, by measured costs")
    capacity.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    capacity.add_argument("--costs", metavar="RESULT.json", help="measured unit costs; the newest in bench/results")
    capacity.add_argument("--seats", type=int, metavar="N", help="one topology of yours, with the numbers below")
    for role in ("api", "reservation", "ticketing", "booking"):
        capacity.add_argument(f"--{role}", type=int, default=1, metavar="N", help=f"processes of the role {role} (1)")
    capacity.add_argument("--brokers", type=int, default=1, metavar="N", help="hosts of the log (1)")
    capacity.add_argument("--stores", type=int, default=1, metavar="N", help="nodes of the store (1)")
    capacity.add_argument("--cores", type=int, default=4, metavar="N", help="of every host (4)")
    capacity.add_argument("--partitions", type=int, default=10, metavar="N", help="of every topic (10)")
    capacity.add_argument("--gbit", type=float, default=10, metavar="X", help="of every host's network (10)")
    capacity.set_defaults(verb=_capacity)


def _inventory(arguments: argparse.Namespace) -> int:
    from aisle.bench.inventory import bench_inventory

    options = dict(option.partition("=")[::2] for option in arguments.store_option)
    if not all(options.values()):
        raise StartupError("--store-option takes NAME=VALUE, such as hash-max-listpack-entries=512")
    return bench_inventory(as_json=arguments.json, quick=arguments.quick, store_options=options)


def _sellout(arguments: argparse.Namespace) -> int:
    from aisle.bench.report import show
    from aisle.bench.rush import FULL, QUICK
    from aisle.bench.sellout import sell_out

    jars = Path(arguments.kafka_jars) if arguments.topology == "scale" else None
    size = QUICK if arguments.quick else FULL
    result = sell_out(size, order=arguments.order, parties=arguments.parties, topology=jars)
    show(result, as_json=arguments.json)
    return 1 if result["oversold"] or result["lost"] or result["drift"] else 0


def _pay(arguments: argparse.Namespace) -> int:
    from aisle.bench.pay import pay_for_all
    from aisle.bench.report import show
    from aisle.bench.rush import FULL, QUICK

    result = pay_for_all(QUICK if arguments.quick else FULL)
    show(result, as_json=arguments.json)
    return 1 if result["unpaid"] or result["drift"] or not result["ledger_balanced"] else 0


def _status(arguments: argparse.Namespace) -> int:
    from aisle.bench.report import show
    from aisle.bench.status import bench_status

    show(bench_status(quick=arguments.quick), as_json=arguments.json)
    return 0


def _overload(arguments: argparse.Namespace) -> int:
    from aisle.bench.overload import bench_overload
    from aisle.bench.report import show

    result = bench_overload(quick=arguments.quick)
    show(result, as_json=arguments.json)
    return 1 if result["lost"] or result["drift"] or result["other"] or result["without_retry_after"] else 0


def _sse(arguments: argparse.Namespace) -> int:
    from aisle.bench.report import show
    from aisle.bench.sse import bench_sse

    if arguments.viewers < 1:
        raise StartupError("--viewers takes a number from 1 on")
    result = bench_sse(arguments.viewers, quick=arguments.quick)
    show(result, as_json=arguments.json)
    return 1 if result["gaps"] or result["behind"] or result["lost_connections"] else 0


def _growth(arguments: argparse.Namespace) -> int:
    from aisle.bench.growth import FULL, QUICK, bench_growth
    from aisle.bench.report import show

    show(bench_growth(QUICK if arguments.quick else FULL), as_json=arguments.json)
    return 0


def _map(arguments: argparse.Namespace) -> int:
    from aisle.bench.map import bench_map
    from aisle.bench.report import show

    show(bench_map(quick=arguments.quick), as_json=arguments.json)
    return 0


def _capacity(arguments: argparse.Namespace) -> int:
    from aisle.bench.capacity import bench_capacity
    from aisle.bench.report import show
    from aisle.bench.topology import topology_of

    wanted = topology_of(vars(arguments)) if arguments.seats is not None else None
    show(bench_capacity(Path(arguments.costs) if arguments.costs else None, wanted), as_json=arguments.json)
    return 0
