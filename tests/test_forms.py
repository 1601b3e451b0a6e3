from urllib.parse import parse_qsl

import pytest

from tollgate.forms import encode_fields

CASES = {
    "texts that need escaping": ({"q": "a b&c=ü+%\r\n"}, [("q", "a b&c=ü+%\r\n")]),
    "numbers and switches": (
        {"n": 2, "t": 0.5, "on": True, "off": False, "zero": 0},
        [("n", "2"), ("t", "0.5"), ("on", "true"), ("off", "false"), ("zero", "0")],
    ),
    "a list repeats its field": ({"stop": ["x", None, "y"], "none": []}, [("stop", "x"), ("stop", "y")]),
    "an object is JSON": (
        {"o": {"a": [1, "ü"]}, "l": [{"b": 2}, [3]]},
        [("o", '{"a": [1, "ü"]}'), ("l", '{"b": 2}'), ("l", "[3]")],
    ),
    "null is left out, empty text is not": ({"a": None, "b": ""}, [("b", "")]),
    "nothing": ({}, []),
}


@pytest.mark.parametrize("case", CASES)
def test_encoded_fields_decode_to_the_same_values(case: str) -> None:
    fields, wanted = CASES[case]
    assert parse_qsl(encode_fields(fields).decode("ascii"), keep_blank_values=True) == wanted
