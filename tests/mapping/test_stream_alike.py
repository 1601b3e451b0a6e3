"""Events that are the one before but for their text: told the same, to the byte, whether each is read whole or not."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given

from mapping.test_properties import CLIENTS, MAPPINGS, QUICK, chat_answers
from mapping.test_stream_frames import AWKWARD, call, chunk
from tollgate.config.load import read_text
from tollgate.mapping import Context, Mapping, StreamConverter, compile_mapping

Written = tuple[str | None, bytes]


def written(event: Any, *, ascii: bool = True) -> Written:
    return event.get("type"), json.dumps(event, ensure_ascii=ascii).encode()


def told(source: Mapping, target: str, events: list[Written], *, alike: bool) -> tuple[list[Any], StreamConverter, int]:
    """What a client is told as JSON bytes, by whom, and how many events were not read whole."""
    converter = StreamConverter(source, MAPPINGS[target], Context(run_id="r1", now=5), frames=True)
    out: list[Any] = []
    at = skipped = 0
    while at < len(events):
        if alike and converter.follows and (end := converter.feed_alike(out, events, at)) > at:
            skipped += end - at
            at = end
            continue
        name, data = events[at]
        converter.feed_into(out, orjson.loads(data), name)
        if alike and converter.follows:
            converter.follow(name, data)
        at += 1
    out += converter.finish()
    return [(name, data if type(data) is bytes else orjson.dumps(data)) for name, data in out], converter, skipped


def meaning(said: list[Any]) -> list[Any]:
    return [(name, orjson.loads(data) if data[:1] in b"{[" else data) for name, data in said]


def both_ways(source: str, target: str, events: list[Written]) -> int:
    """Asserts that both ways tell the same; how many events were not read whole."""
    whole, plain, _ = told(MAPPINGS[source], target, events, alike=False)
    short, quick, skipped = told(MAPPINGS[source], target, events, alike=True)
    assert meaning(short) == meaning(whole)
    assert quick.parts() == plain.parts()
    assert (quick.usage, quick.stop, quick.lost, quick.received_text_chars) == (plain.usage, plain.stop, plain.lost, plain.received_text_chars)
    return skipped


def block(kind: str, field: str, texts: list[str], number: int, **opening: Any) -> list[dict[str, Any]]:
    deltas = [{"type": "content_block_delta", "index": number, "delta": {"type": kind, field: text}} for text in texts]
    return [{"type": "content_block_start", "index": number, "content_block": opening}, *deltas, {"type": "content_block_stop", "index": number}]


@pytest.mark.parametrize("ascii", [True, False])
@pytest.mark.parametrize("target", CLIENTS)
def test_a_chat_stream_is_told_the_same(target: str, ascii: bool) -> None:
    texts = ["a", *AWKWARD, "", "b", *AWKWARD]
    events = [*(chunk(reasoning=text) for text in texts), *(chunk(content=text) for text in texts), call("", id="c1", type="function"), *(call(text) for text in texts),
              chunk("tool_calls")]
    assert both_ways("chat", target, [written(event, ascii=ascii) for event in events]) > (len(AWKWARD) if target == "responses" else 2 * len(AWKWARD))


@pytest.mark.parametrize("target", CLIENTS)
def test_a_messages_stream_is_told_the_same(target: str) -> None:
    texts = ["a", *AWKWARD, "text", "delta", "0"]
    events = [
        {"type": "message_start", "message": {"id": "m", "model": "x", "usage": {"input_tokens": 3, "output_tokens": 1}}},
        *block("thinking_delta", "thinking", texts, 0, type="thinking", thinking=""), *block("text_delta", "text", texts, 1, type="text", text=""),
        {"type": "ping"}, *block("text_delta", "text", texts, 2, type="text", text=""),
        *block("input_json_delta", "partial_json", ['{"a', '": 1', "23", "4", "}"], 3, type="tool_use", id="t", name="f", input={}),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}}, {"type": "message_stop"},
    ]
    assert both_ways("messages", target, [written(event) for event in events]) > 2 * len(AWKWARD)


@pytest.mark.parametrize("target", CLIENTS)
@QUICK
@given(answer=chat_answers())
def test_any_stream_is_told_the_same(target: str, answer: tuple[Any, list[Any]]) -> None:
    both_ways("chat", target, [written(event) for event in answer[1]])


@pytest.mark.parametrize("odd", [
    pytest.param(b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"},"more":1}', id="another field"),
    pytest.param(b'{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"x"}}', id="another part"),
    pytest.param(b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":null}}', id="no text"),
    pytest.param(b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":5}}', id="a number"),
    pytest.param(b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x","text":"y"}}', id="two texts"),
    pytest.param(b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text": "x" }}', id="blanks"),
    pytest.param(b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}  ', id="blanks at the end"),
    pytest.param(b'{"type":"content_block_stop","index":0}', id="the end"),
    pytest.param(b'{"type":"error","error":{"message":"no","type":"overloaded_error"}}', id="an error"),
])
def test_an_event_that_is_something_else_is_read(odd: bytes) -> None:
    start = b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}'
    alike = [b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%b"}}' % text for text in (b"one", b"two", b"three")]
    assert both_ways("messages", "chat", [(None, data) for data in (start, *alike, odd, *alike)]) > 0


def test_a_name_is_part_of_the_likeness() -> None:
    data = [written(chunk(content=text))[1] for text in "abcd"]
    assert both_ways("chat", "messages", [(None, data[0]), (None, data[1]), ("x", data[2]), (None, data[3])]) == 0
    assert both_ways("chat", "messages", [(None, each) for each in data]) == 2


def test_an_upstream_whose_events_differ_in_more_is_not_followed_for_long() -> None:
    events = [written({**chunk(content="a"), "obfuscation": "x" * number}) for number in range(20)]
    _, converter, skipped = told(MAPPINGS["chat"], "messages", events, alike=True)
    assert skipped == 0
    assert not converter.follows


RULES = """
mapping: x
stream:
  to_hub:
    always:
      - {start: {id: $.id}}
      - {delta: {kind: text, text: $.t%s}}
      - {$when: $.why, stop: {reason: $.why}}
"""


@pytest.mark.parametrize(("promise", "skipped"), [("", 0), (", steady: true", 3)])
def test_only_a_rule_that_promises_it_is_spared(promise: str, skipped: int) -> None:
    mapping = compile_mapping(read_text(RULES % promise, "x.yaml"))
    events = [(None, b'{"id":"i","t":"%b"}' % text) for text in (b"one", b"two", b"three", b"four", b"five")]
    said, _, count = told(mapping, "chat", events, alike=True)
    assert count == skipped
    assert "".join(event["choices"][0]["delta"].get("content") or "" for _, event in meaning(said) if "choices" in event) == "onetwothreefourfive"


@pytest.mark.parametrize("text", ["{{ $.t | strip }}", "{{ $.t ~ '' ~ $.t }}", "{{ $.t | lower }}"])
def test_a_promise_that_is_seen_not_to_hold_is_not_relied_on(text: str) -> None:
    mapping = compile_mapping(read_text(RULES.replace("$.t%s", f'"{text}", steady: true'), "x.yaml"))
    _, _, skipped = told(mapping, "chat", [(None, b'{"id":"i","t":"%b"}' % each) for each in (b"one", b"two", b"three", b"four")], alike=True)
    assert skipped == 0
