"""How many values a JSON text contains, counted without parsing it."""

import orjson
import pytest

from tollgate import json_bounds
from tollgate.json_bounds import count_of, too_many


@pytest.mark.parametrize(
    ("raw", "values"),
    [
        (b"1", 1),
        (b"[1,2,3]", 4),
        (b'{"a": [1, {"b": "c"}]}', 5),
        (b'["a,b", "[{", "\\",\\\\", "\\\\"]', 5),
        (b'{"[,{": "\\\\\\"", ",": 2}', 3),
    ],
    ids=["one", "a list", "nested", "punctuation in strings", "punctuation in names"],
)
def test_values_are_counted_outside_strings_at_any_piece_boundary(monkeypatch, raw, values):
    orjson.loads(raw)
    for size in (1, 2, 3, 5, 1000):
        monkeypatch.setattr(json_bounds, "_PIECE", size)
        assert (too_many(raw, values - 1), too_many(raw, values)) == (True, False)


@pytest.mark.parametrize(
    ("raw", "times"),
    [
        (b"", 0),
        (b"a", 0),
        (b":", 1),
        (b'{"a": {"b:": "c:d"}}', 4),
        (b"::" * 999, 1998),
        *(((b":" + b"a" * rest) * 999, 999) for rest in (14, 15, 16, 17)),
    ],
)
def test_every_occurrence_of_a_byte_is_counted(raw, times):
    assert count_of(raw, b":") == times
