"""Events that only differ from the one before in their text: the output is the same whether each is parsed in full or
not."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from completions.both_ways import both_ways, client_events, counting
from mapping.answers import AWKWARD, CLIENTS, QUICK, call, chat_answers, chunk
from mappings.support import mapping
from tollgate.config.load import read_text
from tollgate.mapping import compile_mapping


def written(event: Any, *, ascii: bool = True, name: str | None = None) -> bytes:
    """An event as an upstream sends it: from an object, or from its JSON."""
    data = event if type(event) is bytes else json.dumps(event, ensure_ascii=ascii).encode()
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + data + b"\n\n"


TEXTS = ["a", *AWKWARD, "", "b", *AWKWARD]
CHAT = [
    *(chunk(reasoning=text) for text in TEXTS),
    *(chunk(content=text) for text in TEXTS),
    call("", id="c1", type="function"),
    *(call(text) for text in TEXTS),
    chunk("tool_calls"),
]


@pytest.mark.parametrize("ascii", [True, False])
@pytest.mark.parametrize("target", CLIENTS)
def test_a_chat_stream_is_converted_the_same(target: str, ascii: bool) -> None:
    stream = b"".join(written(event, ascii=ascii) for event in CHAT)
    assert both_ways("chat", target, [stream]) > len(AWKWARD)


@QUICK
@given(cuts=st.sets(st.integers(1, 20_000), max_size=12))
def test_a_stream_is_converted_the_same_for_any_split_into_blocks(cuts: set[int]) -> None:
    stream = b"".join(written(event) for event in CHAT)
    at = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    both_ways("chat", "messages", [stream[start:end] for start, end in itertools.pairwise(at)])


def block(kind: str, field: str, texts: list[str], number: int, **opening: Any) -> list[dict[str, Any]]:
    deltas = [{"type": "content_block_delta", "index": number, "delta": {"type": kind, field: text}} for text in texts]
    return [
        {"type": "content_block_start", "index": number, "content_block": opening},
        *deltas,
        {"type": "content_block_stop", "index": number},
    ]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("target", CLIENTS)
def test_a_messages_stream_is_converted_the_same(target: str, named: bool) -> None:
    texts = ["a", *AWKWARD, "text", "delta", "0", "e", "f"]
    events = [
        {
            "type": "message_start",
            "message": {"id": "m", "model": "x", "usage": {"input_tokens": 3, "output_tokens": 1}},
        },
        *block("thinking_delta", "thinking", texts, 0, type="thinking", thinking=""),
        *block("text_delta", "text", texts, 1, type="text", text=""),
        {"type": "ping"},
        *block("text_delta", "text", texts, 2, type="text", text=""),
        *block(
            "input_json_delta",
            "partial_json",
            ['{"a', '": 1', "23", "4", "}"],
            3,
            type="tool_use",
            id="t",
            name="f",
            input={},
        ),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    assert both_ways(
        "messages", target, [b"".join(written(event, name=event["type"] if named else None) for event in events)]
    ) > 2 * len(AWKWARD)


@pytest.mark.parametrize("target", CLIENTS)
def test_reasoning_deltas_that_appear_in_two_output_fields_are_converted_together(target: str) -> None:
    events = [
        {"type": "message_start", "message": {"id": "m", "model": "x", "usage": {"input_tokens": 3}}},
        *block("thinking_delta", "thinking", [*"abcdefgh", *AWKWARD], 0, type="thinking", thinking=""),
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    assert both_ways("messages", target, [b"".join(written(event) for event in events)]) > 5


@pytest.mark.parametrize("target", CLIENTS)
@QUICK
@given(answer=chat_answers())
def test_any_stream_is_converted_the_same(target: str, answer: tuple[Any, list[Any]]) -> None:
    both_ways("chat", target, [b"".join(written(event) for event in answer[1])])


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(
            b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"},"more":1}',
            id="another field",
        ),
        pytest.param(
            b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x","more":{"a":1}}}',
            id="another field with the same ending",
        ),
        pytest.param(
            b'{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"x"}}', id="another part"
        ),
        pytest.param(b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":null}}', id="null"),
        pytest.param(b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":5}}', id="a number"),
        pytest.param(
            b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":["x"]}}', id="a list"
        ),
        pytest.param(
            b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x","text":"y"}}',
            id="two texts",
        ),
        pytest.param(
            b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x}}', id="invalid JSON"
        ),
        pytest.param(
            b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text": "x" }}', id="spaces"
        ),
        pytest.param(
            b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}  ',
            id="spaces at the end",
        ),
        pytest.param(
            b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\xff"}}',
            id="invalid UTF-8",
        ),
        pytest.param(
            b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\\ud83d"}}',
            id="a lone surrogate",
        ),
        pytest.param(b'{"type":"content_block_stop","index":0}', id="the end"),
        pytest.param(b'{"type":"error","error":{"message":"no","type":"overloaded_error"}}', id="an error"),
        pytest.param(b"[DONE]", id="the end mark"),
    ],
)
@pytest.mark.parametrize("target", ["chat", "responses"])
def test_an_event_of_another_shape_is_parsed(other: bytes, target: str) -> None:
    start = b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}'
    repeated = [
        b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%b"}}' % text
        for text in (b"one", b"two", b"three", b"four")
    ]
    events = [written(data) for data in (start, *repeated, other, *repeated)]
    both_ways("messages", target, [b"".join(events)])
    assert both_ways("messages", target, events) >= 1


@pytest.mark.parametrize("between", [b": a comment\n\n", b"\n\n", b"id: 5\n", b"event: x\n", b"retry: 9\n\n"])
def test_lines_between_events_are_not_text(between: bytes) -> None:
    events = [written(chunk(content=text)) for text in ("one", "two", "three", "four", "five")]
    both_ways("chat", "messages", [b"".join([*events, between, *events])])


def test_carriage_returns_end_lines_too() -> None:
    stream = b"".join(written(chunk(content=text)) for text in ("one", "two", "three", "four"))
    both_ways("chat", "messages", [stream, stream.replace(b"\n", b"\r\n"), stream])


@pytest.mark.parametrize("target", CLIENTS)
def test_percent_signs_are_ordinary_characters(target: str) -> None:
    events = [
        written({**chunk(content=text), "id": "100%", "model": "%d%%b"}) for text in ["10%", "%d", "%b", "%%", "%"] * 3
    ]
    assert both_ways("chat", target, [b"".join(events)]) > 5


def test_events_with_different_names_are_not_converted_together() -> None:
    texts = ["one", "two", "three", "four"]
    assert (
        both_ways(
            "chat",
            "messages",
            [
                written(chunk(content=text), name=name)
                for text, name in zip(texts, (None, None, "x", None), strict=True)
            ],
        )
        == 0
    )
    assert both_ways("chat", "messages", [written(chunk(content=text)) for text in texts]) == 2


def test_an_upstream_whose_events_always_differ_is_not_compared_for_long() -> None:
    events = [written({**chunk(content="word"), "obfuscation": "x" * number}) for number in range(80)]
    with counting() as together:
        _, converter = client_events(mapping("chat"), "messages", [b"".join(events)], whole=False)
    assert not any(together)
    assert len(together) < 12
    assert not converter.follows


RULES = """
mapping: x
stream:
  to_hub:
    always:
      - {start: {id: $.id}}
      - {delta: {kind: text, text: %s}}
      - {$when: $.why, stop: {reason: $.why}}
"""
EVENTS = [written(b'{"id":"i","t":"%b"}' % text) for text in (b"one", b"two", b"three", b"four", b"five")]


@pytest.mark.parametrize(("mark", "count"), [("", 0), (", steady: true", 3)])
def test_only_a_rule_marked_steady_is_skipped(mark: str, count: int) -> None:
    assert both_ways(compile_mapping(read_text(RULES % ("$.t" + mark), "x.yaml")), "chat", EVENTS) == count


@pytest.mark.parametrize("text", ["{{ $.t | strip }}", "{{ $.t ~ $.t }}", "{{ $.t | lower }}"])
def test_a_rule_marked_steady_that_changes_its_text_is_not_skipped(text: str) -> None:
    assert both_ways(compile_mapping(read_text(RULES % f'"{text}", steady: true', "x.yaml")), "chat", EVENTS) == 0
