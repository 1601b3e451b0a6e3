"""A list of many keys shows the first ones; the others are found by searching."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from tollgate.accounts import KeyView
from tollgate.dashboard.key_list import MOST, key_list
from tollgate.ledger import KeyRecord

DAY = datetime(2026, 11, 1, tzinfo=UTC)


def view(number, state="active", name=None):
    created = DAY + timedelta(minutes=number)
    key = KeyRecord(
        id=f"key_{number}", account_id="a", name=name or f"Bot {number}", last_four=f"{number:04}", created_at=created
    )
    return KeyView(key, Decimal(0), state)


MANY = [view(number) for number in range(MOST + 50)]


def ids(found):
    return [each.key.id for each in found.views]


def test_active_keys_come_first_then_the_newest():
    found = key_list([view(1), view(4, "revoked"), view(2, "expired"), view(3)])
    assert ids(found) == ["key_3", "key_1", "key_2", "key_4"]
    assert (found.found, found.total) == (4, 4)


def test_only_the_newest_of_many_keys_are_shown():
    found = key_list(MANY)
    assert (ids(found)[0], ids(found)[-1]) == (f"key_{MOST + 49}", "key_50")
    assert (len(found.views), found.found, found.total) == (MOST, MOST + 50, MOST + 50)


@pytest.mark.parametrize("query", ["bot 7", " BOT 7 ", "0007"])
def test_other_keys_are_found_by_name_or_last_characters(query):
    assert "key_7" not in ids(key_list(MANY))
    assert "key_7" in ids(key_list(MANY, query))


def test_a_query_without_matches_shows_no_key():
    found = key_list(MANY, "x" * 200)
    assert (found.views, found.found, found.total, len(found.search)) == ([], 0, MOST + 50, 100)


def test_the_chosen_key_of_a_form_is_always_listed():
    assert ids(key_list(MANY, chosen="key_7"))[-1] == "key_7"
    assert ids(key_list(MANY, chosen="key_249")).count("key_249") == 1
    assert len(key_list(MANY, chosen="key_none").views) == MOST
