"""JSON with half a surrogate pair and with large numbers is read; other text that is no JSON is not."""

import orjson
import pytest

from tollgate.mapping.json_value import json_value, with_digits


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


@pytest.mark.parametrize("digits", ["18446744073709551616", "-9223372036854775809", "1" + 300 * "0"])
def test_whole_numbers_beyond_64_bits_keep_their_digits(digits):
    text = '{"a":[' + digits + ",1e+30,18446744073709551615]}"
    assert orjson.dumps(json_value(text)).decode() == text
    assert json_value(text)["a"][1:] == [1e30, 18446744073709551615]


def test_a_large_number_that_is_nested_too_deeply_for_its_digits_is_read():
    assert json_value("[" * 1000 + "100000000000000000000" + "]" * 1000)


def test_a_large_number_beside_half_a_surrogate_pair_stays_a_float():
    read = {"a": 1e20, "b": "\ufffd"}
    assert with_digits(read, b'{"a": 100000000000000000001, "b": "\\ud800"}') is read
