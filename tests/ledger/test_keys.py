"""The format of secrets: unguessable, verifiable offline, recognizable by scanners, masked when shown."""

from __future__ import annotations

import re
import string

import pytest

from tollgate.ledger import keys


def test_a_secret_has_256_random_bits_and_a_checksum() -> None:
    secret = keys.mint()
    assert re.fullmatch(keys.SCAN_PATTERN, secret)
    assert len(secret) == len("sk-tg-") + 43 + 6
    assert keys.is_well_formed(secret)


@pytest.mark.parametrize(
    "secret",
    [
        "sk-tg-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA2vRvZi",
        "sk-tg-tollgate-_tollgate-_tollgate-_tollgate-_xyz3G8knc",
    ],
)
def test_a_secret_of_an_earlier_version_stays_well_formed(secret: str) -> None:
    assert keys.is_well_formed(secret)


def test_secrets_are_unique() -> None:
    assert len({keys.mint() for _ in range(1000)}) == 1000


def test_any_single_typing_error_is_detected() -> None:
    secret = keys.mint()
    for position in range(len(keys.PREFIX), len(secret)):
        for wrong in string.ascii_letters + string.digits + "-_":
            typed = secret[:position] + wrong + secret[position + 1 :]
            assert keys.is_well_formed(typed) == (typed == secret)


@pytest.mark.parametrize(
    "text", ["", "sk-tg-", "sk-" + "a" * 52, "Sk-tg-" + "a" * 49, "sk-tg-" + "é" * 49, "sk-tg-" + "a" * 5000]
)
def test_foreign_text_is_not_well_formed(text: str) -> None:
    assert not keys.is_well_formed(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sk-tg-" + "a" * 45 + "WXYZ", "sk-tg-...WXYZ"),
        ("sk-tg-abcdeWXYZ", "sk-tg-...WXYZ"),
        ("sk-proj-something-long-1234", "...1234"),
        ("twelve--1234", "...1234"),
        ("eleven-1234", "..."),
        ("short", "..."),
        ("", "..."),
    ],
)
def test_a_mask_shows_the_end_of_a_long_text_only(text: str, shown: str) -> None:
    assert keys.mask(text) == shown
