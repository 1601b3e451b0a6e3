"""Fields that Gemini, Cohere and Ollama do not have are reported wherever they are, also beside an explicit loss."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import orjson
import pytest

from mappings.support import FILES, context, mapping
from tollgate.mapping import compile_mapping, convert_request, convert_response, loss
from tollgate.mapping.example import Example, run_each
from tollgate.mapping.examples import FORM

UPSTREAMS = ("gemini", "cohere", "ollama")
PLACES: dict[str, tuple[tuple[str | int, ...], str]] = {
    "instructions": (("system", 0), "system[].cache_control"),
    "a tool": (("tools", 1), "tools[].cache_control"),
    "text": (("messages", 0, "content", 0), "messages[].content[].cache_control"),
    "a document": (("messages", 0, "content", 1), "messages[].content[].cache_control"),
    "an earlier answer": (("messages", 1, "content", 0), "messages[].content[].cache_control"),
    "a call": (("messages", 1, "content", 1), "messages[].content[].cache_control"),
    "a result": (("messages", 2, "content", 0), "messages[].content[].cache_control"),
    "text of a result": (("messages", 2, "content", 0, "content", 0), "messages[].content[].content[].cache_control"),
}


def request() -> dict[str, Any]:
    return {
        "model": "m",
        "max_tokens": 10,
        "system": [{"type": "text", "text": "Be brief."}],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}, {"name": "g", "input_schema": {"type": "object"}}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Hi"},
                    {
                        "type": "document",
                        "source": {"type": "text", "media_type": "text/plain", "data": "words"},
                        "title": "T",
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "So."}, {"type": "tool_use", "id": "t", "name": "f", "input": {}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "ok"}]}],
            },
        ],
    }


def lost(upstream: str, body: dict[str, Any]) -> list[str]:
    return convert_request(mapping("messages"), mapping(upstream), body, context()).lost


def at(body: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        body = body[step]
    return body


@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_an_ordinary_request_loses_nothing(upstream: str) -> None:
    assert lost(upstream, request()) == []


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_a_cache_breakpoint_is_reported_wherever_it_is(upstream: str, place: str) -> None:
    body, (path, name) = request(), PLACES[place]
    at(body, path)["cache_control"] = {"type": "ephemeral"}
    assert lost(upstream, body) == [name]


@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_an_explicit_loss_hides_no_other(upstream: str) -> None:
    body = request()
    body["tools"].append({"type": "web_search_20250305", "name": "web_search"})
    at(body, PLACES["a document"][0])["citations"] = {"enabled": True}
    at(body, PLACES["a document"][0])["cache_control"] = {"type": "ephemeral"}
    at(body, PLACES["a result"][0])["is_error"] = True
    at(body, PLACES["a tool"][0])["strict"] = True
    named = lost(upstream, body)
    hidden = "messages[].content[].cache_control"
    assert {"hosted tool web_search_20250305", "citations of documents", hidden} <= set(named)
    assert ("error flag of a tool result" in named) == (upstream != "gemini")
    assert ("strict of tool g" in named) == (upstream != "cohere")


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "web_search"}], ids=["any", "by name"])
@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_no_tool_is_required_if_none_is_sent(upstream: str, choice: dict[str, str]) -> None:
    body = {**request(), "tools": [{"type": "web_search_20250305", "name": "web_search"}], "tool_choice": choice}
    done = convert_request(mapping("messages"), mapping(upstream), body, context())
    assert not {"tools", "tool_choice", "toolConfig"} & set(done.body)
    assert any(words.startswith("tool_choice") for words in done.lost)


@pytest.mark.parametrize("source", ["chat", "responses", "messages"])
def test_an_empty_tool_result_reaches_gemini(source: str) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "chat": {
            "messages": [
                {"role": "user", "content": "Hi"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                },
                {"role": "tool", "tool_call_id": "t", "content": [{"type": "text", "text": ""}]},
            ]
        },
        "responses": {
            "input": [
                {"role": "user", "content": "Hi"},
                {"type": "function_call", "call_id": "t", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "t", "output": [{"type": "input_text", "text": ""}]},
            ]
        },
        "messages": {
            "max_tokens": 9,
            "messages": [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": ""}]}],
                },
            ],
        },
    }
    sent = convert_request(mapping(source), mapping("gemini"), {"model": "m", **bodies[source]}, context()).body
    assert sent["contents"][-1]["parts"] == [{"functionResponse": {"id": "t", "name": "f", "response": {"output": ""}}}]


@pytest.mark.parametrize("client", ["messages", "responses"])
@pytest.mark.parametrize(
    ("audio", "named"),
    [
        ({"data": "AAAA", "transcript": "spoken"}, ["audio of the answer"]),
        ({"data": "AAAA", "transcript": ""}, ["audio of the answer"]),
    ],
)
def test_the_audio_of_an_answer_is_reported_even_if_its_transcript_is_carried(
    client: str, audio: dict[str, Any], named: list[str]
) -> None:
    message = {"role": "assistant", "content": None, "audio": {"id": "audio_1", "expires_at": 5, **audio}}
    answer = {
        "id": "x",
        "created": 5,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }
    made = convert_response(mapping("chat"), mapping(client), answer, context())
    assert made.lost == named
    assert ("spoken" in str(made.body)) == bool(audio["transcript"])


@pytest.mark.parametrize("upstream", ["chat", "responses", "gemini", "bedrock", "cohere", "ollama"])
def test_the_context_of_a_document_is_told_before_its_text(upstream: str) -> None:
    body = request()
    document = at(body, PLACES["a document"][0])
    document["context"] = "from a book"
    blocks = [{"type": "text", "text": "page"}]
    other = {"type": "document", "title": "U", "context": "of two", "source": {"type": "content", "content": blocks}}
    body["messages"][2]["content"][0]["content"] += [document, other]
    done = convert_request(mapping("messages"), mapping(upstream), body, context())
    sent = str(done.body)
    assert done.lost == []
    assert sent.count(repr("T\n\nfrom a book\n\nwords")[1:-1]) == 2
    assert sent.index("U") < sent.index("of two") < sent.index("page")


@pytest.mark.parametrize("upstream", ["chat", "responses", "gemini"])
def test_the_context_of_other_files_is_reported_as_lost(upstream: str) -> None:
    body = request()
    at(body, PLACES["a document"][0]).update(source=PDF, context="from a book")
    assert "context of a document" in lost(upstream, body)


def test_encrypted_reasoning_of_another_provider_is_reported() -> None:
    items = [
        {"role": "user", "content": "Hi"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "ENC"},
        {"role": "user", "content": "go"},
    ]
    made = convert_request(mapping("responses"), mapping("chat"), {"model": "m", "input": items}, context())
    assert made.lost == ["reasoning of earlier turns"]


def test_the_title_and_the_source_of_a_search_result_are_sent() -> None:
    body = request()
    body["messages"][2]["content"][0]["content"] = [
        {"type": "search_result", "source": "https://s", "title": "T", "content": [{"type": "text", "text": "found"}]}
    ]
    sent = convert_request(mapping("messages"), mapping("gemini"), body, context()).body
    assert sent["contents"][2]["parts"][0]["functionResponse"]["response"] == {"output": "T (https://s)\n\nfound"}


@pytest.mark.parametrize("client", ["messages", "responses"])
def test_the_signature_of_a_call_without_reasoning_is_reported(client: str) -> None:
    call = {
        "id": "c",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
        "extra_content": {"google": {"thought_signature": "S"}},
    }
    answer = {
        "id": "x",
        "created": 5,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": None, "tool_calls": [call]},
                "finish_reason": "tool_calls",
            }
        ],
    }
    assert convert_response(mapping("chat"), mapping(client), answer, context()).lost == ["signature of a call"]
    parts = [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "S"}]
    answer = {
        "responseId": "x",
        "modelVersion": "m",
        "candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}],
    }
    assert convert_response(mapping("gemini"), mapping(client), answer, context()).lost == []


CITED = {"type": "char_location", "cited_text": "words", "document_index": 0, "document_title": "title"}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}
FORMAT = {"name": "one", "description": "An answer.", "schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("client", "body", "upstream", "named"),
    [
        ("messages", {"system": [{"text": "Be brief.", "type": "text", "citations": [CITED]}]}, "responses",
         "citations in the instructions"),
        ("messages", {"system": [{"text": "Be brief.", "type": "text", "citations": [CITED]}]}, "chat",
         "system[].citations"),
        ("messages", {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "citations": [CITED]}]}]},
         "gemini", "messages[].content[].citations"),
        ("messages", {"messages": [{"role": "user", "content": [
            {"type": "document", "source": PDF, "citations": {"enabled": True}}]}]}, "chat", "citations of documents"),
        ("messages", {"messages": [{"role": "user", "content": [
            {"type": "document", "source": {"type": "url", "url": "https://x/a.pdf"}, "title": "report"}]}]},
         "responses", "name of a file"),
        ("chat", {"messages": [{"role": "user", "content": [
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}}]}]},
         "gemini", "name of a file"),
        ("chat", {"response_format": {"type": "json_schema", "json_schema": FORMAT}}, "ollama",
         "response_format.json_schema.description"),
        ("messages", {"stop_sequences": ["STOP"]}, "responses", "stop_sequences"),
        ("messages", {"thinking": {"type": "enabled", "budget_tokens": 1500}, "max_tokens": 2000}, "ollama",
         "thinking.budget_tokens"),
    ],
)  # fmt: skip
def test_a_field_that_an_upstream_lacks_is_reported_by_its_name_in_the_client_format(client, body, upstream, named):
    sent = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}], **body}
    sent = orjson.loads(orjson.dumps(sent))  # equal strings are separate objects, as in a parsed body
    assert named in convert_request(mapping(client), mapping(upstream), sent, context()).lost


def variants(value: Any) -> Iterator[Any]:
    """A document, and copies of it with one change each: an unknown field in an object, a missing field, a value of
    another type."""
    yield value
    if isinstance(value, dict):
        yield {**value, "unread": [{"a": 1}]}
        for key, below in value.items():
            yield {other: each for other, each in value.items() if other != key}
            for changed in (None, "other", [], {}, [[below]]):
                yield {**value, key: changed}
            for changed in variants(below):
                yield {**value, key: changed}
    elif isinstance(value, list):
        yield [*value, {"unread": 1}, "other", None]
        for place, item in enumerate(value[:3]):
            for changed in variants(item):
                yield [*value[:place], changed, *value[place + 1 :]]


@pytest.mark.parametrize("name", FILES)
def test_remembered_shapes_of_other_documents_do_not_change_the_losses(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = mapping(name)
    forgetful = compile_mapping(file.document)
    given: list[Example] = []
    run_each(file.document, file.examples, FORM, given.append)
    for example in given:
        walker = file.walkers.get(example.of)
        if walker is None:
            continue
        documents = list(islice(variants(example.given), 300))
        seen = [(walker.lost(document), walker.lost(document)) for document in documents]
        with monkeypatch.context() as patched:
            patched.setattr(loss, "_MOST_SHAPES", 0)
            found = [forgetful.walkers[example.of].lost(document) for document in reversed(documents)]
        for document, (first, again), once in zip(documents, seen, reversed(found), strict=True):
            assert first == again == once, document


@pytest.mark.parametrize("upstream", ["responses", "messages"])
def test_the_foreign_signature_of_a_call_is_reported_once_by_its_name_in_the_client_format(upstream: str) -> None:
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
        "extra_content": {"google": {"thought_signature": "SIG"}},
    }
    body = {
        "model": "m",
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "done"},
        ],
    }
    named = convert_request(mapping("chat"), mapping(upstream), body, context()).lost
    assert named == ["messages[].tool_calls[].extra_content.google.thought_signature"]
