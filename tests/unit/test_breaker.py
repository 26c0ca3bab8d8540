"""The circuit breaker, walked through its states on a clock that the test moves."""

from aisle.breaker import BreakerState, CircuitBreaker


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def opened_breaker() -> tuple[CircuitBreaker, Clock]:
    clock = Clock()
    breaker = CircuitBreaker(clock, open_seconds=30)
    for n in range(10):
        assert breaker.allows()
        breaker.failed() if n % 2 else breaker.succeeded()
    return breaker, clock


def test_stays_closed_while_fewer_than_half_of_ten_calls_fail():
    breaker = CircuitBreaker(Clock(), open_seconds=30)
    for n in range(100):
        assert breaker.allows()
        breaker.failed() if n % 10 < 4 else breaker.succeeded()
    assert breaker.state is BreakerState.CLOSED


def test_does_not_open_before_ten_calls_were_seen():
    breaker = CircuitBreaker(Clock(), open_seconds=30)
    for _ in range(9):
        breaker.failed()
    assert breaker.allows()


def test_opens_when_half_of_ten_calls_failed_and_says_when_to_come_back():
    breaker, clock = opened_breaker()
    assert breaker.state is BreakerState.OPEN
    assert not breaker.allows()
    clock.now = 20
    assert breaker.retry_after_s() == 10


def test_lets_three_probes_through_after_thirty_seconds_and_closes_when_they_succeed():
    breaker, clock = opened_breaker()
    clock.now = 29.9
    assert not breaker.allows()
    clock.now = 30
    assert [breaker.allows() for _ in range(4)] == [True, True, True, False]
    for _ in range(3):
        breaker.succeeded()
    assert breaker.state is BreakerState.CLOSED


def test_opens_again_for_the_full_time_when_a_probe_fails():
    breaker, clock = opened_breaker()
    clock.now = 30
    assert breaker.allows()
    breaker.failed()
    clock.now = 59
    assert not breaker.allows()
    clock.now = 60
    assert breaker.allows()


def test_a_probe_whose_caller_went_away_is_given_back():
    breaker, clock = opened_breaker()
    clock.now = 30
    for _ in range(3):
        assert breaker.allows()
        breaker.abandoned()
    assert breaker.allows(), "three cancelled callers must not lock the breaker half open for ever"
