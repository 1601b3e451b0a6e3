"""Rate limits of keys: buckets that refill, count only what was admitted, and say what is left."""

from __future__ import annotations

import pytest

from tollgate.errors import RateLimited
from tollgate.ledger import KeyRecord, RateLimits
from tollgate.ledger.limits import UNLIMITED, Concurrency


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def key(rpm: int | None = None, tpm: int | None = None, id: str = "key_1") -> KeyRecord:
    return KeyRecord(id, "alice", rpm=rpm, tpm=tpm)


def test_a_key_without_limits_is_not_tracked(clock: Clock) -> None:
    limits = RateLimits(clock)
    assert limits.admit(key()) is UNLIMITED
    assert not limits._buckets


def test_the_sixth_of_five_a_minute_is_refused_and_told_when(clock: Clock) -> None:
    limits = RateLimits(clock)
    left = [limits.admit(key(rpm=5)).requests for _ in range(5)]
    assert [each.remaining for each in left if each] == [4, 3, 2, 1, 0]
    with pytest.raises(RateLimited) as refused:
        limits.admit(key(rpm=5))
    assert refused.value.retry_after == pytest.approx(12)
    assert (
        refused.value.limits.requests.remaining,
        refused.value.limits.requests.reset_seconds,
        refused.value.limits.tokens,
    ) == (0, pytest.approx(60), None)
    clock.now += 12
    limits.admit(key(rpm=5))


@pytest.mark.parametrize(("wait", "told"), [(0, 1), (0.2, 1), (1, 1), (7.0001, 7), (7.2, 8), (7.5, 8)])
def test_whoever_waits_as_told_is_not_a_moment_early(wait: float, told: int) -> None:
    assert RateLimited(wait).message == f"Rate limit reached for requests. Please try again in {told}s."


def test_refused_requests_do_not_count(clock: Clock) -> None:
    limits = RateLimits(clock)
    limits.admit(key(rpm=1, tpm=100), 100)
    for _ in range(50):
        with pytest.raises(RateLimited):
            limits.admit(key(rpm=1, tpm=100), 100)
    clock.now += 60
    assert limits.admit(key(rpm=1, tpm=100), 100).requests is not None


def test_tokens_are_counted_and_corrected(clock: Clock) -> None:
    limits = RateLimits(clock)
    limits.admit(key(tpm=1000), 800)
    with pytest.raises(RateLimited, match="tokens"):
        limits.admit(key(tpm=1000), 300)
    limits.settle(key(tpm=1000), estimated=800, actual=100)
    admitted = limits.admit(key(tpm=1000), 300)
    assert admitted.tokens is not None
    assert (admitted.tokens.remaining, admitted.tokens.limit) == (600, 1000)
    assert admitted.tokens.reset_seconds == pytest.approx(24)


def test_tokens_that_come_back_late_make_no_more_than_a_minute_s(clock: Clock) -> None:
    limits = RateLimits(clock)
    limits.admit(key(tpm=100), 80)
    clock.now += 60
    limits.settle(key(tpm=100), estimated=80, actual=0)
    limits.admit(key(tpm=100), 100)
    with pytest.raises(RateLimited):
        limits.admit(key(tpm=100), 1)


def test_a_request_beyond_a_whole_minute_passes_when_the_bucket_is_full(clock: Clock) -> None:
    limits = RateLimits(clock)
    limits.admit(key(tpm=100), 5000)
    with pytest.raises(RateLimited):
        limits.admit(key(tpm=100), 1)


def test_a_request_of_no_known_size_waits_for_a_token_too(clock: Clock) -> None:
    limits = RateLimits(clock)
    limits.admit(key(tpm=100), 100)
    with pytest.raises(RateLimited):
        limits.admit(key(tpm=100), 0)


def test_keys_do_not_share_buckets(clock: Clock) -> None:
    limits = RateLimits(clock)
    for id in ("key_1", "key_2"):
        limits.admit(key(rpm=1, id=id))


def test_a_changed_limit_applies_at_once(clock: Clock) -> None:
    limits = RateLimits(clock)
    limits.admit(key(rpm=1))
    with pytest.raises(RateLimited):
        limits.admit(key(rpm=1))
    clock.now += 30
    assert limits.admit(key(rpm=100)).requests is not None


def test_a_changed_limit_keeps_the_share_that_was_left(clock: Clock) -> None:
    limits = RateLimits(clock)
    limits.admit(key(tpm=100), 60)
    raised = limits.admit(key(tpm=1000), 150).tokens
    assert raised is not None and (raised.limit, raised.remaining) == (1000, 250)
    lowered = limits.admit(key(tpm=40), 1).tokens
    assert lowered is not None and (lowered.limit, lowered.remaining) == (40, 9)


