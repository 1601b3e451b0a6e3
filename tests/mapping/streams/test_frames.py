"""Text deltas written by a frame: the bytes are the same for any text and any other events of the stream."""

from typing import Any

import orjson
import pytest
from hypothesis import given

from mapping.answers import AWKWARD, CLIENTS, QUICK, call, chat_answers, chunk
from mappings.support import mapping
from tollgate.config.load import read_text
from tollgate.mapping import Context, StreamConverter, compile_mapping
from tollgate.mapping.streams.frames import is_steady


def converted(
    target: str, events: list[Any], *, frames: bool, source: str = "chat", context: Context | None = None
) -> list[tuple[str | None, bytes]]:
    """The events a client receives, as JSON bytes."""
    converter = StreamConverter(mapping(source), mapping(target), context or Context(run_id="r1", now=5), frames=frames)
    out = [each for event in events for each in converter.feed(event)] + converter.finish()
    return [(name, data if type(data) is bytes else orjson.dumps(data)) for name, data in out]


@pytest.mark.parametrize("target", CLIENTS)
def test_a_frame_changes_no_byte(target: str) -> None:
    events = [
        *(chunk(reasoning=text) for text in AWKWARD),
        *(chunk(content=text) for text in AWKWARD),
        chunk(
            content="sure",
            logprobs={"content": [{"token": "sure", "logprob": -0.5, "bytes": None, "top_logprobs": []}]},
        ),
        *(chunk(content=text) for text in AWKWARD),
        call("", id="c1", type="function"),
        *(call(text) for text in AWKWARD),
        chunk("tool_calls"),
    ]
    plain, framed = (converted(target, events, frames=frames) for frames in (False, True))
    assert framed == plain
    assert len(framed) > 3 * len(AWKWARD)


@pytest.mark.parametrize("target", CLIENTS)
@QUICK
@given(answer=chat_answers())
def test_any_stream_is_the_same_with_frames(target: str, answer: tuple[Any, list[Any]]) -> None:
    assert converted(target, answer[1], frames=True) == converted(target, answer[1], frames=False)


def test_a_text_that_occurs_twice_in_its_event_has_a_frame_too() -> None:
    echo = compile_mapping(
        read_text(
            """
mapping: echo
stream:
  from_hub:
    text:
      delta: [{say: $delta, and: [{once: more, say: $delta}]}]
""",
            "echo.yaml",
        )
    )
    converter = StreamConverter(mapping("chat"), echo, Context(), frames=True)
    sent = [data for text in AWKWARD for _, data in converter.feed(chunk(content=text))]
    expected = [{"say": text, "and": [{"once": "more", "say": text}]} for text in AWKWARD]
    assert [orjson.loads(data) if type(data) is bytes else data for data in sent] == expected
    assert [type(data) for data in sent] == [dict] + [bytes] * (len(AWKWARD) - 1)


@pytest.mark.parametrize("target", CLIENTS)
def test_a_free_form_tool_keeps_its_own_events(target: str) -> None:
    request = {"tools": [{"kind": "function", "name": "f", "custom": True}]}
    events = [call("", id="c1", type="function"), call('{"input": "a'), call('b"}'), chunk("tool_calls")]
    contexts = [Context(run_id="r1", now=5) for _ in range(2)]
    for context in contexts:
        context.request = request
    assert converted(target, events, frames=True, context=contexts[0]) == converted(
        target, events, frames=False, context=contexts[1]
    )


@pytest.mark.parametrize("target", CLIENTS)
def test_all_deltas_of_the_shipped_formats_have_frames(target: str) -> None:
    writer = mapping(target).writer
    assert writer is not None
    assert [
        kind for kind, handlers in writer.kinds.items() if handlers.delta is not None and handlers.framed is None
    ] == []


@pytest.mark.parametrize(
    ("code", "steady"),
    [
        ("R.out.append((None, {'id': R.id, 'text': V}))", True),
        ("o1['text'] = V", True),
        ("R.out.append((None, {'text': V, 'size': len(V)}))", False),
        ("R.out.append((None, {'text': fn_upper_1(V, C)}))", False),
        ("R.out.append((None, {'text': V, 'all': P.text}))", False),
        ("R.out.append((None, {'text': V, 'tokens': R.usage}))", False),
        ("R.out.append((None, {'id': R.id}))", False),
    ],
)
def test_a_handler_is_steady_if_only_the_text_changes(code: str, steady: bool) -> None:
    assert is_steady([code]) is steady


def test_a_handler_that_tests_its_text_is_called_every_time() -> None:
    loud = compile_mapping(
        read_text(
            """
mapping: loud
stream:
  from_hub:
    text:
      delta:
        - {$when: "$delta | starts('!')", shout: $delta}
        - {$when: "not ($delta | starts('!'))", say: $delta}
""",
            "loud.yaml",
        )
    )
    converter = StreamConverter(mapping("chat"), loud, Context(), frames=True)
    assert [data for text in ("a", "!b", "c") for _, data in converter.feed(chunk(content=text))] == [
        {"say": "a"},
        {"shout": "!b"},
        {"say": "c"},
    ]


STEPS = compile_mapping(
    read_text(
        """
mapping: steps
stream:
  to_hub:
    - {$when: $.used, usage: {output: $.used}}
    - {$when: $.text, delta: {kind: text, text: $.text}}
    - {$when: $.stop, stop: {reason: $.stop}}
""",
        "steps.yaml",
    )
)


@pytest.mark.parametrize(
    ("stamp", "delta"),
    [
        ("{used: $run.usage.output}", "{t: $delta}"),
        ("{n: $seq, next: '{{ $seq + 1 }}'}", "{t: $delta}"),
        ("{made: by us, model: $run.model}", "{t: $delta}"),
        ("{kind: piece}", "{n: $seq, next: '{{ $seq + 1 }}', t: $delta}"),
        ("{kind: piece}", "{n: '{{ $seq ~ \"\" }}', t: $delta}"),
    ],
    ids=["usage in a stamp", "numbers in a stamp", "a stamp that stays", "a computed number", "a number as text"],
)
def test_values_that_change_while_a_part_is_open_are_written_again(stamp: str, delta: str) -> None:
    target = compile_mapping(
        read_text(
            f"mapping: sent\nstream:\n  from_hub:\n    stamp: {stamp}\n    text: {{delta: [{delta}]}}\n"
            "    finish: [{done: true}]\n",
            "sent.yaml",
        )
    )
    events = [{"text": "a"}, {"text": "b"}, {"used": 3}, {"text": "c"}, {"used": 5}, {"text": "d"}, {"stop": "end"}]
    sent = []
    for frames in (False, True):
        converter = StreamConverter(STEPS, target, Context(run_id="r1", now=5), frames=frames)
        out = [data for event in events for _, data in converter.feed(event)]
        out += [data for _, data in converter.finish()]
        sent.append([orjson.loads(data) if type(data) is bytes else data for data in out])
    assert sent[0] == sent[1]


def test_a_stamp_shows_that_a_stream_failed() -> None:
    target = compile_mapping(
        read_text(
            "mapping: sent\nstream:\n  from_hub:\n    stamp: {failed: $run.failed}\n    text: {delta: [{t: $delta}]}\n"
            "    error: [{e: $error.message}]\n",
            "sent.yaml",
        )
    )
    converter = StreamConverter(STEPS, target, Context(run_id="r1", now=5))
    assert [data for _, data in converter.feed({"text": "a"})] == [{"failed": False, "t": "a"}]
    assert [data for _, data in converter.fail("gone")] == [{"failed": True, "e": "gone"}]
