"""The functions that generated code calls; whole expressions are tested in `test_operators.py`."""

import copy

import pytest

from tollgate.mapping import values
from tollgate.mapping.failures import Fault


@pytest.mark.parametrize(
    ("left", "right", "is_less", "is_less_or_same"),
    [
        (1, 2, True, True),
        (2, 2.0, False, True),
        (2.5, 2, False, False),
        ("a", "b", True, True),
        ("b", "b", False, True),
        ("1", 2, False, False),
        (1, "2", False, False),
        (False, 1, False, False),
        (0, True, False, False),
        (None, 1, False, False),
        (1, None, False, False),
        ([1], [2], False, False),
    ],
)
def test_numbers_compare_with_numbers_and_strings_with_strings(left, right, is_less, is_less_or_same):
    assert (values.less(left, right), values.less_or_same(left, right)) == (is_less, is_less_or_same)


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "divide_whole", "remainder"])
def test_arithmetic_with_an_absent_value_is_absent_and_with_a_non_number_fails(name):
    compute = getattr(values, name)
    assert compute(None, 1) is compute(1, None) is compute(None, None) is None
    for left, right in ((1, "1"), ("1", 1), (True, 1), (1, {})):
        with pytest.raises(Fault, match="cannot"):
            compute(left, right)


@pytest.mark.parametrize("name", ["divide", "divide_whole", "remainder"])
def test_a_division_by_zero_is_absent(name):
    compute = getattr(values, name)
    assert (compute(7, 0), compute(7, 0.0), compute(8, 4)) == (None, None, 8 % 4 if name == "remainder" else 2)


@pytest.mark.parametrize(
    ("name", "left", "right"),
    [("add", 1e308, 1e308), ("multiply", 1e200, 1e200), ("divide", 1e200, 1e-200), ("divide_whole", 1e200, 1e-200)],
)
def test_a_result_that_json_cannot_write_fails_and_does_not_become_null(name, left, right):
    with pytest.raises(Fault, match="larger than numbers can be"):
        getattr(values, name)(left, right)


@pytest.mark.parametrize(
    ("value", "start", "stop", "part"),
    [
        ([1, 2, 3], 0, 1, [1]),
        ([1, 2, 3], 1, None, [2, 3]),
        ([1, 2, 3], None, -1, [1, 2]),
        ([1], 1, None, None),
        ("abc", 1, 2, "b"),
        ("abc", 3, None, ""),
        ([1, 2], "1", True, [1, 2]),
        ({"a": 1}, 0, 1, None),
        (None, 0, 1, None),
    ],
)
def test_a_slice_of_a_list_or_a_string(value, start, stop, part):
    assert values.part_of(value, start, stop) == part


def test_adjacent_objects_with_one_key_are_joined_and_the_input_is_unchanged():
    given = [
        {"role": "user", "parts": [1], "name": "first"},
        {"role": "user", "parts": [2], "name": "second", "marks": ["m"]},
        {"role": "user", "parts": [3], "marks": ["n"]},
        {"role": "assistant", "parts": [4]},
        "no object",
        {"role": "user", "parts": [5]},
        {"parts": [6]},
        {"parts": [7]},
    ]
    before = copy.deepcopy(given)
    assert values.join_by(given, "role") == [
        {"role": "user", "parts": [1, 2, 3], "name": "first", "marks": ["m", "n"]},
        {"role": "assistant", "parts": [4]},
        "no object",
        {"role": "user", "parts": [5]},
        {"parts": [6]},
        {"parts": [7]},
    ]
    assert given == before
