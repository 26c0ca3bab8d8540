"""Write the reference pages that are drawn from the code, so that they cannot drift from it. Run by `make docs`.

`tests/test_docs.py` calls `reference_pages()` and fails when a committed page differs.
"""

import asyncio
import time
from pathlib import Path
from typing import Any, get_args

from penstock_pages import apis_page, keys_page, topic_configs_page

from aisle import messages
from aisle.accounts.access import ACCESS, PUBLIC
from aisle.accounts.account import Role
from aisle.accounts.desk import make_desk
from aisle.app import build_app
from aisle.booking.api import booking_routes
from aisle.booking.booking import MOVES
from aisle.booking.holds_api import hold_routes
from aisle.booking.payment_api import money_routes
from aisle.config import PREFIX, Config
from aisle.door.api import ticket_routes
from aisle.door.gate_api import gate_routes
from aisle.health import Readiness
from aisle.live.api import live_routes
from aisle.metrics import Metrics
from aisle.ops.api import ops_routes
from aisle.payment.payment import MEANINGS
from aisle.payment.payment import MOVES as PAYMENT_MOVES
from aisle.payment.sandbox import CARDS
from aisle.privacy.api import privacy_routes
from aisle.sales.api import sales_routes
from aisle.ticketing.api import event_routes
from aisle.ticketing.event import EVENT_MOVES, TICKET_MOVES
from aisle.ticketing.hall_api import hall_routes
from aisle.ui.buyer import buyer_pages

HERE = Path(__file__).parent


def reference_pages() -> dict[Path, str]:
    return {
        HERE / "reference" / "settings.md": settings_page(),
        HERE.parent / ".env.example": env_example(),
        HERE / "reference" / "http.md": http_page(),
        HERE / "reference" / "metrics.md": metrics_page(),
        HERE / "reference" / "messages.md": messages_page(),
        HERE / "reference" / "states.md": states_page(),
        HERE / "explanation" / "money.md": money_page(),
        HERE / "reference" / "roles.md": roles_page(),
        HERE / "penstock" / "apis.md": apis_page(),
        HERE / "penstock" / "topic-configs.md": topic_configs_page(),
        HERE / "penstock" / "keys.md": keys_page(),
    }


