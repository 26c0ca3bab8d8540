"""`aisle bench inventory`: what a claim costs, how long questions take, how much memory an event needs, and the rivals.

Starts an embedded Valkey of its own in a temporary directory, with the product's settings (append-only file, fsync
every second). `bench/README.md` explains every figure. Never calls a run good in which a seat was sold twice.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path

import uvloop

from aisle.bench.finding import measure_finding, measure_hall_best, measure_opening, measure_status
from aisle.bench.floors import measure_floors
from aisle.bench.memory import measure_memory
from aisle.bench.report import circumstances, say, show
from aisle.bench.rivals import measure_redis_py, measure_seed_algorithm
from aisle.bench.seat_fill import measure_seat_fill
from aisle.bench.selling import measure_selling
from aisle.bench.stage import FULL, QUICK, Sizes, Stage
from aisle.collector import collect_seldom
from aisle.config import Config
from aisle.embedded.supervisor import Supervisor
from aisle.metrics import Metrics
from aisle.store import open_store


def bench_inventory(*, as_json: bool, quick: bool, store_options: Mapping[str, str]) -> int:
    """Measure, print; 1 if any audit found a seat sold twice or keys that disagree."""
    result: dict[str, object] = {"bench": "inventory", **circumstances(), "store_options": store_options}
    sizes = QUICK if quick else FULL
    collect_seldom()  # as the services do
    with tempfile.TemporaryDirectory(prefix="aisle-bench-") as folder, Supervisor(Path(folder) / "data", log=say) as s:
        result |= uvloop.run(_measure(s.start_valkey(options=store_options).url, sizes))
    show(result, as_json=as_json)
    return 1 if result["oversold"] or result["drift"] else 0


async def _measure(url: str, sizes: Sizes) -> dict[str, object]:
    async with open_store(Config(store_url=url), Metrics()) as store:
        stage = Stage(store, sizes)
        await _warm_up(stage)
        figures = await _selling_and_rivals(stage, url)
        say("finding seats at several fill levels")
        finding, hall_best = await measure_finding(stage, in_a_row=True), await measure_hall_best(stage)
        finding_alone = await measure_finding(stage, in_a_row=False)
        say("opening, status, memory")
        status, memory = await measure_status(stage), await measure_memory(stage)
        figures |= {
            "find_p99_us": max(spread.p99 for spread in finding.values()),
            "find_us": finding,
            "find_alone_us": finding_alone,
            "hall_best_p99_us": max(spread.p99 for spread in hall_best.values()),
            "hall_best_us": hall_best,
            "open_50000_s": round(await measure_opening(stage), 4),
            "status_100_ms": status.p50,
            "status_ms": status,
            "bytes_open": memory.open,
            "bytes_sold": memory.sold,
            "bytes_of_keys": {"open": memory.keys_open, "sold": memory.keys_sold},
            "oversold": stage.oversold,
            "drift": stage.drift,
            "seats": sizes.seats,
            "quick": sizes is QUICK,
            "server": f"{store.server.flavour} {store.server.version}, unix socket, AOF synced every second",
        }
    say("seat-fill quality")
    return figures | {"seat_fill": measure_seat_fill(sizes.seat_fill_seeds)}


async def _selling_and_rivals(stage: Stage, url: str) -> dict[str, object]:
    say(f"selling {stage.sizes.seats} seats, {2 * stage.sizes.rounds} times")
    selling = await measure_selling(stage)
    say("floors and rivals")
    floors = await measure_floors(stage, url)
    redis_py = await measure_redis_py(stage, url)
    seed = await measure_seed_algorithm(stage, url)
    return {
        "claims_per_s": selling.claims.per_s,
        "claims_batch50_per_s": selling.claims_batch.per_s,
        "ratio_seed_algorithm": round(selling.claims.per_s / seed.per_s, 1),
        "ratio_redis_py": round(selling.claims.per_s / redis_py.per_s, 2),
        "cpu_ratio_seed_algorithm": round(seed.cpu_us / selling.claims.cpu_us, 1),
        "cpu_ratio_redis_py": round(redis_py.cpu_us / selling.claims.cpu_us, 2),
        "costs": {
            "claim": selling.claims,
            "claim_in_batch": selling.claims_batch,
            "confirm": selling.confirms,
            "confirm_in_batch": selling.confirms_batch,
            **floors,
            "claim_over_redis_py": redis_py,
            "seed_algorithm": seed,
        },
    }


async def _warm_up(stage: Stage) -> None:
    """The first call of a script loads it, and the first event grows the server's tables."""
    await measure_selling(Stage(stage.store, QUICK))
