"""Cooldowns, alarms and counters of routes."""

import logging

import pytest

from tollgate.config.settings import Retry
from tollgate.errors import UpstreamFailed, UpstreamTimeout
from tollgate.health import Health, record_failure


class Clock:
    at = 100.0

    def __call__(self):
        return self.at


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def health(clock):
    return Health(
        Retry(cooldown_failures=3, cooldown_seconds=30, max_retry_after_seconds=120),
        clock,
        wall=lambda: 1_700_000_000.0,
    )


def fail(health, times=1, route="a/x", provider="a", **more):
    for _ in range(times):
        health.failed(route, provider, "upstream_failed", "boom", **more)


def test_a_route_cools_down_after_consecutive_failures(health, clock):
    fail(health, 2)
    assert health.cooling_until("a/x", "a") == 0
    fail(health)
    assert health.cooling_until("a/x", "a") == clock.at + 30
    assert health.cooling() == {"a/x": 30}


def test_a_success_resets_the_count_and_the_cooldown(health):
    fail(health, 2)
    health.succeeded("a/x", "a")
    fail(health, 2)
    assert health.cooling_until("a/x", "a") == 0
    fail(health)
    health.succeeded("a/x", "a")
    assert health.cooling() == {}


def test_retry_after_applies_at_once_and_is_bounded(health, clock):
    fail(health, retry_after=7)
    assert health.cooling_until("a/x", "a") == clock.at + 7
    fail(health, retry_after=86_400)
    assert health.cooling_until("a/x", "a") == clock.at + 120


def test_the_longest_cooldown_holds(health, clock):
    fail(health, 3, retry_after=100)
    assert health.cooling_until("a/x", "a") == clock.at + 100, "not the 30 of three failures"
    fail(health, retry_after=1)
    assert health.cooling_until("a/x", "a") == clock.at + 100
    fail(health, retry_after=-500)
    assert health.cooling_until("a/x", "a") == clock.at + 100
    fail(health, route="a/y", alarm="balance", retry_after=110)
    fail(health, route="a/y", alarm="key")
    assert health.cooling_until("a/other", "a") == clock.at + 110, "not the 30 of the later alarm"
    fail(health, 3, "b/x", "b")
    assert list(health.cooling()) == ["a/x", "a/y", "b/x"]
    clock.at += 30
    assert list(health.cooling()) == ["a/x", "a/y"], "a route that may be tried is not listed"


def test_a_failing_route_cools_down_again_when_it_fails_again(health, clock):
    fail(health, 25)
    clock.at += 31
    fail(health)
    assert health.cooling_until("a/x", "a") == clock.at + 30


def test_an_empty_balance_or_bad_key_cools_down_the_whole_provider(health, clock):
    fail(health, alarm="key")
    assert health.cooling_until("a/other", "a") == clock.at + 30
    assert health.cooling_until("b/x", "b") == 0
    new = [
        health.failed("a/x", "a", "upstream_failed", message, alarm="balance", retry_after=60)
        for message in ("one", "two")
    ]
    health.failed("a/x", "a", "upstream_unreachable", "proxy p:3128 refused a request to a:80: 407", alarm="proxy")
    assert new == [True, False], "each alarm is reported once"
    assert [(name, alarm.kind, alarm.count, alarm.message) for name, alarm in health.alarms()] == [
        ("a", "key", 1, "boom"),
        ("a", "balance", 2, "two"),
        ("a", "proxy", 1, "proxy p:3128 refused a request to a:80: 407"),
    ]
    health.succeeded("a/x", "a")
    assert health.alarms() == []
    assert health.cooling_until("a/other", "a") == 0


def test_an_answer_ends_the_only_alarm_of_its_provider_and_none_of_another(health, clock):
    fail(health, alarm="balance")
    fail(health, route="b/x", provider="b", alarm="key")
    health.succeeded("a/x", "a")
    assert [(name, alarm.kind) for name, alarm in health.alarms()] == [("b", "key")]
    assert (health.cooling_until("a/x", "a"), health.cooling_until("b/x", "b")) == (0, clock.at + 30)


def test_an_answer_to_a_request_sent_before_the_failure_ends_no_cooldown(health, clock):
    fail(health, 2, retry_after=60)
    clock.at += 1
    health.succeeded("a/x", "a", took=1.5)
    assert health.cooling() == {"a/x": 59}
    fail(health, 2)
    assert health.cooling_until("a/x", "a") == clock.at + 59, "the failures are not in a row"
    health.succeeded("a/x", "a", took=0.0)
    assert health.cooling() == {}


