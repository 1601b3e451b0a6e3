"""Query parameters are appended to those that a URL has."""

import pytest

from tollgate.addresses import with_query


@pytest.mark.parametrize(
    ("address", "query", "wanted"),
    [
        ("https://x/a", {"b": "c d", "e": None}, "https://x/a?b=c%20d"),
        ("https://x/a?z=1", {"b": "c&d", "e": 2}, "https://x/a?z=1&b=c%26d&e=2"),
        ("https://x/a?z=1", "b=c%20d", "https://x/a?z=1&b=c%20d"),
        ("https://x/a", {"e": None}, "https://x/a"),
        ("https://x/a", "", "https://x/a"),
    ],
)
def test_query_parameters_are_appended_to_a_url(address, query, wanted):
    assert with_query(address, query) == wanted