def test_a_limit_of_nothing_admits_nothing_until_it_is_raised(clock: Clock) -> None:
    limits = RateLimits(clock)
    with pytest.raises(RateLimited) as refused:
        limits.admit(key(rpm=0))
    assert refused.value.retry_after == 60
    admitted = limits.admit(key(rpm=2)).requests
    assert admitted is not None and admitted.remaining == 1


def test_full_buckets_are_forgotten_and_no_others(clock: Clock) -> None:
    limits = RateLimits(clock)
    for number in range(4096):
        limits.admit(key(rpm=10, id=f"key_{number}"))
    clock.now += 60
    for _ in range(9):
        limits.admit(key(rpm=10, id="key_7"))
    limits.admit(key(rpm=10, id="key_new"))
    assert len(limits._buckets) == 2
    left = limits.admit(key(rpm=10, id="key_7")).requests
    assert left is not None and left.remaining == 0


def capped(most: int | None = 3, id: str = "key_1") -> KeyRecord:
    return KeyRecord(id, "alice", max_concurrent=most)


def test_so_many_run_at_once_and_no_more(clock: Clock) -> None:
    concurrency = Concurrency(clock)
    running = [concurrency.occupy(capped()) for _ in range(3)]
    for _ in range(64):
        with pytest.raises(RateLimited, match="^Rate limit reached for concurrent requests. Please try again in 1s.$"):
            concurrency.occupy(capped())
    assert concurrency.occupy(capped(id="key_2")) is not None, "keys do not share slots"
    for slot in running:
        assert slot is not None
        slot.leave()
        slot.leave()
    again = [concurrency.occupy(capped()) for _ in range(3)]
    with pytest.raises(RateLimited):
        concurrency.occupy(capped())
    assert again[0] is not None
    with again[0]:
        pass
    concurrency.occupy(capped())


def test_a_slot_that_is_left_twice_lets_one_more_run(clock: Clock) -> None:
    concurrency = Concurrency(clock)
    first, *_ = [concurrency.occupy(capped()) for _ in range(3)]
    assert first is not None
    first.leave()
    first.leave()
    concurrency.occupy(capped())
    with pytest.raises(RateLimited):
        concurrency.occupy(capped())


def test_one_quick_request_does_not_make_slow_ones_seem_quick(clock: Clock) -> None:
    concurrency = Concurrency(clock)
    slots = [concurrency.occupy(capped(1000)) for _ in range(12)]
    clock.now += 40
    for slot in slots[:10]:
        slot.leave()  # type: ignore[union-attr]
    with concurrency.occupy(capped(1000)) or pytest.fail("no slot"):
        pass
    with pytest.raises(RateLimited) as refused:
        concurrency.occupy(capped(2))
    assert refused.value.retry_after == pytest.approx(40 * 0.8 / 2)


def test_keys_without_a_cap_and_keys_of_which_nothing_runs_are_not_tracked(clock: Clock) -> None:
    concurrency = Concurrency(clock)
    assert concurrency.occupy(capped(None)) is None
    with concurrency.occupy(capped()) or pytest.fail("no slot"), pytest.raises(RateLimited):
        concurrency.occupy(capped(1))
    assert not concurrency._running


def test_a_refused_request_is_told_about_when_the_next_slot_is_free(clock: Clock) -> None:
    """What a client does that is told one second where each request takes forty: it gives up after two tries."""
    concurrency = Concurrency(clock)
    slots = [concurrency.occupy(capped(4)) for _ in range(4)]
    clock.now += 40
    slots.pop().leave()  # type: ignore[union-attr]
    concurrency.occupy(capped(4))
    with pytest.raises(RateLimited) as refused:
        concurrency.occupy(capped(4))
    assert refused.value.retry_after == pytest.approx(10)
    clock.now += 4000
    slots.pop().leave()  # type: ignore[union-attr]
    concurrency.occupy(capped(4))
    with pytest.raises(RateLimited) as refused:
        concurrency.occupy(capped(4))
    assert refused.value.retry_after == 60, "never so long that a client would rather not come again"


def test_a_cap_that_is_lowered_counts_what_runs(clock: Clock) -> None:
    concurrency = Concurrency(clock)
    first, second = concurrency.occupy(capped(2)), concurrency.occupy(capped(2))
    with pytest.raises(RateLimited):
        concurrency.occupy(capped(1))
    assert first is not None and second is not None
    first.leave()
    with pytest.raises(RateLimited):
        concurrency.occupy(capped(1))
    second.leave()
    assert concurrency.occupy(capped(1)) is not None
