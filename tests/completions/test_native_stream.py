"""Native streams: bytes pass unchanged, usage is added to the finishing chunk, and every end is reported."""

import json
from functools import cache
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapping.provider_files import offer as offer_of
from tollgate.completions import native_chat
from tollgate.completions.attempt import Attempt
from tollgate.completions.exchange import Exchange
from tollgate.completions.marked_events import split_at_marks
from tollgate.completions.native_chat import NativeChat
from tollgate.completions.native_plain import NativePlain, last_sequence
from tollgate.completions.native_stream import KeptBlocks
from tollgate.completions.route_events import Reframed
from tollgate.config.files import built_in_mappings
from tollgate.config.load import read_file
from tollgate.errors import AnswerLost
from tollgate.mapping import compile_mapping
from tollgate.sse import BOM, Decoder

PROVIDER = """
provider: acme
url: https://api.acme.example/v1
speaks: {chat: /chat/completions, messages: /messages}
models: {acme/large: {}}
"""


@cache
def route(dialect: str) -> tuple[Any, dict[str, Any]]:
    """A route that speaks the client's format, and the mappings."""
    mappings = {name: compile_mapping(read_file(built_in_mappings() / f"{name}.yaml")) for name in ("chat", "messages")}
    return offer_of(PROVIDER, endpoint=dialect, mappings=mappings), mappings


def native(dialect: str = "chat") -> Any:
    """The stage for a native answer in this format."""
    offer, mappings = route(dialect)
    gateway = SimpleNamespace(credits=SimpleNamespace(rates={}))
    services: Any = SimpleNamespace(
        runtime=SimpleNamespace(current=SimpleNamespace(mappings=mappings, gateway=gateway))
    )
    inbound: Any = SimpleNamespace(dialect=dialect, body=b"")
    model: Any = None
    exchange = Exchange(services, inbound, {}, model, True)
    exchange.attempt = Attempt(offer)
    return NativeChat(exchange, offer) if dialect == "chat" else NativePlain(exchange, offer)


def sse(*events) -> bytes:
    return b"".join(b"data: " + (e if isinstance(e, bytes) else orjson.dumps(e)) + b"\n\n" for e in events)


def named(*events) -> bytes:
    return b"".join(b"event: %b\n%b" % (event["type"].encode(), sse(event)) for event in events)


def chunk(delta=None, finish=None, index=0, **more):
    return {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": index, "delta": delta or {}, "finish_reason": finish}],
        **more,
    }


USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
HUB_USAGE = {"input": 3, "output": 2, "total": 5}
USAGE_CHUNK = {**chunk(), "choices": [], "usage": USAGE}


def through(raw: bytes, size: int) -> tuple[NativeChat, bytes]:
    stream = native()
    out = b"".join(stream.feed(raw[at : at + size]) for at in range(0, len(raw), size))
    return stream, out + stream.close()


@pytest.mark.parametrize("size", [1, 7, 64, 100_000], ids="cut every {} bytes".format)
def test_usage_is_merged_into_the_finishing_chunk_for_any_split_of_the_blocks(size):
    raw = b": comment\n\n" + sse(
        chunk({"role": "assistant"}),
        chunk({"content": "hi"}, usage=None),
        chunk(finish="stop", usage=None),
        USAGE_CHUNK,
        b"[DONE]",
    )
    stream, before = through(raw, size)
    assert stream.error is None
    assert before == b": comment\n\n" + sse(chunk({"role": "assistant"}), chunk({"content": "hi"}, usage=None))
    events = Decoder().feed(stream.tail())
    assert orjson.loads(events[0].data) == chunk(finish="stop", usage=USAGE)
    assert events[1].data == b"[DONE]" and len(events) == 2


def test_chunks_without_marks_are_not_parsed(monkeypatch):
    """Parsing each chunk would be most of the cost of a stream."""
    read = []
    parse = native_chat.parsed_event
    monkeypatch.setattr(native_chat, "parsed_event", lambda data: read.append(parse(data)) or read[-1])
    words = [chunk({"content": f"word {n}"}) for n in range(20)]
    finish = chunk(finish="stop")
    for raw in (sse(*words, finish), sse(*words, finish).replace(b":null", b": null").replace(b':"', b': "')):
        read.clear()
        through(raw, 400)
        assert read[-1] == finish and len(read) < 20
    read.clear()
    through(sse(*words), 100_000)
    assert read == []


