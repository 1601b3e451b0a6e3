"""Guessing passwords is throttled by account and by address."""

from tollgate.dashboard.throttle import BY_ACCOUNT, BY_ADDRESS, WINDOW, Throttle


def test_an_account_is_blocked_after_ten_failures():
    now = 0.0
    throttle = Throttle(lambda: now)
    for number in range(BY_ACCOUNT):
        assert throttle.wait(f"10.0.0.{number}", "alice") == 0
        throttle.failed(f"10.0.0.{number}", "alice")
    assert throttle.wait("10.9.9.9", "alice") == WINDOW
    assert throttle.wait("10.9.9.9", "bob") == 0
    now = WINDOW + 1
    assert throttle.wait("10.9.9.9", "alice") == 0


def test_an_address_is_blocked_after_thirty_failures_over_many_accounts():
    throttle = Throttle(lambda: 0.0)
    for number in range(BY_ADDRESS):
        throttle.failed("10.0.0.1", f"account-{number}")
    assert throttle.wait("10.0.0.1", "alice") > 0
    assert throttle.wait("10.0.0.2", "alice") == 0


def test_a_success_unblocks_the_account_and_is_no_failure_of_the_address():
    throttle = Throttle(lambda: 0.0)
    for number in range(BY_ADDRESS - 1):
        throttle.failed("10.0.0.1", f"account-{number % 5}")
    throttle.failed("10.0.0.1", "alice")
    throttle.succeeded("10.0.0.1", "alice")
    assert throttle.wait("10.0.0.2", "alice") == 0 and throttle.wait("10.0.0.1", "alice") == 0
    throttle.failed("10.0.0.1", "bob")
    assert throttle.wait("10.0.0.1", "alice") > 0


def test_a_success_resets_the_failures_of_its_account():
    throttle = Throttle(lambda: 0.0)
    for number in range(2 * BY_ACCOUNT - 2):
        throttle.failed(f"10.0.0.{number}", "alice")
        if number == BY_ACCOUNT - 2:
            throttle.failed("10.9.9.9", "alice")
            throttle.succeeded("10.9.9.9", "alice")
    assert throttle.wait("10.9.9.9", "alice") == 0


def test_many_accounts_may_sign_in_from_one_address():
    throttle = Throttle(lambda: 0.0)
    for number in range(200):
        assert throttle.wait("10.0.0.1", f"account-{number}") == 0
        throttle.failed("10.0.0.1", f"account-{number}")
        throttle.succeeded("10.0.0.1", f"account-{number}")


def test_memory_is_bounded_for_any_number_of_names():
    throttle = Throttle(lambda: 0.0)
    for number in range(12_000):
        throttle.failed("", f"account-{number}")
        if number % 1000 == 0:
            throttle.failed("", "alice")
    assert len(throttle._failures) <= 10_000
    assert throttle.wait("", "alice") > 0, "an account being guessed stays blocked"
    for _ in range(10):
        throttle.failed("", "bob")
    assert throttle.wait("", "bob") > 0, "a later one is blocked as well"
    throttle.failed("", "x" * 1_000_000)
    assert max(len(name) for _, name in throttle._failures) <= 64


def test_an_ipv6_network_counts_as_one_address():
    throttle = Throttle(lambda: 0.0)
    for number in range(30):
        throttle.failed(f"2001:db8:0:1::{number:x}", f"account-{number}")
    assert throttle.wait("2001:db8:0:1:ffff::1", "another") > 0
    assert throttle.wait("2001:db8:0:2::1", "another") == 0
    assert throttle.wait("fe80::1%eth0", "another") == throttle.wait("127.0.0.1", "another") == 0
