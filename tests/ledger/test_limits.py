"""Rate limits and concurrency limits of keys: buckets that refill, count only admitted requests and report what is
left."""

from __future__ import annotations

import pytest

from tollgate.errors import RateLimited
from tollgate.ledger import KeyRecord
from tollgate.ledger.limits import UNLIMITED, Concurrency, RateLimits, _Bucket


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


def test_a_request_over_the_rate_limit_is_rejected_with_retry_after(clock: Clock) -> None:
    limits = RateLimits(clock)
    left = [limits.admit(key(rpm=5)).requests for _ in range(5)]
    assert [each.remaining for each in left if each] == [4, 3, 2, 1, 0]
    with pytest.raises(RateLimited) as rejected:
        limits.admit(key(rpm=5))
    assert rejected.value.retry_after == pytest.approx(12)
    assert (
        rejected.value.limits.requests.remaining,
        rejected.value.limits.requests.reset_seconds,
        rejected.value.limits.tokens,
    ) == (0, pytest.approx(60), None)
    clock.now += 9
    with pytest.raises(RateLimited) as rejected:
        limits.admit(key(rpm=5))
    assert rejected.value.limits.requests.remaining == 0, "three quarters of a request are none"
    clock.now += 3
    limits.admit(key(rpm=5))


@pytest.mark.parametrize(("wait", "shown"), [(0, 1), (0.2, 1), (1, 1), (7.0001, 7), (7.2, 8), (7.5, 8)])
def test_the_wait_in_the_message_is_not_rounded_below_the_wait(wait: float, shown: int) -> None:
    assert RateLimited(wait).message == f"Rate limit reached for requests. Please try again in {shown}s."


def test_rejected_requests_do_not_count(clock: Clock) -> None:
    limits = RateLimits(clock)
    limits.admit(key(rpm=1, tpm=100), 100)
    for _ in range(50):
        with pytest.raises(RateLimited):
            limits.admit(key(rpm=1, tpm=100), 100)
    clock.now += 60
    assert limits.admit(key(rpm=1, tpm=100), 100).requests is not None


def test_estimated_tokens_are_corrected(clock: Clock) -> None:
    limits = RateLimits(clock)
    limits.admit(key(tpm=1000), 800)
    with pytest.raises(RateLimited, match="tokens"):
        limits.admit(key(tpm=1000), 300)
    limits.settle(key(tpm=1000), estimated=800, actual=100)
    admitted = limits.admit(key(tpm=1000), 300)
    assert admitted.tokens is not None
    assert (admitted.tokens.remaining, admitted.tokens.limit) == (600, 1000)
    assert admitted.tokens.reset_seconds == pytest.approx(24)


def test_tokens_returned_late_do_not_exceed_the_limit(clock: Clock) -> None:
    limits = RateLimits(clock)
    limits.admit(key(tpm=100), 80)
    clock.now += 60
    limits.settle(key(tpm=100), estimated=80, actual=0)
    limits.admit(key(tpm=100), 100)
    with pytest.raises(RateLimited):
        limits.admit(key(tpm=100), 1)


def test_a_request_over_the_token_limit_passes_if_the_bucket_is_full(clock: Clock) -> None:
    limits = RateLimits(clock)
    limits.admit(key(tpm=100), 5000)
    with pytest.raises(RateLimited):
        limits.admit(key(tpm=100), 1)


def test_a_request_of_unknown_size_needs_one_token(clock: Clock) -> None:
    limits = RateLimits(clock)
    limits.admit(key(tpm=100), 100)
    with pytest.raises(RateLimited):
        limits.admit(key(tpm=100), 0)


def test_keys_do_not_share_buckets(clock: Clock) -> None:
    limits = RateLimits(clock)
    for id in ("key_1", "key_2"):
        limits.admit(key(rpm=1, id=id))
    with pytest.raises(RateLimited):
        limits.admit(key(rpm=1, id="key_1"))


def test_a_changed_limit_applies_at_once(clock: Clock) -> None:
    limits = RateLimits(clock)
    limits.admit(key(rpm=1))
    with pytest.raises(RateLimited):
        limits.admit(key(rpm=1))
    clock.now += 30
    assert limits.admit(key(rpm=100)).requests is not None


def test_a_changed_limit_keeps_the_remaining_share(clock: Clock) -> None:
    limits = RateLimits(clock)
    limits.admit(key(tpm=100), 60)
    raised = limits.admit(key(tpm=1000), 150).tokens
    assert raised is not None and (raised.limit, raised.remaining) == (1000, 250)
    lowered = limits.admit(key(tpm=40), 1).tokens
    assert lowered is not None and (lowered.limit, lowered.remaining) == (40, 9)