@pytest.mark.parametrize(
    "ending",
    [[USAGE_CHUNK, b"[DONE]"], [USAGE_CHUNK], [b"[DONE]"], [chunk({}, finish="stop", index=1), USAGE_CHUNK, b"[DONE]"]],
    ids=["usage and end", "no end mark", "no usage", "the finish of another choice"],
)
def test_a_chat_stream_may_arrive_in_two_blocks_split_anywhere(ending):
    raw = sse(chunk({"content": "hi"}), chunk(finish="stop"), *ending)
    whole, passed = through(raw, len(raw))
    for cut in range(1, len(raw)):
        stream = native()
        assert stream.feed(raw[:cut]) + stream.feed(raw[cut:]) + stream.close() == passed, cut
        assert (stream.error, stream.usage(), stream.tail()) == (
            None,
            whole.usage(),
            whole.tail(),
        ), cut


@pytest.mark.parametrize("dialect", ["chat", "messages"])
@pytest.mark.parametrize(
    ("rest", "passed"),
    [
        (b'data: {"type": "ping", "x": 1', b""),
        (b"event: ping\ndata:", b""),
        (b'data: {"kind": "ping"}', b'data: {"kind": "ping"}\n\n'),
    ],
    ids=["half an event", "no data", "without its blank line"],
)
def test_the_last_event_of_a_broken_stream_is_passed_on_only_if_its_data_is_complete(dialect, rest, passed):
    stream = native(dialect)
    out = stream.feed(named({"type": "ping"})) + stream.feed(rest)
    assert out + stream.close() == named({"type": "ping"}) + passed
    assert isinstance(stream.error, AnswerLost)


def test_a_finishing_chunk_with_usage_passes_unchanged():
    last = (
        b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],  '
        b'"usage":{"prompt_tokens":1,"completion_tokens":1.0}}\n\n'
    )
    stream, _ = through(last + sse(b"[DONE]"), 9999)
    assert stream.tail() == last + b"data: [DONE]\n\n"


def test_usage_in_a_chunk_with_an_empty_choice_is_merged():
    stream, out = through(
        sse(
            chunk({"content": "x"}),
            chunk(finish="stop"),
            chunk({"role": "assistant", "content": ""}, usage=USAGE),
            b"[DONE]",
        ),
        9999,
    )
    assert out == sse(chunk({"content": "x"}))
    assert orjson.loads(Decoder().feed(stream.tail())[0].data)["usage"] == USAGE


@pytest.mark.parametrize("choices", [{}, {"choices": None}], ids=["absent", "null"])
def test_usage_in_a_chunk_without_choices_is_merged(choices):
    alone = {name: value for name, value in USAGE_CHUNK.items() if name != "choices"} | choices
    stream, out = through(sse(chunk({"content": "x"}), chunk(finish="stop"), alone, b"[DONE]"), 9999)
    assert out == sse(chunk({"content": "x"}))
    assert orjson.loads(Decoder().feed(stream.tail())[0].data) == chunk(finish="stop", usage=USAGE)


def test_fields_beside_usage_are_merged_into_the_finishing_chunk():
    stream, _ = through(
        sse(
            chunk({"content": "hi"}),
            chunk(finish="stop"),
            {**USAGE_CHUNK, "citations": ["https://a.example"], "model": "other", "obfuscation": "x"},
        ),
        100_000,
    )
    assert orjson.loads(Decoder().feed(stream.tail())[0].data) == {
        **chunk(finish="stop", usage=USAGE),
        "citations": ["https://a.example"],
    }


def test_the_last_usage_is_used_and_a_later_chunk_still_passes():
    late = {**chunk(), "choices": [], "moderation": {}, "usage": None}
    stream, out = through(
        sse(chunk(finish="stop"), {**USAGE_CHUNK, "usage": {"prompt_tokens": 1}}, USAGE_CHUNK, late, b"[DONE]"), 9999
    )
    assert out == sse(late)
    assert stream.usage() == HUB_USAGE


