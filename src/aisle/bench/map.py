"""`aisle bench map`: the stadium of the demonstration in a real browser: how soon it is drawn, how smoothly it moves.

    first_draw_ms          from the start of the navigation until every seat of 50,160 is on the screen
    frame_p95_ms           what a frame takes while the map is dragged, whole hall and single seats alike: the time
                           between two frames of a browser that does not wait for a screen (`UNPACED`), drawing,
                           layout and compositing included
    frame_interval_p95_ms  the same of a browser that does: a screen of 60 Hz shows a frame every 16.7 ms at best,
                           however little it takes, so this tells dropped frames and nothing finer
    draw_p95_ms            of that, what our drawing takes; the rest is the browser's
    snapshot_bytes         the hall as it travels

Needs Chromium and Playwright, which come with the development packages. Without a graphics card, as here, Chromium
draws on the processor: a phone or a laptop has it easier.
"""

import asyncio
import shutil
from typing import Any

import msgspec

from aisle.bench.cost import percentile
from aisle.bench.product import running_product
from aisle.bench.report import circumstances, say
from aisle.demo.conversation import Person
from aisle.demo.load import load_demo
from aisle.errors import StartupError

STADIUM = 1
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
# Frames follow each other as fast as they are made instead of at the pace of a screen.
UNPACED = ["--disable-frame-rate-limit", "--disable-gpu-vsync"]
VISITS, FRAMES = 5, 120

# Frames are timed while a pointer drags the map to and fro, as a person would, one movement a frame.
RECORD = """
(frames) => new Promise((done) => {
  const canvas = document.getElementById("canvas");
  const box = canvas.getBoundingClientRect();
  const times = [];
  let last = 0;
  const at = (n) => ({
    clientX: box.x + box.width / 2 + 150 * Math.sin(n / 9),
    clientY: box.y + box.height / 2 + 60 * Math.cos(n / 7),
    bubbles: true, cancelable: true, view: window, button: 0, buttons: 1,
  });
  canvas.dispatchEvent(new MouseEvent("mousedown", at(0)));
  requestAnimationFrame(function frame(now) {
    if (last) times.push(now - last);
    last = now;
    if (times.length === frames) {
      window.dispatchEvent(new MouseEvent("mouseup", at(times.length)));
      return done(times);
    }
    window.dispatchEvent(new MouseEvent("mousemove", at(times.length + 1)));
    requestAnimationFrame(frame);
  });
})
"""
DRAWN = "() => performance.getEntriesByName('hall-drawn')[0]?.startTime"
DRAW_TIMES = "() => performance.getEntriesByName('hall-frame').map((entry) => entry.duration)"


def bench_map(*, quick: bool = False) -> dict[str, object]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise StartupError("playwright is not installed: `make setup` installs it") from None
    program = shutil.which("chromium")
    if program is None:
        raise StartupError("chromium is not installed: tests/install-programs.sh installs it where it can")
    with running_product() as product:
        address = f"http://{product.config.host}:{product.config.port}"
        event = asyncio.run(load_demo(product.config, address))[STADIUM]
        result: dict[str, object] = {"bench": "map", **circumstances(), **asyncio.run(_sizes(address, event))}
        with sync_playwright() as playwright:
            visits, frames = (1, 10) if quick else (VISITS, FRAMES)
            for pace, flags in (("paced", FLAGS), ("unpaced", FLAGS + UNPACED)):
                say(f"{pace} by a screen")
                browser = playwright.chromium.launch(executable_path=program, args=flags)
                page, first_draws = _visit(browser, f"{address}/events/{event}", visits)
                times = _drag(page, frames)
                result.update(_paced(times, first_draws) if pace == "paced" else _unpaced(times, _draws(page)))
                browser.close()
    return result


async def _sizes(address: str, event: int) -> dict[str, object]:
    hall = (await Person(address).get(f"/events/{event}/seatmap")).body
    seats = sum(place[2] * place[3] for place in hall["places"])
    return {"seats": seats, "snapshot_bytes": len(msgspec.json.encode(hall))}


def _visit(browser: Any, url: str, visits: int) -> tuple[Any, list[float]]:
    """The page of the last visit, and how long each took until the hall was drawn."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    first_draws = []
    for visit in range(visits):
        page = context.new_page()
        page.goto(url)
        page.wait_for_selector("canvas[data-drawn=true]")
        first_draws.append(float(page.evaluate(DRAWN)))
        if visit < visits - 1:
            page.close()
    return page, first_draws


def _drag(page: Any, frames_each: int) -> dict[str, list[float]]:
    """Milliseconds between frames, by how near the hall is."""
    frames = {}
    for name, presses in (("whole", 0), ("blocks", 4), ("seats", 2)):
        for _ in range(presses):
            page.click("#zoom-in")
            page.wait_for_timeout(400)
        frames[name] = [float(ms) for ms in page.evaluate(RECORD, frames_each)]
    return frames


def _draws(page: Any) -> list[float]:
    return [float(ms) for ms in page.evaluate(DRAW_TIMES)]


def _paced(times: dict[str, list[float]], first_draws: list[float]) -> dict[str, object]:
    every = [ms for some in times.values() for ms in some]
    return {
        "first_draw_ms": round(sorted(first_draws)[len(first_draws) // 2], 1),
        "first_visit_ms": round(first_draws[0], 1),
        "frame_interval_p50_ms": round(percentile(every, 50), 2),
        "frame_interval_p95_ms": round(percentile(every, 95), 2),
    }


def _unpaced(times: dict[str, list[float]], draws: list[float]) -> dict[str, object]:
    every = [ms for some in times.values() for ms in some]
    return {
        "frame_p50_ms": round(percentile(every, 50), 2),
        "frame_p95_ms": round(percentile(every, 95), 2),
        "frame_p95_ms_by_view": {name: round(percentile(some, 95), 2) for name, some in times.items()},
        "draw_p95_ms": round(percentile(draws, 95), 2) if draws else None,
    }