def test_a_limit_of_zero_admits_nothing_until_it_is_raised(clock: Clock) -> None:
    limits = RateLimits(clock)
    with pytest.raises(RateLimited) as rejected:
        limits.admit(key(rpm=0))
    assert rejected.value.retry_after == 60
    admitted = limits.admit(key(rpm=2)).requests
    assert admitted is not None and admitted.remaining == 1


def test_only_full_buckets_are_forgotten(clock: Clock) -> None:
    limits = RateLimits(clock)
    for number in range(4096):
        limits.admit(key(rpm=10, id=f"key_{number}"))
    clock.now += 60
    for _ in range(9):
        limits.admit(key(rpm=10, id="key_7"))
    limits.admit(key(rpm=10, id="key_8"))
    limits.admit(key(rpm=10, id="key_new"))
    assert len(limits._buckets) == 3
    for used, remaining in (("key_7", 0), ("key_8", 8)):
        left = limits.admit(key(rpm=10, id=used)).requests
        assert left is not None and left.remaining == remaining


@pytest.mark.parametrize("others", [4095, 4096])
def test_a_request_counts_although_full_buckets_are_forgotten_when_it_comes(clock: Clock, others: int) -> None:
    limits = RateLimits(clock)
    for number in range(others):
        limits.admit(key(rpm=10, id=f"key_{number}"))
    for remaining in (9, 8):
        left = limits.admit(key(rpm=10, tpm=100, id="key_new"), 1).requests
        assert left is not None and left.remaining == remaining


def test_many_busy_keys_do_not_have_all_buckets_looked_at_with_each_request(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    refilled = 0
    refill = _Bucket.refill

    def counted(bucket: _Bucket, limit: int, now: float) -> None:
        nonlocal refilled
        refilled += 1
        refill(bucket, limit, now)

    monkeypatch.setattr(_Bucket, "refill", counted)
    limits = RateLimits(clock)
    for number in range(6_000):
        limits.admit(key(rpm=10, id=f"key_{number}"))
    assert refilled <= 2 * 6_000
    clock.now += 60
    for number in range(6_000, 26_000):
        limits.admit(key(rpm=10, id=f"key_{number}"))
        clock.now += 0.01
    assert len(limits._buckets) < 12_000, "full buckets are still forgotten"


def capped(most: int | None = 3, id: str = "key_1") -> KeyRecord:
    return KeyRecord(id, "alice", max_concurrent=most)


def test_requests_over_the_concurrency_limit_are_rejected(clock: Clock) -> None:
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


def test_leaving_a_slot_twice_frees_it_once(clock: Clock) -> None:
    concurrency = Concurrency(clock)
    first, *_ = [concurrency.occupy(capped()) for _ in range(3)]
    assert first is not None
    first.leave()
    first.leave()
    concurrency.occupy(capped())
    with pytest.raises(RateLimited):
        concurrency.occupy(capped())


def test_one_fast_request_does_not_hide_slow_ones_in_retry_after(clock: Clock) -> None:
    concurrency = Concurrency(clock)
    slots = [concurrency.occupy(capped(1000)) for _ in range(12)]
    clock.now += 40
    for slot in slots[:10]:
        slot.leave()  # type: ignore[union-attr]
    with concurrency.occupy(capped(1000)) or pytest.fail("no slot"):
        pass
    with pytest.raises(RateLimited) as rejected:
        concurrency.occupy(capped(2))
    assert rejected.value.retry_after == pytest.approx(40 * 0.8 / 2)


def test_unlimited_and_idle_keys_are_not_tracked(clock: Clock) -> None:
    concurrency = Concurrency(clock)
    assert concurrency.occupy(capped(None)) is None
    with concurrency.occupy(capped()) or pytest.fail("no slot"), pytest.raises(RateLimited):
        concurrency.occupy(capped(1))
    assert not concurrency._running


def test_retry_after_estimates_when_a_slot_is_free(clock: Clock) -> None:
    """A client given one second while each request takes forty gives up after two attempts."""
    concurrency = Concurrency(clock)
    slots = [concurrency.occupy(capped(4)) for _ in range(4)]
    clock.now += 40
    slots.pop().leave()  # type: ignore[union-attr]
    concurrency.occupy(capped(4))
    with pytest.raises(RateLimited) as rejected:
        concurrency.occupy(capped(4))
    assert rejected.value.retry_after == pytest.approx(10)
    clock.now += 4000
    slots.pop().leave()  # type: ignore[union-attr]
    concurrency.occupy(capped(4))
    with pytest.raises(RateLimited) as rejected:
        concurrency.occupy(capped(4))
    assert rejected.value.retry_after == 60, "bounded, so that clients do retry"


def test_a_lowered_limit_counts_running_requests(clock: Clock) -> None:
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
