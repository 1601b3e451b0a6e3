"""An unknown field is reported wherever it appears in a client's request: it is put into every object of every example,
one at a time."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from mappings.support import mapping
from tollgate.config.load import Map, plain

CARRIED = (
    "cache_control",
    "schema",
    "parameters",
    "input_schema",
    "arguments",
    "input",
    "action",
    "operation",
    "prompt_cache_breakpoint",
)
"""Fields whose value is passed on unchanged, with unknown fields in it."""
WHOLE = {
    "chat": {
        "cache_control ephemeral",  # passed on unchanged, as on a part
        "tools[] web_search",
        "tools[].custom.format text",  # of our own, or a format that is passed on unchanged
        "metadata None",
        "tool_choice web_search",  # reported as lost by its type
        "response_format xml",
        "response_format None",  # without a type, reported as lost as a whole
        "response_format.json_schema None",
        "response_format.value object",  # a schema, passed on unchanged
        "web_search_options None",  # reported as lost with everything in it
        "messages[].content[] reference",  # reported as lost by its type
        "messages[].images[] hologram",  # the same
        "messages[].content[] None",  # not a known part: sent as JSON text
        "messages[].reasoning_details[] reasoning.encrypted",
        "messages[].reasoning_details[] reasoning.summary",
        "messages[].reasoning_details[] reasoning.text",  # reasoning is joined from adjacent details
        "messages[].provider_specific_fields.reasoning_details[] reasoning.text",  # the same, where LiteLLM stores it
        "messages[].content[].reasoning_details[] reasoning.text",  # and where openai-agents for JavaScript does,
        "messages[].content[].thinking_blocks[] thinking",
        "messages[].content[].tool_calls[] function",  # which also puts copies of these and of the calls there
        "messages[].content[].tool_calls[].function None",
    },
    "responses": {
        "tools[] web_search",
        "tools[].format text",
        "tool_choice web_search",
        "text.format xml",
        "input[].content[] None",
        "input[].content[] hologram",
        "input[].content[] encrypted_content",  # reported as lost as a whole
        "input[] web_search_call",
        "input[] tool_search_call",  # one that the provider ran: reported as lost by its type
        "input[] context_compaction",  # reported as lost by its type
        "input[] image_generation_call",  # how the image was made, beside the image
        "tools[].tools[] mcp",
        "tools[].tools[].format text",
        "input[].tools[] mcp",
        "input[].output[] None",  # the output of a shell: sent as JSON text
        "input[].output[].outcome exit",
    },
    "messages": {
        "cache_control ephemeral",
        "tools[] web_search_20250305",
        "messages[].content[] server_tool_use",
        "messages[].content[] tool_addition",  # reported as lost by its type
        "messages[].content[].tool tool_definition",
        "messages[].content[].tool.definition None",
        "messages[].content[].content[] tool_addition",  # the same in a block that is a system message
        "messages[].content[].content[].tool tool_definition",
        "messages[].content[].content[].tool.definition None",
        "messages[].content[].citations[] char_location",
        "messages[].content[] container_upload",
        "messages[].content[] fallback",
        "tool_choice some",
        "output_config.format xml",
        "output_config.format None",  # without a type, reported as lost as a whole
    },
}
"""Fields that are passed on with everything in them, and the kind of object there."""


def objects(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict):
        yield path
        for key, below in value.items():
            yield from objects(below, (*path, key))
    elif isinstance(value, list):
        for number, below in enumerate(value):
            yield from objects(below, (*path, number))


def at(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def place_of(path: tuple[str | int, ...]) -> str:
    return ".".join("[]" if isinstance(step, int) else step for step in path).replace(".[]", "[]")


@pytest.mark.parametrize("name", WHOLE)
def test_an_unknown_field_is_reported(name: str) -> None:
    file, hidden = mapping(name), set()
    assert file.examples is not None
    for example in file.examples.items:
        assert isinstance(example, Map)
        if example.get("refused") or plain(example.entries["of"]) != "request.to_hub":
            continue
        given = plain(example.entries["given"], floats=True)
        for path in objects(given):
            body = copy.deepcopy(given)
            at(body, path)["unknown_field"] = 1
            named = file.walkers["request.to_hub"].lost(body)
            if any("unknown_field" in found or place_of(path).startswith(found) for found in named) or {*path[1:]} & {
                *CARRIED
            }:
                continue
            found = at(given, path)
            hidden.add(f"{place_of(path)} {found.get('type')}")
    assert hidden == WHOLE[name]
