"""When silence becomes a loss, in ticks. No clock, no server."""

from respline.watch import Verdict, Watch


def test_a_command_is_overdue_after_the_time_out_and_not_before() -> None:
    watch = Watch(timeout=8.0, health_check_interval=None, patience=5.0)
    assert watch.seconds_per_tick == 1.0
    verdicts = [watch.tick(accepted=1, answered=0, heard=True) for _ in range(9)]
    assert verdicts == [Verdict.FINE] * 8 + [Verdict.OVERDUE]


def test_a_busy_line_whose_commands_are_answered_is_never_overdue() -> None:
    watch = Watch(timeout=8.0, health_check_interval=30.0, patience=5.0)
    for turn in range(1000):
        assert watch.tick(accepted=10 * turn + 5, answered=10 * turn, heard=True) is Verdict.FINE


def test_a_new_command_is_not_blamed_for_an_old_one() -> None:
    watch = Watch(timeout=8.0, health_check_interval=None, patience=5.0)
    for _ in range(8):
        assert watch.tick(1, 0, heard=True) is Verdict.FINE
    for _ in range(8):
        assert watch.tick(2, 1, heard=True) is Verdict.FINE
    assert watch.tick(2, 1, heard=True) is Verdict.OVERDUE


def test_silence_is_probed_once_and_then_judged() -> None:
    watch = Watch(timeout=None, health_check_interval=8.0, patience=3.0)
    verdicts = [watch.tick(0, 0, heard=False) for _ in range(8)]
    assert verdicts == [Verdict.FINE] * 7 + [Verdict.PROBE]
    assert [watch.tick(1, 0, heard=False) for _ in range(3)] == [Verdict.FINE, Verdict.FINE, Verdict.SILENT]


def test_an_answered_probe_starts_the_silence_anew() -> None:
    watch = Watch(timeout=None, health_check_interval=8.0, patience=3.0)
    for _ in range(3):
        assert [watch.tick(0, 0, heard=False) for _ in range(8)][-1] is Verdict.PROBE
        assert watch.tick(1, 1, heard=True) is Verdict.FINE


def test_silence_during_a_blocking_read_is_not_probed() -> None:
    watch = Watch(timeout=None, health_check_interval=8.0, patience=3.0)
    assert {watch.tick(1, 0, heard=False) for _ in range(100)} == {Verdict.FINE}


def test_without_time_out_and_health_check_there_is_no_timer() -> None:
    assert Watch(None, None, patience=1.0).seconds_per_tick is None
