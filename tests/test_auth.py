"""Which key a request uses, and why a request without a valid key is rejected."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tollgate.auth import authenticate, authenticate_optional, key_of
from tollgate.errors import Unauthorized


class Keys:
    """A ledger with some known keys."""

    def __init__(self, *known: str) -> None:
        self.known = known

    def find_key(self, secret: str | None):
        if secret is None:
            raise Unauthorized("missing")
        if secret not in self.known:
            raise Unauthorized("unknown", secret)
        return SimpleNamespace(secret=secret)


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ({"authorization": "Bearer sk-1"}, "sk-1"),
        ({"authorization": "bearer  sk-1 "}, "sk-1"),
        ({"x-api-key": " sk-2 "}, "sk-2"),
        ({"authorization": "Bearer sk-1", "x-api-key": "sk-2"}, "sk-1"),
        ({"authorization": "Basic dTpw", "x-api-key": "sk-2"}, "sk-2"),
        ({"authorization": "Bearer ", "x-api-key": "sk-2"}, "sk-2"),
        ({"authorization": "sk-1"}, None),
        ({"x-api-key": " "}, None),
        ({}, None),
    ],
    ids=[
        "bearer",
        "any case, blanks",
        "api key",
        "both",
        "another scheme",
        "an empty bearer",
        "no scheme",
        "blank",
        "none",
    ],
)
def test_a_key_is_read_from_either_header(headers, key):
    assert key_of(headers) == key


def test_a_placeholder_in_one_header_does_not_hide_the_key_in_the_other():
    assert authenticate(Keys("sk-2"), {"authorization": "Bearer dummy", "x-api-key": "sk-2"}).secret == "sk-2"


@pytest.mark.parametrize(
    ("headers", "reason", "shown"),
    [
        ({}, "missing", ""),
        ({"x-api-key": "sk-9"}, "unknown", "sk-9"),
        ({"authorization": "Bearer sk-8", "x-api-key": "sk-9"}, "unknown", "sk-8"),
    ],
    ids=["none", "a wrong one", "two wrong ones: the bearer's"],
)
def test_a_rejected_key_has_a_reason_and_is_shown(headers, reason, shown):
    with pytest.raises(Unauthorized) as refused:
        authenticate(Keys("sk-1"), headers)
    assert (refused.value.reason, refused.value.shown) == (reason, shown)


def test_a_wrong_key_is_rejected_even_where_none_is_required():
    assert authenticate_optional(Keys("sk-1"), {}) is None
    assert authenticate_optional(Keys("sk-1"), {"x-api-key": "sk-1"}).secret == "sk-1"
    with pytest.raises(Unauthorized):
        authenticate_optional(Keys("sk-1"), {"x-api-key": "sk-9"})
