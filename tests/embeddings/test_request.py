"""tollgate.embeddings.request: the shapes of `input`, and the message for each invalid field."""

import pytest

from tollgate.embeddings.request import check_count, read_request
from tollgate.errors import BadRequest


@pytest.mark.parametrize(
    ("given", "items"),
    [("a", ["a"]), ("", [""]), (["a", "b"], ["a", "b"]), ([1, 2], [[1, 2]]), ([[1], [2, 3]], [[1], [2, 3]])],
    ids=["text", "empty text", "texts", "tokens", "token lists"],
)
def test_inputs_of_every_shape_become_items(given, items):
    request = read_request({"model": "m", "input": given})
    assert request.items == items
    assert request.native(request.items) is request.body


def test_a_part_of_the_inputs_keeps_every_other_field():
    request = read_request(
        {"model": "m", "input": ["a", "b", "c"], "dimensions": 8, "user": "u", "input_type": "search_query", "own": 1}
    )
    assert request.native(["c"]) == {
        "model": "m",
        "input": ["c"],
        "dimensions": 8,
        "user": "u",
        "input_type": "search_query",
        "own": 1,
    }


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"input": "a"}, "model is required and must be text"),
        ({"model": "m"}, "input is required"),
        ({"model": "m", "input": None}, "input is required"),
        ({"model": "m", "input": []}, "input is an empty list"),
        ({"model": "m", "input": [[]]}, "input[0] is an empty list"),
        ({"model": "m", "input": 5}, "input is 5, wanted text, a list of texts, token ids or lists of token ids"),
        ({"model": "m", "input": ["a", 5]}, "input[1] is 5, wanted text like the entries before it"),
        ({"model": "m", "input": [1, "a"]}, 'input[1] is "a", wanted text or a token id'),
        ({"model": "m", "input": [1, -2]}, "input[1] is -2, wanted text or a token id"),
        ({"model": "m", "input": [1, True]}, "input[1] is true, wanted text or a token id"),
        ({"model": "m", "input": [None]}, "input[0] is null, wanted text or a token id"),
        ({"model": "m", "input": [{"text": "a"}]}, 'input[0] is {"text":"a"}, wanted text or a token id'),
        ({"model": "m", "input": [[1], "a"]}, 'input[1] is "a", wanted a list of token ids like the entries before it'),
        ({"model": "m", "input": "a", "encoding_format": "int8"}, 'encoding_format is "int8", wanted float or base64'),
        ({"model": "m", "input": "a", "encoding_format": 3}, "encoding_format is 3, wanted float or base64"),
        ({"model": "m", "input": "a", "dimensions": 0}, "dimensions is 0, wanted a positive integer"),
        ({"model": "m", "input": "a", "dimensions": "8"}, 'dimensions is "8", wanted a positive integer'),
        ({"model": "m", "input": "a", "dimensions": True}, "dimensions is true, wanted a positive integer"),
        ({"model": "m", "input": "a", "user": 7}, "user is 7, wanted text"),
        ({"model": "m", "input": "a", "user": [None]}, "user is [null], wanted text"),
    ],
)
def test_an_invalid_field_is_rejected_by_name(body, message):
    with pytest.raises(BadRequest) as raised:
        read_request(body)
    assert raised.value.message == message


def test_more_inputs_than_the_model_accepts_are_rejected():
    with pytest.raises(BadRequest, match="input has 3 entries, the most for this model is 2"):
        check_count(["a"] * 3, 2)