def test_done_is_sent_even_if_the_upstream_does_not_send_it():
    stream, _ = through(sse(chunk({"content": "x"}), chunk(finish="length")), 9999)
    assert stream.error is None
    assert stream.tail().endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("written", [b"data:  [DONE]\n\n", b"data: [DONE] \n\n", b"data:  [DONE]"])
@pytest.mark.parametrize("reframed", [False, True])
def test_spaces_around_the_end_mark_do_not_make_it_text(written, reframed):
    raw = sse(chunk({"content": "x"}), chunk(finish="stop")) + written
    if reframed:
        frames = Reframed(route("chat")[0], "chat")
        raw = frames.feed(raw) + frames.finish()
    stream, out = through(raw, 9999)
    assert out == sse(chunk({"content": "x"}))
    assert out + stream.tail() == sse(chunk({"content": "x"}), chunk(finish="stop"), b"[DONE]")


def test_every_choice_keeps_its_finishing_chunk():
    first, second = chunk(finish="stop"), chunk(finish="length", index=1)
    stream, out = through(sse(first, chunk({"content": "b"}, index=1), second, USAGE_CHUNK, b"[DONE]"), 9999)
    assert sse(first) in out
    assert orjson.loads(Decoder().feed(stream.tail())[0].data) == {**second, "usage": USAGE}


@pytest.mark.parametrize("index", [{}, [0], None, "0"], ids=["an object", "a list", "null", "a string"])
def test_a_choice_with_an_invalid_index_passes(index):
    raw = sse(
        chunk({"content": "a"}, index=index), chunk(finish="stop", index=index), chunk({"content": "b"}), USAGE_CHUNK
    )
    stream, out = through(raw + b"data: [DONE]\n\n", len(raw))
    assert stream.usage() == HUB_USAGE and out.count(b'"index":' + orjson.dumps(index)) == 2


def test_a_stream_without_a_finishing_chunk_is_an_error():
    stream, out = through(sse(chunk({"content": "x"})) + b'data: {"choi', 9999)
    assert stream.error is not None and "ended before" in stream.error.message
    assert sse(chunk({"content": "x"})) in out


def test_an_error_event_ends_the_stream():
    stream, out = through(sse(chunk({"content": "x"}), {"error": {"message": "boom"}}, chunk({"content": "y"})), 9999)
    assert stream.error is not None and stream.error.message == "boom"
    assert out == sse(chunk({"content": "x"}))


@pytest.mark.parametrize("style", [b'":', b'": '], ids=["compact", "spaced"])
def test_an_error_at_the_top_level_of_an_event_ends_the_stream(style):
    """So does it where the stream is converted (`stream.to_hub`)."""
    said = sse(chunk({"content": 'the "message"'}))
    raw = said + sse({"message": "boom", "code": 503}) + sse(chunk({"content": "y"}), b"[DONE]")
    stream, out = through(raw.replace(b'":', style), 9999)
    assert stream.error is not None and stream.error.message == "boom"
    assert out == said.replace(b'":', style)


def test_an_answer_whose_end_is_written_in_another_style_is_complete():
    """A proxy between us and the model may write the first chunk, and nobody an end mark."""
    end = sse(chunk(finish="stop"), USAGE_CHUNK).replace(b'":', b'": ')
    stream, out = through(sse(chunk({"content": "hi"})) + end, 9999)
    assert (stream.error, stream.usage(), out) == (None, HUB_USAGE, sse(chunk({"content": "hi"})) + end)


def test_the_last_usage_counts_where_each_chunk_has_one_and_none_finishes():
    """The chunks before the last one may come in the same block, and are sent before it, too."""
    counted = [{**USAGE, "completion_tokens": count} for count in (0, 1, 1)]
    raw = sse(*(chunk({"content": "x"}, usage=usage) for usage in counted), USAGE_CHUNK, b"[DONE]")
    for size in (1, 400, len(raw)):
        stream, _ = through(raw, size)
        assert stream.usage() == HUB_USAGE and b'"usage":{"prompt_tokens":3,"completion_tokens":2' in stream.tail()


def test_estimated_usage_of_an_answer_without_a_finish_is_in_a_chunk_of_the_same_answer():
    stream, _ = through(sse({**chunk(), "id": ""}, chunk({"content": "hi"}), b"[DONE]"), 9999)
    stream._exchange.note_usage(HUB_USAGE, estimated=True)
    assert orjson.loads(Decoder().feed(stream.tail())[0].data) == {**USAGE_CHUNK, "usage": USAGE}


