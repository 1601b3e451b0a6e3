"""Citations of a responses stream without an event of their own are read from the events that repeat their text."""

from __future__ import annotations

from typing import Any

import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from mappings.support import context, converted

NOTE = {"type": "url_citation", "url": "https://x", "title": "X", "start_index": 0, "end_index": 2}
TEXT = {"type": "output_text", "text": "word", "annotations": [NOTE], "logprobs": []}
BARE = {**TEXT, "annotations": []}
AT = {"output_index": 0, "content_index": 0, "item_id": "msg_1"}


def stream(holders: str) -> list[dict[str, Any]]:
    """One text with one citation, which the events named in `holders` contain."""
    item = {"type": "message", "id": "msg_1", "role": "assistant"}

    def part(name: str) -> dict[str, Any]:
        return TEXT if name in holders.split(" and ") else BARE

    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"id": "r", "model": "x", "created_at": 5}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.content_part.added", **AT, "part": {**BARE, "text": ""}},
        {"type": "response.output_text.delta", **AT, "delta": "wo"},
        {"type": "response.output_text.delta", **AT, "delta": "rd"},
        {"type": "response.output_text.annotation.added", **AT, "annotation_index": 0, "annotation": NOTE},
        {"type": "response.output_text.done", **AT, "text": "word"},
        {"type": "response.content_part.done", **AT, "part": part("part")},
        {"type": "response.output_item.done", "output_index": 0, "item": {**item, "content": [part("item")]}},
        {
            "type": "response.completed",
            "response": {"id": "r", "status": "completed", "output": [{**item, "content": [part("end")]}]},
        },
    ]
    if "event" not in holders:
        del events[5]
    if "part" not in holders:
        events = [event for event in events if event["type"] != "response.content_part.done"]
    return events


def citations(client: str, events: list[tuple[str | None, Any]]) -> list[str]:
    """The URLs that a client receives beside its text."""
    if client == "chat":
        deltas = [event["choices"][0]["delta"] for _, event in events if event != "[DONE]" and event["choices"]]
        return [note["url_citation"]["url"] for delta in deltas for note in delta.get("annotations", [])]
    deltas = [event["delta"] for _, event in events if event["type"] == "content_block_delta"]
    return [delta["citation"]["url"] for delta in deltas if delta["type"] == "citations_delta"]


@pytest.mark.parametrize("client", ["chat", "messages"])
@pytest.mark.parametrize(
    "holders", ["event", "part", "item", "event and part", "part and item", "event and item and end"]
)
def test_a_citation_is_sent_once_wherever_it_appears(client: str, holders: str) -> None:
    run = context()
    assert citations(client, converted("responses", client, stream(holders), run)) == ["https://x"]
    assert not run.lost


@pytest.mark.parametrize("client", ["chat", "messages"])
def test_a_citation_only_at_the_end_is_reported_as_lost(client: str) -> None:
    run = context()
    assert citations(client, converted("responses", client, stream("end"), run)) == []
    assert run.lost == ["citations told behind their text"]


def test_the_official_sdk_keeps_citations_of_several_texts_apart() -> None:
    cited: list[dict[str, Any]] = []
    for index, url in enumerate(["https://x", "https://y"]):
        note = {"type": "web_search_result_location", "url": url, "title": url, "encrypted_index": "", "cited_text": ""}
        cited += [
            {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": index, "delta": {"type": "citations_delta", "citation": note}},
            {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": "word"}},
            {"type": "content_block_stop", "index": index},
        ]
    start = {
        "type": "message_start",
        "message": {"id": "m", "model": "c", "usage": {"input_tokens": 1, "output_tokens": 1}},
    }
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}
    state = ChatCompletionStreamState()
    for _, chunk in converted("messages", "chat", [start, *cited, end]):
        if isinstance(chunk, dict):
            state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    notes = state.current_completion_snapshot.to_dict()["choices"][0]["message"]["annotations"]
    assert [(note["url_citation"]["url"], note["url_citation"]["start_index"]) for note in notes] == [
        ("https://x", 0),
        ("https://y", 4),
    ]


@pytest.mark.parametrize(("same_event", "received"), [(True, ["https://x"]), (False, [])])
def test_a_citation_that_comes_with_a_call_is_sent_and_one_after_it_is_reported(
    same_event: bool, received: list[str]
) -> None:
    call = {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]}
    cited = {"annotations": [{"type": "url_citation", "url_citation": NOTE}]}
    deltas: list[dict[str, Any]] = [{"content": "word"}, *([{**call, **cited}] if same_event else [call, cited])]
    events: list[Any] = [{"id": "a", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    events.append({"id": "a", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    run = context()
    assert citations("messages", converted("chat", "messages", events, run)) == received
    assert run.lost == ([] if same_event else ["annotations after the end of a text"])