def test_an_answer_to_a_request_sent_before_the_alarm_does_not_end_it(health, clock):
    fail(health, alarm="balance")
    clock.at += 1
    health.succeeded("a/y", "a", took=1.5)
    assert health.cooling_until("a/y", "a") == clock.at + 29 and len(health.alarms()) == 1
    health.succeeded("a/y", "a", took=0.5)
    assert health.cooling_until("a/y", "a") == 0 and health.alarms() == []


def test_a_rejected_request_is_no_failure_of_the_route(health):
    for _ in range(9):
        health.rejected("a/x", "a")
    assert health.cooling() == {}
    assert health.routes()[0].rejections == 9


def test_counters_report_errors_rates_and_latency(health):
    health.succeeded("a/x", "a", 1.0)
    health.succeeded("a/x", "a", 2.0)
    fail(health)
    known = health.routes()[0]
    assert (known.successes, known.failures) == (2, 1)
    assert known.latency == pytest.approx(1.2)
    assert known.error_rate == pytest.approx(0.05)
    fail(health)
    assert known.error_rate == pytest.approx(0.0975)
    health.succeeded("a/x", "a", 5.2)
    assert known.error_rate == pytest.approx(0.0975 * 0.95)
    assert known.latency == pytest.approx(2.0)
    assert (known.last_error, known.last_error_at) == ("upstream_failed: boom", 1_700_000_000.0)


def test_a_reload_drops_removed_routes_and_keeps_the_others(health):
    fail(health, 3, "a/x", "a", alarm="key")
    fail(health, 3, "b/x", "b", alarm="balance")
    health.keep({"b/x"}, {"b"})
    assert list(health.cooling()) == ["b/x"]
    assert [name for name, _ in health.alarms()] == ["b"]
    assert health.cooling_until("a/x", "a") == 0, "a route that returns under the same name starts anew"
    health.succeeded("b/x", "b", took=1.0)
    assert health.alarms(), "an answer to a request that was sent before the alarm does not end it"


def test_an_alarm_of_a_call_beside_the_requests_ends_with_the_next_answer(health, clock):
    assert health.alarmed("a", "key", "no") and not health.cooling()
    clock.at += 1
    health.succeeded("a/x", "a")
    assert health.alarms() == []


@pytest.mark.parametrize("again", [("b",), ("a", "b")], ids=["gone", "back"])
def test_a_request_that_began_before_a_reload_raises_no_alarm_of_a_provider_that_it_removed(health, again):
    health.keep({"b/x"}, {"b"})
    health.keep({f"{name}/x" for name in again}, {*again})
    fail(health, 3, "a/x", "a", alarm="key")
    assert health.alarmed("a", "balance", "empty") is ("a" in again)
    assert health.failed("a/x", "a", "upstream_failed", alarm="proxy") is ("a" in again)
    assert [name for name, _ in health.alarms()] == (["a"] * 3 if "a" in again else [])
    assert bool(health.cooling()) == ("a" in again)


def test_a_failing_route_is_logged_occasionally_and_always_at_debug_level(health, clock, caplog):
    log = logging.getLogger("tollgate.test")
    caplog.set_level(logging.DEBUG, "tollgate.test")
    for number, seconds in enumerate((0, 1, 8.9, 0.1)):
        clock.at += seconds
        record_failure(
            health, log, "a/x", "a", UpstreamFailed("it\nbroke\x1b[31m", upstream_status=503), f"request req_{number}"
        )
    record_failure(health, log, "a/y", "a", UpstreamTimeout("idle", 5), "request req_4")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "route a/x failed for request req_0: upstream_failed, HTTP 503: it broke [31m"),
        ("DEBUG", "route a/x failed for request req_1: upstream_failed, HTTP 503: it broke [31m"),
        ("DEBUG", "route a/x failed for request req_2: upstream_failed, HTTP 503: it broke [31m"),
        (
            "WARNING",
            (
                "route a/x failed for request req_3: upstream_failed, HTTP 503: it broke [31m (3 failures since the "
                "last line)"
            ),
        ),
        ("WARNING", "route a/y failed for request req_4: upstream_timeout: upstream exceeded its idle budget of 5 s"),
    ]
