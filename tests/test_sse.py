"""Framing of event streams: events do not depend on chunk boundaries, and no byte is lost."""

from __future__ import annotations

import json
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.places import SHARED
from tollgate.errors import UpstreamFailed
from tollgate.sse import Decoder, Event, encode, escape_line_breaks


def decode(*chunks: bytes) -> list[Event]:
    decoder = Decoder()
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return events + decoder.finish()


def names_and_data(data: bytes) -> list[tuple[str | None, bytes]]:
    return [(event.name, event.data) for event in decode(data)]


@pytest.mark.parametrize(
    ("stream", "wanted"),
    [
        pytest.param(b"data: a\n\ndata: b\n\n", [(None, b"a"), (None, b"b")], id="data only"),
        pytest.param(b"event: ping\ndata: {}\n\n", [("ping", b"{}")], id="named"),
        pytest.param(b"data: {}\nevent: ping\n\n", [("ping", b"{}")], id="name after data"),
        pytest.param(b"data: a\r\n\r\ndata: b\r\n\r\n", [(None, b"a"), (None, b"b")], id="CRLF"),
        pytest.param(b"data: a\r\rdata: b\r\r", [(None, b"a"), (None, b"b")], id="lone CR"),
        pytest.param(b"data: a\r\n\ndata: b\n\r\n", [(None, b"a"), (None, b"b")], id="mixed breaks"),
        pytest.param(b"data:a\n\ndata:  b\n\n", [(None, b"a"), (None, b" b")], id="no blank, two blanks"),
        pytest.param(b"data: a\ndata: b\ndata:\n\n", [(None, b"a\nb\n")], id="several data lines"),
        pytest.param(b"data\n\n", [(None, b"")], id="data without colon"),
        pytest.param(b": KEEP ALIVE\n\ndata: a\n\n", [(None, b""), (None, b"a")], id="comment block"),
        pytest.param(b": note\ndata: a\n\n", [(None, b"a")], id="comment inside a block"),
        pytest.param(b"id: 7\nretry: 100\ndata: a\nother: b\n\n", [(None, b"a")], id="id, retry and unknown fields"),
        pytest.param(b"event: keepalive\n\n", [("keepalive", b"")], id="name without data"),
        pytest.param(b"event:\ndata: a\n\n", [(None, b"a")], id="empty name"),
        pytest.param(b"\xef\xbb\xbfdata: a\n\n", [(None, b"a")], id="byte order mark"),
        pytest.param(
            b"data: a\n\n\xef\xbb\xbfdata: b\n\n",
            [(None, b"a"), (None, b"")],
            id="a later mark is part of a field name",
        ),
        pytest.param(b"data: a\n\ndata: [DONE]", [(None, b"a"), (None, b"[DONE]")], id="no last break at all"),
        pytest.param(b"data: a\n\ndata: b\n", [(None, b"a"), (None, b"b")], id="no last blank line"),
        pytest.param(
            b"\n\ndata: a\n\n\n", [(None, b""), (None, b""), (None, b"a"), (None, b"")], id="stray blank lines"
        ),
        pytest.param(
            b"data: \xe2\x80\xa8\x0b\x0c\n\n", [(None, b"\xe2\x80\xa8\x0b\x0c")], id="other separators are data"
        ),
        pytest.param('data: {"t": "é漢😀"}\n\n'.encode(), [(None, '{"t": "é漢😀"}'.encode())], id="utf-8"),
        pytest.param(b"", [], id="nothing"),
    ],
)
def test_a_stream_is_parsed_as_the_standard_specifies(stream: bytes, wanted: list[tuple[str | None, bytes]]) -> None:
    assert names_and_data(stream) == wanted
    assert b"".join(event.raw for event in decode(stream)) == stream
    assert decode(*(stream[i : i + 1] for i in range(len(stream)))) == decode(stream)


