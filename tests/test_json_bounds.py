"""How many values JSON text holds, told without reading it."""

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
    ids=["one", "a list", "nested", "marks in texts", "marks in names"],
)
def test_values_are_counted_outside_of_texts_however_the_text_is_cut(monkeypatch, raw, values):
    orjson.loads(raw)
    for size in (1, 2, 3, 5, 1000):
        monkeypatch.setattr(json_bounds, "_PIECE", size)
        assert (too_many(raw, values - 1), too_many(raw, values)) == (True, False)


@pytest.mark.parametrize(
    ("raw", "times"), [(b"", 0), (b"a", 0), (b":", 1), (b'{"a": {"b:": "c:d"}}', 4), (b"::" * 999, 1998)]
)
def test_a_mark_is_counted_wherever_it_stands(raw, times):
    assert count_of(raw, b":") == times
