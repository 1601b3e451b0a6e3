"""JSON with half a surrogate pair is read; other text that is no JSON is not."""

import pytest

from tollgate.mapping.json_value import json_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'{"a": "caf\ud83d"}', {"a": "caf\ufffd"}),
        (r'"\uDE00 caf"', "\ufffd caf"),
        (r'"\ude00\ud83d\ude00\ud83d"', "\ufffd\U0001f600\ufffd"),
        (r'"\\ud83d\ud83d"', "\\ud83d\ufffd"),
    ],
)
def test_half_a_surrogate_pair_is_read_as_a_replacement_character(text, value):
    assert json_value(text) == value


@pytest.mark.parametrize(
    "text",
    [
        r'{"a": "\ud83d"',
        r'"\ud8"',
        r"\ud83d",
        r'["\ud83d", NaN]',
        r'["\ud83d", 1e400]',
        r"\u",
        "[" * 10000 + r"\u",
        '"\ud83d"',
    ],
)
def test_what_is_no_json_is_not_repaired(text):
    with pytest.raises(ValueError):
        json_value(text)
