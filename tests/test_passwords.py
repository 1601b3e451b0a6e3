"""Passwords are stored as slow hashes."""

import pytest

from tollgate.passwords import LONGEST, NO_PASSWORD, SHORTEST, check_password, hash_password


def test_only_the_right_password_matches_its_hash():
    stored = hash_password("correct horse battery")
    assert stored.startswith("scrypt$15$8$1$") and "correct" not in stored
    assert check_password("correct horse battery", stored)
    assert not check_password("correct horse batterz", stored)
    assert hash_password("correct horse battery") != stored


@pytest.mark.parametrize("stored", ["", NO_PASSWORD, "md5$abc"], ids=["none", "nobody", "foreign"])
def test_no_password_matches_an_account_without_one(stored):
    assert not check_password("", stored)
    assert not check_password("anything at all", stored)


@pytest.mark.parametrize("password", ["", "x" * (SHORTEST - 1), "x" * (LONGEST + 1)], ids=["empty", "short", "long"])
def test_a_password_has_minimum_and_maximum_length(password):
    with pytest.raises(ValueError, match="wanted 10 to 200"):
        hash_password(password)


def test_a_password_may_contain_any_character():
    assert check_password("пароль \ud800 密码", hash_password("пароль \ud800 密码"))