_PIECES = st.sampled_from(
    [
        b"data: ",
        b"data:",
        b"event: ",
        b"event: x",
        b": c",
        b"id: 1",
        b"\n",
        b"\n\n",
        b"\r\n",
        b"\r\n\r\n",
        b"\r",
        b"\r\r",
        b"{}",
        b"[DONE]",
        b"\xef\xbb\xbf",
        "é".encode(),
        b"data: {}\n\n",
        b"event: a\ndata: b\n\n",
        b" ",
        b":",
    ],
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_PIECES, max_size=24).map(b"".join), st.lists(st.integers(0, 120), max_size=12))
def test_chunk_boundaries_do_not_change_events_and_no_byte_is_lost(stream: bytes, cuts: list[int]) -> None:
    bounds = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    chunks = [stream[a:b] for a, b in pairwise(bounds)]
    whole = decode(stream)
    assert decode(*chunks) == whole
    assert decode(*(stream[i : i + 1] for i in range(len(stream)))) == whole
    assert b"".join(event.raw for event in whole) == stream


@settings(max_examples=300, deadline=None)
@given(st.lists(_PIECES, max_size=24).map(b"".join), st.lists(st.integers(0, 120), max_size=3))
def test_pairs_equal_the_events_names_and_data(stream: bytes, cuts: list[int]) -> None:
    bounds = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    events, pairs = Decoder(), Decoder()
    for begin, end in pairwise(bounds):
        assert pairs.feed_pairs(stream[begin:end]) == [
            (event.name, event.data) for event in events.feed(stream[begin:end])
        ]
    assert [(event.name, event.data) for event in pairs.finish()] == [
        (event.name, event.data) for event in events.finish()
    ]


@pytest.mark.parametrize(
    ("stream", "pairs"),
    [
        (b"data: a\n\ndata: b\n\n", [(None, b"a"), (None, b"b")]),
        (b"event: x\ndata: a\n\nevent: y\ndata: b\n\n", [("x", b"a"), ("y", b"b")]),
        (b"event: x\ndata: a\n\ndata: b\n\n", [("x", b"a"), (None, b"b")]),
        (b"event: x\ndata: a\n\nid: 1\ndata: b\n\n", [("x", b"a"), (None, b"b")]),
        (b"event: \ndata: a\n\n", [(None, b"a")]),
        (b"data: a\ndata: b\n\n", [(None, b"a\nb")]),
        (b": hm\ndata: b\n\n", [(None, b"b")]),
        (b"xdata: a\n\ndata: b\n\n", [(None, b""), (None, b"b")]),
        (b"data:a\n\ndata: b\n\n", [(None, b"a"), (None, b"b")]),
        (b"event: x\ndata: a\n\n\n", [("x", b"a"), (None, b"")]),
    ],
    ids=[
        "no names",
        "all named",
        "some named",
        "one with an id",
        "an empty name",
        "two lines of data",
        "a comment before",
        "another field",
        "no blank",
        "a blank line too many",
    ],
)
def test_pairs_of_differently_written_events(stream: bytes, pairs: list) -> None:
    assert Decoder().feed_pairs(stream) == pairs


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60).filter(lambda b: b"\r" not in b), st.sampled_from([None, "message_start", "ping"]))
def test_an_encoded_event_is_decoded_unchanged(data: bytes, name: str | None) -> None:
    raw = encode(data, name)
    assert decode(raw) == [Event(name, data, raw)]


def test_a_line_break_in_data_cannot_forge_an_event() -> None:
    assert names_and_data(encode(b"a\n\nevent: x\r\ndata: b\n")) == [(None, b"a\n\nevent: x\ndata: b\n")]
    assert names_and_data(encode(b"a\r\revent: x")) == [(None, b"a\n\nevent: x")]


@settings(max_examples=50, deadline=None)
@given(st.text(st.sampled_from('a\\"é\u2027\u2028\u2029\u202a\x84\x85\n'), max_size=12))
def test_encoded_json_has_no_other_line_separators(text: str) -> None:
    """httpx's `iter_lines` and Swift's `lines` also split at these characters, and half a JSON text is an error."""
    raw = escape_line_breaks(encode(json.dumps({text: text}, ensure_ascii=False).encode()))
    assert raw.decode().splitlines() == [raw.decode()[:-2], ""]
    assert [json.loads(event.data) for event in decode(raw)] == [{text: text}]


def test_a_comment_is_an_event_without_data() -> None:
    assert decode(b": still here\n\n") == [Event(None, b"", b": still here\n\n")]


