"""Every alert fires when it should and stays quiet when it should, judged by Prometheus' own `promtool test rules`."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import children
from tests.needs import need

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "aisle.rules.yaml"

BOOKING = 'http_server_request_duration_seconds_count{{method="POST",route="/api/v1/bookings",status="{}"}}'
LOGIN = 'http_server_request_duration_seconds_count{route="/api/v1/sessions",status="401"}'
WEBHOOK = 'http_server_request_duration_seconds_count{route="/api/v1/payments/webhooks/{provider}",status="400"}'
SCRIPT = 'aisle_store_script_seconds_bucket{{script="claim",le="{}"}}'
OUTCOME = 'aisle_reservation_requests_total{{outcome="{}",mode="named"}}'


def grows(series: str, step: float, minutes: int) -> tuple[str, str]:
    return series, f"0+{step}x{minutes}"


def stays(series: str, value: float, minutes: int = 120) -> tuple[str, str]:
    return series, f"{value}x{minutes}"


def becomes(series: str, before: float, after: float, at: int = 10, minutes: int = 60) -> tuple[str, str]:
    return series, f"{before}x{at} {after}x{minutes}"


def bookings(bad: float, minutes: int) -> list[tuple[str, str]]:
    """A hundred bookings a minute, so many of them failed."""
    return [grows(BOOKING.format(503), bad, minutes), grows(BOOKING.format(202), 100 - bad, minutes)]


def within(series: str, fast: float, le: str, minutes: int, labels: str = "") -> list[tuple[str, str]]:
    """A hundred a minute, so many of them within the bucket."""
    bucket = f'{{{labels}{"," if labels else ""}le="{le}"}}'
    count = f"{{{labels}}}" if labels else ""
    return [grows(f"{series}_bucket{bucket}", fast, minutes), grows(f"{series}_count{count}", 100, minutes)]


def scripts(fast: float) -> list[tuple[str, str]]:
    """A hundred a minute, so many of them within a tenth of a second."""
    buckets = {"0.1": fast, "0.25": 100, "+Inf": 100}
    return [grows(SCRIPT.format(le), count, 30) for le, count in buckets.items()]


DECISION, TOTAL = "aisle_reservation_decision_seconds", 'stage="total"'
LIVE = "aisle_sse_delivery_seconds"
DAY = 1440

Series = list[tuple[str, str]]

# alert -> (minute at which it has to fire, series that make it fire, series that must not)
CASES: dict[str, tuple[int, Series, Series]] = {
    "BookingErrorsFast": (75, bookings(3, 90), bookings(1, 90)),
    "BookingErrorsSlow": (400, bookings(1, 420), bookings(0.3, 420)),
    "BookingErrorsCreeping": (5 * DAY, bookings(0.2, 300), bookings(0.05, 300)),
    "DecisionsSlowFast": (75, within(DECISION, 80, "0.5", 90, TOTAL), within(DECISION, 95, "0.5", 90, TOTAL)),
    "DecisionsSlowSlow": (400, within(DECISION, 90, "0.5", 420, TOTAL), within(DECISION, 99, "0.5", 420, TOTAL)),
    "LiveUpdatesSlow": (400, within(LIVE, 90, "2.5", 420), within(LIVE, 99, "2.5", 420)),
    "InvariantViolated": (
        15,
        [becomes('aisle_invariant_violations_total{invariant="seat_given_twice"}', 0, 1)],
        [stays('aisle_invariant_violations_total{invariant="seat_given_twice"}', 1),
         stays('aisle_reconcile_drift{fault="orphan"}', 1), stays('aisle_ledger_imbalance{currency="EUR"}', 0)],
    ),
    "PaidWithoutTicket": (2, [stays("aisle_paid_without_ticket", 1)], [stays("aisle_paid_without_ticket", 0)]),
    "RefundStuck": (
        30, [stays("aisle_refunds_oldest_age_seconds", 3700)], [stays("aisle_refunds_oldest_age_seconds", 3000)],
    ),
    "PaymentStuck": (
        30, [stays("aisle_payments_oldest_due_seconds", 400)], [stays("aisle_payments_oldest_due_seconds", 30)],
    ),
    "HoldReleaseLag": (
        5, [stays("aisle_holds_overdue_oldest_seconds", 31)], [stays("aisle_holds_overdue_oldest_seconds", 12)],
    ),
    "BookingsWaiting": (
        5,
        [stays('aisle_bookings_oldest_seconds{state="processing"}', 61)],
        [stays('aisle_bookings_oldest_seconds{state="processing"}', 5),
         stays('aisle_bookings_oldest_seconds{state="paying"}', 600)],
    ),
    "OutboxStuck": (
        5,
        [stays('aisle_outbox_oldest_age_seconds{service="booking"}', 61)],
        [stays('aisle_outbox_oldest_age_seconds{service="booking"}', 10)],
    ),
    "ConsumerLag": (
        5, [stays('aisle_consumer_lag_seconds{group="g"}', 31)], [stays('aisle_consumer_lag_seconds{group="g"}', 3)],
    ),
    "DeadLetters": (
        10,
        [stays('aisle_dead_letters_waiting{lane="shared"}', 1)],
        [stays('aisle_dead_letters_waiting{lane="shared"}', 0)],
    ),
    "PartAway": (5, [stays('aisle_part_away{part="log"}', 1)], [stays('aisle_part_away{part="log"}', 0)]),
    "StoreNotVerified": (
        5, [stays('aisle_store_standing{is="verified"}', 0)], [stays('aisle_store_standing{is="verified"}', 1)],
    ),
    "StoreGenerationChanged": (
        15, [becomes("aisle_store_generation", 7, 8)], [stays("aisle_store_generation", 7)],
    ),
    "StoreAppendFails": (5, [stays("aisle_store_append_ok", 0)], [stays("aisle_store_append_ok", 1)]),
    "StoreMemory": (
        20,
        [stays("aisle_store_memory_bytes", 81), stays("aisle_store_memory_max_bytes", 100)],
        [stays("aisle_store_memory_bytes", 81), stays("aisle_store_memory_max_bytes", 0)],
    ),
    "SlowStore": (20, scripts(90), scripts(100)),
    "PoolExhausted": (
        5,
        [stays("aisle_database_pool_in_use", 20), stays("aisle_database_pool_max", 20)],
        [stays("aisle_database_pool_in_use", 18), stays("aisle_database_pool_max", 20),
         stays("aisle_store_pool_in_use", 1), stays("aisle_store_pool_max", 49)],
    ),
    "EventLoopLag": (
        20,
        [grows('aisle_event_loop_lag_seconds_bucket{instance="a",le="0.25"}', 90, 30),
         grows('aisle_event_loop_lag_seconds_bucket{instance="a",le="0.5"}', 100, 30),
         grows('aisle_event_loop_lag_seconds_bucket{instance="a",le="+Inf"}', 100, 30)],
        [grows('aisle_event_loop_lag_seconds_bucket{instance="a",le="0.25"}', 100, 30),
         grows('aisle_event_loop_lag_seconds_bucket{instance="a",le="+Inf"}', 100, 30)],
    ),
    "HighContention": (
        20,
        [grows(OUTCOME.format("taken"), 80, 30), grows(OUTCOME.format("reserved"), 20, 30)],
        [grows(OUTCOME.format("taken"), 20, 30), grows(OUTCOME.format("reserved"), 80, 30)],
    ),
    "OrphanedKeys": (
        2, [stays('aisle_reconcile_drift{fault="orphan"}', 3)], [stays('aisle_reconcile_drift{fault="facts"}', 3)],
    ),
    "ReconcilerStale": (
        30,
        [stays("aisle_reconcile_last_success_timestamp_seconds", 0)],
        [("aisle_reconcile_last_success_timestamp_seconds", "0+60x60")],
    ),
    "BackupStale": (
        28 * 60,
        [stays("aisle_backup_last_success_timestamp_seconds", 0, 300)],
        [stays("aisle_backup_last_success_timestamp_seconds", 6 * 3600, 300)],
    ),
    "StateNotSeen": (
        10, [stays("aisle_state_timestamp_seconds", 0)], [("aisle_state_timestamp_seconds", "0+60x60")],
    ),
    "AuthAttack": (
        DAY + 10,
        [(LOGIN, f"0+1x{DAY} {DAY}+100x20")],
        [(LOGIN, f"0+40x{DAY} {40 * DAY}+60x20")],
    ),
    "WebhookSignatureFailures": (20, [grows(WEBHOOK, 7, 30)], [grows(WEBHOOK, 1, 30)]),
}  # fmt: skip


# A step a minute for days takes long to judge.
INTERVALS = {"BookingErrorsCreeping": "30m", "BackupStale": "10m"}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def test_every_alert_has_a_case():
    assert {rule["alert"] for rule in alerts()} == set(CASES)


def promtool(*arguments: str | Path) -> Any:
    need("promtool", "Debian package `prometheus`")
    return children.run(["promtool", *arguments], capture_output=True, text=True, check=False)


def test_the_rules_are_rules():
    checked = promtool("check", "rules", RULES)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_each_alert_fires_and_stays_quiet(tmp_path):
    pages = [_page(tmp_path, rule, *CASES[rule["alert"]]) for rule in alerts()]
    judged = promtool("test", "rules", *pages)
    assert judged.returncode == 0, judged.stdout[-3000:] + judged.stderr[-6000:]


def _page(folder: Path, rule: dict[str, Any], minute: int, firing: Series, quiet: Series) -> Path:
    """A test file with this alert and what it is recorded from only: all rules for days would take minutes."""
    name = rule["alert"]
    interval = INTERVALS.get(name, "1m")
    recorded = [one for one in rules() if one.get("record", "-") in rule["expr"]]
    rule_file = folder / f"{name}.rules.yaml"
    rule_file.write_text(yaml.safe_dump({"groups": [{"name": name, "rules": [*recorded, rule]}]}))
    tests = [
        {
            "interval": interval,
            "name": f"{name} {'fires' if fires else 'is quiet'}",
            "input_series": [{"series": one, "values": values} for one, values in series],
            # promtool compares labels and texts as well; that it fires is what is asked here.
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) > bool 0 or vector(0)',
                    "eval_time": f"{minute}m",
                    "exp_samples": [{"labels": "{}", "value": 1 if fires else 0}],
                }
            ],
        }
        for series, fires in ((firing, True), (quiet, False))
    ]
    page = folder / f"{name}.yaml"
    text = {"rule_files": [str(rule_file)], "evaluation_interval": interval, "tests": tests}
    page.write_text(yaml.safe_dump(text))
    return page


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_an_alert_says_how_bad_it_is_and_where_to_read_on(rule):
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["runbook"] == f"docs/how-to/runbooks.md#{rule['alert'].lower()}"
