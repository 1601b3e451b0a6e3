"""Each kind of invalid `input` with its message."""

from decimal import Decimal

import pytest

from tollgate.errors import BadRequest
from tollgate.mapping.images.schema import InputSchema

SCHEMA = InputSchema(
    {
        "type": "object",
        "required": ["prompt"],
        "additionalProperties": False,
        "properties": {
            "prompt": {"type": "string", "minLength": 1, "maxLength": 20},
            "aspect_ratio": {"type": "string", "enum": ["1:1", "16:9"], "default": "1:1"},
            "n": {"type": "integer", "minimum": 1, "maximum": 4, "default": 1},
            "width": {"type": "integer", "multipleOf": 32},
            "mask": {"type": "string", "pattern": "^data:"},
            "strength": {"type": "number", "minimum": Decimal("0.1")},
            "refs": {
                "type": "array",
                "maxItems": 2,
                "items": {"type": "object", "required": ["url"], "properties": {"url": {"type": "string"}}},
            },
            "style": {"type": "object", "properties": {"weight": {"type": "number", "default": 1}}},
        },
    }
)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param("a cat", "input is required and must be an object", id="no object"),
        pytest.param({}, "input.prompt: is required", id="missing"),
        pytest.param({"prompt": 5}, "input.prompt: 5 is not of type string", id="type"),
        pytest.param({"prompt": ""}, "input.prompt: is 0 characters long, the least is 1", id="too short"),
        pytest.param({"prompt": "x" * 21}, "input.prompt: is 21 characters long, the most is 20", id="too long"),
        pytest.param(
            {"prompt": "a", "aspect_ratio": "3:7"}, 'input.aspect_ratio: "3:7" is not one of "1:1", "16:9"', id="enum"
        ),
        pytest.param({"prompt": "a", "mask": "http://x"}, 'input.mask: "http://x" does not match ^data:', id="pattern"),
        pytest.param({"prompt": "a", "n": 0}, "input.n: 0 is less than the minimum of 1", id="minimum"),
        pytest.param({"prompt": "a", "n": 9}, "input.n: 9 is greater than the maximum of 4", id="maximum"),
        pytest.param({"prompt": "a", "n": True}, "input.n: true is not of type integer", id="a boolean is no integer"),
        pytest.param({"prompt": "a", "width": 33}, "input.width: 33 is not a multiple of 32", id="multiple"),
        pytest.param(
            {"prompt": "a", "strength": 0.05},
            "input.strength: 0.05 is less than the minimum of 0.1",
            id="decimal bound",
        ),
        pytest.param({"prompt": "a", "refs": [{}]}, "input.refs[0].url: is required", id="inside a list"),
        pytest.param(
            {"prompt": "a", "refs": [{"url": "x"}] * 3}, "input.refs: has 3 entries, the most is 2", id="too many"
        ),
        pytest.param({"prompt": "a", "colour": "red"}, "input: has unknown properties: colour", id="unknown"),
    ],
)
def test_an_invalid_input_is_rejected_with_its_place(given, message):
    with pytest.raises(BadRequest) as raised:
        SCHEMA.admit(given)
    assert raised.value.message == message
    assert not SCHEMA.admits(given)


def test_defaults_are_filled_in_a_copy_of_the_input():
    given = {"prompt": "a", "style": {}}
    assert SCHEMA.admit(given) == {"prompt": "a", "aspect_ratio": "1:1", "n": 1, "style": {"weight": 1}}
    assert given == {"prompt": "a", "style": {}}


def test_a_huge_value_is_shortened_in_the_message():
    with pytest.raises(BadRequest) as raised:
        SCHEMA.admit({"prompt": "a", "aspect_ratio": "x" * 1_000_000})
    assert len(raised.value.message) < 400


def test_alternatives_are_named():
    schema = InputSchema({"type": "object", "oneOf": [{"required": ["text_prompt"]}, {"required": ["json_prompt"]}]})
    assert schema.admit({"text_prompt": "a"}) == {"text_prompt": "a"}
    for given in ({}, {"text_prompt": "a", "json_prompt": {}}):
        with pytest.raises(BadRequest, match="input: wants exactly one of text_prompt, json_prompt"):
            schema.admit(given)
