"""`request.asked_model`: which clients of the messages format receive the model name they requested."""

import pytest

from tollgate.config.load import read_text
from tollgate.errors import ConfigErrors
from tollgate.mapping import CompiledMapping, Context, compile_mapping, response_from_hub, stream_from_hub

ANSWERING = """response: {from_hub: {model: $.model}}
stream: {from_hub: {start: [{model: $run.model}], finish: []}}
"""


def compiled(condition: object, name: str = "messages", more: str = "") -> CompiledMapping:
    return compile_mapping(read_text(f"mapping: {name}\nrequest:\n  asked_model: {condition}\n{more}", "own.yaml"))


@pytest.mark.parametrize(("agent", "wanted"), [("old/1", True), ("new/1", False), (None, False)])
def test_the_condition_reads_the_request_and_the_headers(agent: str | None, wanted: bool):
    context = Context()
    if agent:
        context.headers = {"user-agent": agent}
    mapping = compiled("$.model != 'm' and $headers['user-agent'] | starts('old/')")
    assert mapping.sections["request.asked_model"]({"model": "n"}, context) is wanted
    assert mapping.sections["request.asked_model"]({"model": "m"}, context) is False


def test_answers_contain_the_requested_model_name():
    mapping, context = compiled("true", more=ANSWERING), Context({"upstream": "u"})
    hub = {"id": "i", "model": "u-2026", "created": 1, "parts": [], "stop": "end"}
    assert response_from_hub(mapping, hub, context) == {"model": "u-2026"}
    assert stream_from_hub(mapping, hub, context)[0][1] == {"model": "u-2026"}
    context.asked_model = "mine"
    assert response_from_hub(mapping, hub, context) == {"model": "mine"}
    assert stream_from_hub(mapping, hub, context)[0][1] == {"model": "mine"}


@pytest.mark.parametrize(
    ("condition", "name", "message"),
    [
        ("$header.x == 'a'", "messages", "own.yaml:3:16: unknown name `$header` (did you mean `$headers`?)"),
        ("true", "chat", "own.yaml:3:3: `asked_model` is for formats whose streams name the model once: messages"),
    ],
)
def test_a_config_error_names_its_place(condition: str, name: str, message: str):
    with pytest.raises(ConfigErrors) as caught:
        compiled(condition, name)
    assert message in str(caught.value)