def settings_page() -> str:
    rows = [f"| `{name}` | `{default!r}` | {text} |" for name, default, text in _settings()]
    return "\n".join(
        [
            "# Settings",
            "",
            "Read once from the environment when a process starts. A variable that begins with `AISLE_` and is not",
            "in this table stops the start: a typo never leaves a default in force.",
            "",
            "Each may be kept in a file instead, as orchestrators hand out secrets:",
            "`AISLE_SECRET_KEY_FILE=/run/secrets/key` reads the value of `AISLE_SECRET_KEY` from there. Setting both",
            "stops the start.",
            "",
            "Generated from `src/aisle/config.py`.",
            "",
            "| variable | default | meaning |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def env_example() -> str:
    lines = ["# Every setting with its default. Copy to .env and uncomment what you change."]
    for name, default, text in _settings():
        lines += ["", f"# {text}", f"#{name}={default}"]
    return "\n".join(lines) + "\n"


def http_page() -> str:
    operations = openapi_document()["paths"]
    rows = [
        f"| {method.upper()} | `{path}` | {operation.get('summary', '')} |"
        for path, methods in sorted(operations.items())
        for method, operation in methods.items()
    ]
    return "\n".join(
        [
            "# HTTP routes",
            "",
            "A running Aisle shows each with its parameters and bodies at `/docs/api`, and as OpenAPI 3.1 at",
            "`/api/v1/openapi.json`. Generated from the application itself.",
            "",
            "| method | path | what |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def messages_page() -> str:
    """Every message with its topic and fields, from the structs that encode them."""
    lines = [
        "# Messages",
        "",
        "JSON on the log, at least once, unordered across topics; every receiver can bear a repeat. A topic has 10",
        "partitions, and a section's messages all travel on one. `{lane}` is the event's id, or `shared`.",
        "",
        "Fields of all: `type`, `id`, `lane`, `event`, `section`, `partition`, `epoch`, `trace`, `version`. What a",
        "reader does not know it ignores. Generated from `src/aisle/messages.py`.",
        "",
        f"Group of a service: `{messages.group('{service}', '{lane}')}`.",
        "Key: `event-{event}-section-{section}-partition-{n}`.",
        f"Messages that nobody could handle: `{messages.dead_letters('{lane}')}`, with the reason in a header.",
    ]
    shared = set(messages.Message.__struct_fields__)
    for kind in messages.MESSAGES:
        fields = ", ".join(f"`{name}`" for name in kind.__struct_fields__ if name not in shared)
        lines += [
            "",
            f"## {kind.__struct_config__.tag}",
            "",
            (kind.__doc__ or "").strip() or "The booking is paid.",
            "",
        ]
        lines += [f"`{messages.topic(kind, '{lane}')}`", "", f"Fields: {fields}."]
    return "\n".join(lines) + "\n"


def states_page() -> str:
    """The tables of moves, drawn."""
    tables = {
        "A booking": MOVES,
        "A ticket": {state.name: {target.name for target in targets} for state, targets in TICKET_MOVES.items()},
        "A payment": PAYMENT_MOVES,
        "An event": EVENT_MOVES,
    }
    lines = ["# States", "", "What is not drawn cannot happen. Generated from the tables that the code checks against."]
    for title, moves in tables.items():
        lines += ["", f"## {title}", "", "```mermaid", "stateDiagram-v2"]
        lines += [f"    {state} --> {target}" for state, targets in moves.items() for target in sorted(targets)]
        lines += [f"    {state} --> [*]" for state, targets in moves.items() if not targets]
        lines += ["```"]
    return "\n".join(lines) + "\n"


def money_page() -> str:
    """The page on money, with its tables drawn from the code; the words between them are written by hand."""
    states = ["| state | means | goes on to |", "|---|---|---|"]
    for state, targets in PAYMENT_MOVES.items():
        states.append(f"| {state} | {MEANINGS[state]} | {', '.join(sorted(targets)) or 'its end'} |")
    cards = [
        "| `method` | what the sandbox does |",
        "|---|---|",
        *(f"| `{card}` | {does} |" for card, does in CARDS.items()),
    ]
    text = (HERE / "explanation" / "money.md").read_text()
    for name, table in (("payment states", states), ("test cards", cards)):
        head, mark, rest = text.partition(f"<!-- {name}: written by docs/generate.py -->\n")
        text = head + mark + "\n".join(table) + "\n<!-- end -->" + rest.partition("<!-- end -->")[2]
    return text


ELSEWHERE = (
    ("reservation latency by stage", "`api`: `http_server_request_duration_seconds` of the route; `script`: "
     "`aisle_store_script_seconds`; `queue` and `total`: `aisle_reservation_decision_seconds`"),
    ("conflicts", '`aisle_reservation_requests_total{outcome="taken"}`'),
    ("requests fenced off as stale, or while the store is verified",
     '`aisle_reservation_requests_total{outcome="undecided"}`'),
    ("late payments", "`aisle_late_money_total`, by how they ended"),
    ("refused by a rate limit", '`http_server_request_duration_seconds_count{status="429"}`, by route'),
    ("failed log-ins", '`http_server_request_duration_seconds_count{route=~"/api/v1/(sessions|tokens)",status="401"}`'),
    ("webhooks with a bad signature",
     '`http_server_request_duration_seconds_count{route="/api/v1/payments/webhooks/{provider}",status="400"}`'),
    ("dead letters by reason", "`aisle_dead_letters_waiting` counts what waits; `aisle dlq list` tells the reasons"),
    ("messages that came twice", "not counted: a repeat has no effect, and telling one would cost a read"),
    ("the commit of a build", "`aisle_build_info` has the version; builds of a commit are not told apart"),
    ("admission queue", "there is no waiting room yet"),
)  # fmt: skip


def metrics_page() -> str:
    rows = [
        f"| `{family.name}{_suffix(family.type)}` | {family.type} | {family.documentation} |"
        for family in sorted(Metrics().registry.collect(), key=lambda family: family.name)
        if not family.name.startswith(("python_", "process_"))
    ]
    return "\n".join(
        [
            "# Metrics",
            "",
            "Served at `/metrics` of every process. Generated from `src/aisle/metrics.py` and `state_metrics.py`.",
            "",
            "What is counted is counted a batch at a time; what is looked at is looked at every five seconds in the",
            "background. No request waits for either. Shared state (`aisle_outbox_*`, `aisle_store_*` and the like) is",
            "shown by every process with the role `booking`: take the maximum, not the sum. Labels never hold an",
            "id of a booking, a buyer or an address. Rules, with a runbook each: `deploy/prometheus/aisle.rules.yaml`;",
            "a dashboard: `deploy/grafana/aisle.json`. [How to use them](../how-to/operate.md).",
            "",
            "| name | type | meaning |",
            "|---|---|---|",
            *rows,
            "",
            "## Where to find what others have under another name",
            "",
            "| what | here |",
            "|---|---|",
            *(f"| {what} | {here} |" for what, here in ELSEWHERE),
            "",
        ]
    )


def roles_page() -> str:
    rows = []
    for (method, path), callers in sorted(ACCESS.items(), key=lambda row: (row[0][1], row[0][0])):
        cells = ["yes" if callers == PUBLIC else "", *("yes" if role in callers else "" for role in Role)]
        rows.append(f"| {method} | `{path}` | {' | '.join(cells)} |")
    return "\n".join(
        [
            "# Roles",
            "",
            "Who may call what. A route that is not in this table is closed to everybody. Without a session or a",
            "token a route that is not public answers 401, with the wrong role 403. Whose booking or event it is,",
            "is checked beyond this: what belongs to somebody else is 404.",
            "",
            "Buyers and sellers register themselves; `aisle account create` makes door staff and operators. A session",
            "that was ended, or a token that was revoked, in one process is accepted by another for at most two",
            "seconds.",
            "",
            "Generated from `src/aisle/accounts/access.py`.",
            "",
            f"| method | path | public | {' | '.join(Role)} |",
            f"|---|---|---|{'---|' * len(Role)}",
            *rows,
            "",
        ]
    )


def _suffix(kind: str) -> str:
    return "_total" if kind == "counter" else ""


def openapi_document() -> dict[str, Any]:
    document: list[dict[str, Any]] = []

    async def build() -> None:
        desk = make_desk(Config(), None, None, [], clock=time.time)  # routes are drawn here, never called
        routers = [event_routes(None), hall_routes(None), booking_routes(None), hold_routes(None), live_routes(None)]
        routers += [
            money_routes(None),
            ticket_routes(None, None, None),
            gate_routes(None),
            sales_routes(None),
            privacy_routes(None),
            ops_routes(None),
            buyer_pages(None),
        ]
        app = build_app(Config(), Readiness({}), Metrics(), desk, routers)
        document.append(app.openapi_schema.to_schema())

    asyncio.run(build())
    return document[0]


def _settings() -> list[tuple[str, object, str]]:
    import msgspec

    rows = []
    for field in msgspec.structs.fields(Config):
        description = next(meta.description for meta in _metas(field.type) if meta.description)
        rows.append((PREFIX + field.name.upper(), field.default, description))
    return rows


def _metas(annotation: Any) -> list[Any]:
    return list(get_args(annotation)[1:])[::-1]


if __name__ == "__main__":
    for path, text in reference_pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(path.relative_to(HERE.parent))