@pytest.mark.parametrize("apart", [{}, {"usage": None}], ids=["alone", "beside null"])
@pytest.mark.parametrize("place", ["x_groq", "the choice"])
def test_usage_in_a_member_of_another_name_is_read(place, apart):
    last = chunk(finish="stop", **apart)
    (last["choices"][0] if place == "the choice" else last.setdefault(place, {}))["usage"] = USAGE
    stream, _ = through(sse(chunk({"content": "x"}, **apart), last, b"[DONE]"), 9999)
    assert stream.usage() == HUB_USAGE


def test_invalid_utf8_does_not_reach_the_client():
    raw = b'data: {"choices":[{"index":0,"delta":{"content":"a\xff"},"finish_reason":null}]}\n\n' + sse(
        chunk(finish="stop")
    )
    _, out = through(raw, 9999)
    assert out.decode() and "\ufffd" in out.decode()


@pytest.mark.parametrize(
    "left",
    [
        b"\x00\xff",
        b": bye",
        b"<html>",
        b"data: {",
        b"\n",
        b"data: [DONE]\n\nodd",
        b'data: {"object": "cost"}\n\n',
        sse(chunk({"content": "again"})),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_bytes_after_the_end_mark_are_not_passed_on(left, size):
    finish = chunk(finish="stop", usage={"prompt_tokens": 1, "completion_tokens": 1})
    stream, out = through(sse(chunk({"content": "Hi"}), finish) + b"data: [DONE]\n\n" + left, size)
    events = [event.data for event in Decoder().feed(out + stream.tail()) if event.data]
    assert [json.loads(data) for data in events[:-1]] == [chunk({"content": "Hi"}), finish] and events[-1] == b"[DONE]"


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_every_received_event_is_available_for_any_line_ending(end):
    stream, _ = through(
        sse(chunk({"content": "a"}), chunk({"content": "b"}), chunk(finish="stop")).replace(b"\n", end), 10_000
    )
    assert [event["choices"][0]["delta"].get("content") for event in stream.received()] == ["a", "b", None]


def test_a_start_that_is_repeated_reaches_the_client_once():
    def start(name):
        usage = {"input_tokens": 3, "output_tokens": 1}
        return named({"type": "message_start", "message": {"id": name, "content": [], "usage": usage}})

    text = named({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Yes"}})
    stream = native("messages")
    assert stream.feed(start("a") + start("a") + text + start("a")) == start("a") + text
    assert stream.error is None
    assert stream.feed(start("b") + text) == b""
    assert "another message begins" in str(stream.error)


@pytest.mark.parametrize("size", [1, 300, 9999])
def test_events_keep_their_order_where_a_message_delta_without_usage_comes_before_content(size):
    start = {"type": "message_start", "message": {"id": "a", "content": [], "usage": {"input_tokens": 3}}}
    early = {"type": "message_delta", "delta": {"stop_reason": None}}
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    text = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Yes"}}
    last = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}
    raw = named(start, early, block, text, {"type": "content_block_stop", "index": 0}, last)
    stream, end = native("messages"), named({"type": "message_stop"})
    out = b"".join(stream.feed((raw + end)[at : at + size]) for at in range(0, len(raw + end), size))
    assert (stream.close(), out, stream.tail(), stream.usage()) == (b"", raw, end, {"input": 3, "output": 2})


@pytest.mark.parametrize("size", [1, 9999])
def test_events_of_messages_without_names_get_those_of_their_types(size):
    """Anthropic's SDKs ignore an event without a name (CLIENTS). OpenAI's do not."""
    events = [
        {"type": "message_start", "message": {"id": "a", "content": [], "usage": {"input_tokens": 3}}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Yes"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]
    for raw in (sse(*events), BOM + sse(*events), sse(*events).replace(b"data: ", b"event:\ndata: ")):
        stream = native("messages")
        out = b"".join(stream.feed(raw[at : at + size]) for at in range(0, len(raw), size))
        assert (stream.close(), out + stream.tail(), stream.error) == (b"", named(*events), None)


def test_a_messages_stream_passes_byte_for_byte_and_holds_its_last_event():
    start = b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":1}}  }\n\n'
    ping = b'event: ping\ndata: {"type": "ping"}\n\n'
    delta = (
        b'event: message_delta\ndata: {"type":"message_delta", "delta":{"stop_reason":"end_turn"},'
        b'"usage":{"output_tokens":1} }\n\n'
    )
    stop = b'event: message_stop\ndata: {"type":"message_stop"   }\n\n'
    stream = native("messages")
    assert stream.feed(start + ping[:10]) + stream.feed(ping[10:] + delta + stop) == start + ping + delta
    assert stream.ended and stream.close() == b"" and stream.error is None
    assert stream.tail() == stop


@pytest.mark.parametrize(
    "rest", [b"event: response.created\ndata: ", b"event: response.created", b"data:", b": no end"]
)
@pytest.mark.parametrize("protocol", ["chat", "messages"])
def test_an_event_without_complete_data_is_not_passed_on(rest, protocol):
    """It would count as the first event of an answer (no other route is tried after it), and its empty data is not
    JSON."""
    stream = native(protocol)
    assert stream.feed(rest) + stream.close() == b""
    assert stream.error is not None


@pytest.mark.parametrize("own", [0, 1, 2])
def test_the_last_usage_is_found_even_if_it_is_formatted_differently(own):
    """The search marks are taken from the first chunk with usage. If a proxy's chunks, formatted differently, come
    first, no mark matches the model's own last chunk."""
    earlier = {**USAGE_CHUNK, "usage": {"prompt_tokens": 99, "completion_tokens": 1, "total_tokens": 100}}
    chunks = [chunk({"role": "assistant"}), chunk({"content": "hi"}), chunk(finish="stop"), USAGE_CHUNK]
    stream = native()
    for number, each in enumerate([earlier, *chunks]):
        written = orjson.dumps(each) if number <= own else json.dumps(each).encode()
        stream.feed(b"data: " + written + b"\n\n")
    stream.feed(b"data: [DONE]\n\n")
    assert stream.usage() == HUB_USAGE == stream.usage()
    (last, done) = [event.data for event in Decoder().feed(stream.tail())]
    assert (orjson.loads(last)["usage"], done) == (USAGE, b"[DONE]")


@pytest.mark.parametrize(
    "blank", [b"\n\n", b"\n", b"\r", b""], ids=["a blank line", "a line feed", "a carriage return", "nothing"]
)
@pytest.mark.parametrize("ends", [True, False], ids=["the answer's end", "another event"])
def test_a_last_event_without_its_blank_line_gets_one(blank, ends):
    delta, name = b"event: content_block_stop\ndata: {}\n\n", "message_stop" if ends else "message_start"
    last = f'event: {name}\ndata: {{"type":"{name}","message":{{"usage":{{"input_tokens":1}}}}}}'.encode()
    stream = native("messages")
    out = stream.feed(delta + last + blank) + stream.close() + stream.tail()
    assert out.startswith(delta + last) and stream.ended is ends
    assert [event.name for event in Decoder().feed(out) if event.data] == ["content_block_stop", name]


@pytest.mark.parametrize("blank", [b"\n\n", b"\n", b""], ids=["a blank line", "a line feed", "nothing"])
def test_an_answer_with_a_stop_reason_is_complete_without_its_last_event(blank):
    delta = b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}'
    stream = native("messages")
    out = stream.feed(delta + blank) + stream.close() + stream.tail()
    assert stream.ended and stream.error is None
    assert [event.name for event in Decoder().feed(out) if event.data] == ["message_delta", "message_stop"]


BLOCK = b"data: a\n\ndata: b\n\n: note\n\ndata: X1\n\ndata: c\n\ndata: X2 Y\n\ndata: d\n\ndata: e"


def test_a_block_is_split_at_its_marked_events_only():
    cut, rest = split_at_marks(BLOCK, (b"X", b"Y", b"absent"))
    assert cut == [
        (False, b"data: a\n\ndata: b\n\n: note\n\n"),
        (True, b"data: X1\n\n"),
        (False, b"data: c\n\n"),
        (True, b"data: X2 Y\n\n"),
        (False, b"data: d\n\n"),
    ]
    assert rest == b"data: e"


@given(
    st.lists(
        st.sampled_from([b"data: a\n\n", b"data: X\n\n", b": c\n\n", b"data: aXb\n\n", b"data: YX\n\n", b"half"]),
        max_size=12,
    )
)
def test_the_pieces_alternate_between_marked_and_unmarked_events(blocks):
    block = b"".join(blocks)
    cut, rest = split_at_marks(block, (b"X", b"Y"))
    assert b"".join(piece for _, piece in cut) + rest == block
    assert [marked for marked, _ in cut[1:]] == [not marked for marked, _ in cut[:-1]]
    for marked, piece in cut:
        *events, end = piece.split(b"\n\n")
        assert events and end == b"" and all((b"X" in event or b"Y" in event) == marked for event in events)


@pytest.mark.parametrize("space", [b"", b" ", b"  "], ids=["compact", "one space", "two spaces"])
def test_json_with_any_spacing_is_read(space):
    def write(event):
        return json.dumps(event, separators=(",", ":" + space.decode())).encode()

    raw = b"".join(
        b"data: " + write(event) + b"\n\n"
        for event in (chunk({"content": "x"}), chunk({"content": "y"}), chunk(finish="stop"), USAGE_CHUNK)
    )
    for size in (50, 1000):
        stream, out = through(raw, size)
        assert stream.usage() == HUB_USAGE and stream.error is None
        assert b"finish_reason" in out and b'"stop"' not in out


@pytest.mark.parametrize(
    ("sent", "last"),
    [
        (b'{"sequence_number": 3}\n\n{"sequence_number":4, "x": 1}', 4),
        (b'{"sequence_number": %b}' % (b"9" * 20), -1),
        (b'{"sequence_number": %b}' % (b"9" * 5000), -1),
        (b'{"sequence_number": "4"}', -1),
        (b"{}", -1),
    ],
    ids=["the last", "too large", "more digits than Python reads", "a string", "none"],
)
def test_the_last_sequence_number_that_was_sent_is_read(sent, last):
    assert last_sequence(sent) == last


@pytest.mark.parametrize("ascii", [True, False])
def test_rewritten_events_contain_no_unicode_line_breaks(ascii: bool) -> None:
    """The upstream's escapes are gone after parsing; an unescaped line separator would split the event for clients that
    read lines."""
    offer: Any = SimpleNamespace(
        framing="ndjson",
        inner=None,
        unwrap=None,
        stream_edits=None,
        model_facts={},
        can={},
        errors=SimpleNamespace(may_match=lambda _: False),
    )
    events = [chunk({"content": text}) for text in ("a", "one\u2028two\u2029three\x85four", "b")]
    stream = Reframed(offer, "chat")
    raw = b"".join(stream.feed(json.dumps(event, ensure_ascii=ascii).encode() + b"\n") for event in events)
    raw += stream.finish()
    assert [json.loads(line[6:]) for line in raw.decode().splitlines() if line] == events


def test_frames_that_are_no_events_of_the_format_are_not_sent() -> None:
    """The end of an enveloped stream, and frames in which `unwrap` finds nothing: client libraries would read them as
    chunks without choices. A failure is in the end of such a stream, too."""
    framed = PROVIDER.replace("/chat/completions", "{path: /c, framing: enveloped, unwrap: $.chunk or $.last}")
    offer = offer_of(framed, endpoint="chat", mappings=route("chat")[1])
    error = {"error": {"message": "no"}}
    wrapped = [(0, {"chunk": chunk({"content": "a"})}), (0, {"beat": 1}), (2, {"last": {}}), (2, {"last": error})]
    frames = [(flags, json.dumps(frame).encode()) for flags, frame in wrapped]
    raw = Reframed(offer, "chat").feed(
        b"".join(bytes([flags]) + len(data).to_bytes(4) + data for flags, data in frames)
    )
    assert [json.loads(line[6:]) for line in raw.decode().splitlines() if line.startswith("data")] == [
        chunk({"content": "a"}),
        error,
    ]


def test_kept_blocks_with_thousands_of_blank_lines_are_read_up_to_these():
    """They passed unparsed; reading them for an estimate must not fail an answer that was sent."""
    kept = KeptBlocks()
    for block in (b'data: {"a": 1}\n\n', b"\n" * 30_000):
        kept.add(block)
    assert kept.events() == [{"a": 1}]
