"""Everything the sandbox sends for chat, responses and embeddings conforms to the published schema."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import jsonschema
import orjson
import pytest
from sandbox_talk import SCHEMAS, exchange

TOOLS = [
    {"type": "function", "name": "get", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}},
    {"type": "custom", "name": "free"},
]
CHAT_TOOLS = [
    {"type": "function", "function": {"name": "get", "parameters": {"type": "object"}}},
    {"type": "custom", "custom": {"name": "free"}},
]


@cache
def published() -> dict:
    if not SCHEMAS.exists():
        pytest.skip(f"the published schema is not beside the repository ({SCHEMAS.name})")
    return _plain(orjson.loads(SCHEMAS.read_bytes())["components"]["schemas"])


def _plain(node):
    """The document as JSON Schema: `nullable` becomes a null type, and `oneOf`, whose members overlap, `anyOf`."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    made = {
        ("anyOf" if k == "oneOf" else k): _plain(v)
        for k, v in node.items()
        if k not in ("discriminator", "example", "examples", "default")
    }
    return {"anyOf": [made, {"type": "null"}]} if made.pop("nullable", None) is True else made


def _is_known_deviation(error) -> bool:
    """The recorded live API deviates from its own schema, and the sandbox follows it: `user` and an unfinished `usage`
    are null, and a stream may contain custom tool calls."""
    where = error.json_path.rpartition(".")[2]
    return (where in ("user", "usage") and error.instance is None) or (where == "type" and error.instance == "custom")


@cache
def checker(name: str) -> Callable[[object], None]:
    schema = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": published()}}
    validator = jsonschema.Draft202012Validator(schema)

    def check(value: object) -> None:
        errors = [
            f"{e.json_path}: {e.message[:300]}" for e in validator.iter_errors(value) if not _is_known_deviation(e)
        ]
        assert not errors, errors

    return check


EVENTS = {
    "response.created": "ResponseCreatedEvent",
    "response.in_progress": "ResponseInProgressEvent",
    "response.completed": "ResponseCompletedEvent",
    "response.incomplete": "ResponseIncompleteEvent",
    "response.failed": "ResponseFailedEvent",
    "error": "ResponseErrorEvent",
    "response.output_item.added": "ResponseOutputItemAddedEvent",
    "response.output_item.done": "ResponseOutputItemDoneEvent",
    "response.content_part.added": "ResponseContentPartAddedEvent",
    "response.content_part.done": "ResponseContentPartDoneEvent",
    "response.output_text.delta": "ResponseTextDeltaEvent",
    "response.output_text.done": "ResponseTextDoneEvent",
    "response.refusal.delta": "ResponseRefusalDeltaEvent",
    "response.refusal.done": "ResponseRefusalDoneEvent",
    "response.function_call_arguments.delta": "ResponseFunctionCallArgumentsDeltaEvent",
    "response.function_call_arguments.done": "ResponseFunctionCallArgumentsDoneEvent",
    "response.custom_tool_call_input.delta": "ResponseCustomToolCallInputDeltaEvent",
    "response.custom_tool_call_input.done": "ResponseCustomToolCallInputDoneEvent",
    "response.reasoning_summary_part.added": "ResponseReasoningSummaryPartAddedEvent",
    "response.reasoning_summary_part.done": "ResponseReasoningSummaryPartDoneEvent",
    "response.reasoning_summary_text.delta": "ResponseReasoningSummaryTextDeltaEvent",
    "response.reasoning_summary_text.done": "ResponseReasoningSummaryTextDoneEvent",
}

RESPONSES = {
    "text": ("hi", {}),
    "reasoning": (
        "hi",
        {
            "model": "reasoner",
            "reasoning": {"summary": "auto", "effort": "low"},
            "include": ["reasoning.encrypted_content"],
        },
    ),
    "tools": ("hi [[tools=2]] [[preface]]", {"tools": TOOLS, "tool_choice": {"type": "function", "name": "get"}}),
    "custom": ("[[tool=free]]", {"tools": TOOLS}),
    "incomplete": ("a b c d e", {"max_output_tokens": 3}),
    "filtered": ("[[finish=content_filter]]", {}),
    "refusal": ("[[refuse]]", {}),
    "empty": ("[[empty]]", {}),
    "error": ("[[stream-error=5]]", {}),
    "logprobs": ("hi", {"include": ["message.output_text.logprobs"], "top_logprobs": 2}),
    "settings": (
        "hi",
        {
            "instructions": "be short",
            "temperature": 0.2,
            "metadata": {"a": "b"},
            "user": "u",
            "prompt_cache_key": "k",
            "truncation": "auto",
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}, "verbosity": "low"},
        },
    ),
}


@pytest.mark.parametrize(("text", "more"), RESPONSES.values(), ids=RESPONSES.keys())
async def test_responses_objects_and_events_conform_to_the_schema(send, text, more):
    if text != "[[stream-error=5]]":
        checker("Response")((await send("responses", text, **more)).json)
    received = await send("responses", text, stream=True, **more)
    for name, data in received.events:
        assert name == data["type"]
        checker(EVENTS[name])(data)


CHAT = {
    "text": ("hi", {}),
    "tools": ("hi [[tools=2]] [[preface]]", {"tools": CHAT_TOOLS}),
    "choices": ("hi", {"n": 2}),
    "refusal": ("[[refuse]]", {}),
    "reasoning": ("hi", {"model": "reasoner"}),
    "logprobs": ("hi", {"logprobs": True, "top_logprobs": 3}),
    "length": ("a b c d", {"max_tokens": 2}),
    "filtered": ("[[finish=content_filter]]", {}),
    "empty": ("[[empty]]", {}),
    "no usage": ("[[no-usage]]", {}),
}


@pytest.mark.parametrize(("text", "more"), CHAT.values(), ids=CHAT.keys())
async def test_chat_objects_and_chunks_conform_to_the_schema(send, text, more):
    checker("CreateChatCompletionResponse")((await send("chat", text, **more)).json)
    for options in ({}, {"stream_options": {"include_usage": True}}):
        for chunk in (await send("chat", text, stream=True, **more, **options)).objects:
            checker("CreateChatCompletionStreamResponse")(chunk)


async def test_embeddings_models_and_errors_conform_to_the_schema(sandbox):
    checker("CreateEmbeddingResponse")(
        (await exchange(sandbox, "/v1/embeddings", {"model": "embed", "input": ["a", "b"]})).json
    )
    checker("ListModelsResponse")((await exchange(sandbox, "/v1/models", None)).json)
    checker("ImagesResponse")(
        (await exchange(sandbox, "/v1/images/generations", {"model": "draw", "prompt": "x"})).json
    )
    checker("ErrorResponse")((await exchange(sandbox, "/v1/chat/completions", {})).json)