def test_an_event_is_returned_as_soon_as_its_blank_line_arrives() -> None:
    decoder = Decoder()
    assert [e.data for e in decoder.feed(b"data: a\n\ndata: b")] == [b"a"]
    assert [e.data for e in decoder.feed(b"c\n\n")] == [b"bc"]
    assert decoder.feed(b"data: d\r\n\r") == []
    assert [e.data for e in decoder.feed(b"\n")] == [b"d"]


def test_short_events_after_a_long_one_in_pieces_are_returned_at_once() -> None:
    decoder = Decoder()
    assert decoder.feed(b"data: " + b"a" * 100) == []
    assert [len(e.data) for e in decoder.feed(b"\n\ndata: b")] == [100]
    assert [e.data for e in decoder.feed(b"\n\ndata: c")] == [b"b"]


@pytest.mark.parametrize(
    "chunk", [b"x" * 600, b"data: y\n" * 80, b"data: z\r\n" * 70], ids=["one line", "LF lines", "CRLF lines"]
)
def test_an_event_over_the_maximum_size_is_rejected(chunk: bytes) -> None:
    decoder = Decoder(max_event_bytes=1000)
    decoder.feed(chunk)
    with pytest.raises(UpstreamFailed, match="exceeds 1000 bytes"):
        decoder.feed(chunk)


@pytest.mark.parametrize("line", [b"data: x\n", b"data:x\r", b"data:x\r\n"])
def test_an_event_with_too_many_lines_is_rejected(monkeypatch: pytest.MonkeyPatch, line: bytes) -> None:
    monkeypatch.setattr("tollgate.sse._MOST_LINES", 100)
    assert decode(line * 45 + b"\n\n")[0].data == b"\n".join([b"x"] * 45)
    with pytest.raises(UpstreamFailed, match="a stream event has more than 100 lines"):
        decode(line * 200 + b"\n\n")


@pytest.mark.parametrize(
    ("line", "end"),
    [(b"\n", b"\n"), (b"\r", b"\r"), (b"\r\n", b"\r\n"), (b":\n\n", b"\n"), (b": a\r\n\r\n", b"\r\n")],
    ids=["LF", "CR", "CRLF", "comments", "comments with CRLF"],
)
@pytest.mark.parametrize("size", [1, 40], ids=["line by line", "many at once"])
def test_a_stream_of_blank_lines_or_comments_is_rejected_unless_events_come_between(
    monkeypatch: pytest.MonkeyPatch, line: bytes, end: bytes, size: int
) -> None:
    monkeypatch.setattr("tollgate.sse._MOST_STRAYS", 100)
    event = b"data: x" + end * 2
    spaced = Decoder()
    for _ in range(100):  # heartbeats in front of each event
        spaced.feed_pairs(line)
        spaced.feed_pairs(line + event)
        spaced.feed_pairs(event)
    assert len(spaced.feed(event)) + len(spaced.finish()) >= 1
    flooded = Decoder()
    flooded.feed(event)
    with pytest.raises(UpstreamFailed, match="a stream consists of blank lines"):
        for _ in range(120 // size):
            flooded.feed(line * size)


def test_a_large_event_in_small_chunks_takes_linear_time() -> None:
    def seconds(count: int) -> float:
        decoder = Decoder()
        piece = b"x" * 512
        started = time.process_time()
        decoder.feed(b"data: ")
        for _ in range(count):
            decoder.feed(piece)
        assert len(decoder.feed(b"\n\n")) == 1
        return time.process_time() - started

    assert seconds(16_000) < 1.0


def test_recorded_streams_are_decoded_alike_in_any_chunks() -> None:
    index = SHARED / "traffic" / "index.json"
    if not index.exists():
        pytest.skip(f"no recorded traffic beside the repository ({index})")
    rows = [row for row in json.loads(index.read_text())["exchanges"] if row.get("framing") == "sse"]
    assert len(rows) > 100
    for row in rows[::9]:
        exchange = json.loads((SHARED / "traffic" / row["file"]).read_text())
        stream = exchange["response"]["sse"].encode()
        whole = decode(stream)
        assert b"".join(event.raw for event in whole) == stream
        for size in (1, 7, 1000):
            assert decode(*(stream[i : i + size] for i in range(0, len(stream), size))) == whole
