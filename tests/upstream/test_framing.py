"""Framings: frames do not depend on chunk boundaries; broken ones are rejected."""

from __future__ import annotations

import base64
import json
import struct
import time
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.eventstream import message
from support.places import TRAFFIC
from tollgate.errors import AnswerLost, UpstreamError, UpstreamFailed
from tollgate.upstream.framing import decoder


def decode(framing: str, *chunks: bytes, limit: int = 1_000_000) -> list[tuple]:
    reader = decoder(framing, limit)  # type: ignore[arg-type]
    frames = [frame for chunk in chunks for frame in reader.feed(chunk)] + list(reader.finish())
    return [(frame.name, frame.data, frame.error) for frame in frames]


START = message(
    b'{"role":"assistant"}', message_type="event", event_type="messageStart", content_type="application/json"
)
DELTA = message(b'{"delta":{"text":"hi"}}', message_type="event", event_type="contentBlockDelta")
THROTTLED = message(b'{"message":"slow down"}', message_type="exception", exception_type="throttlingException")
FAULT = message(b"", message_type="error", error_code="InternalError", error_message="boom")

STREAMS = {
    "sse": (b": hi\n\nevent: a\r\ndata: {}\r\n\r\ndata: [DONE]", [b"", b"{}", b"[DONE]"]),
    "ndjson": (b'{"a":1}\n\n{"b":"\\n"}\r\n{"c":3}', [b'{"a":1}', b'{"b":"\\n"}', b'{"c":3}']),
    "lines": (b"PING\r\n\n 0:1 \nEND", [b"PING", b" 0:1 ", b"END"]),
    "json-array": (
        b' [{"a":"]},\\"{"}\n,\r\n[1,[2]], 7 ,"x,y",null, {}\n]\n',
        [b'{"a":"]},\\"{"}', b"[1,[2]]", b"7", b'"x,y"', b"null", b"{}"],
    ),
    "aws-eventstream": (START + DELTA, [b'{"role":"assistant"}', b'{"delta":{"text":"hi"}}']),
}


@pytest.mark.parametrize("inner", ["sse", "ndjson", "json-array", "lines"])
def test_a_stream_nested_in_another_framing_is_decoded_at_any_boundaries(inner: str) -> None:
    stream, wanted = STREAMS[inner]
    for size in (1, 2, 3, 7, len(stream)):
        outer = b"".join(
            message(stream[at : at + size], message_type="event", event_type="PayloadPart")
            for at in range(0, len(stream), size)
        )
        for cut in (1, 50, len(outer)):
            reader = decoder("aws-eventstream", inner=inner)  # type: ignore[arg-type]
            frames = [frame for at in range(0, len(outer), cut) for frame in reader.feed(outer[at : at + cut])] + list(
                reader.finish()
            )
            assert [frame.data for frame in frames] == wanted


def test_an_exception_frame_between_nested_frames_is_reported() -> None:
    reader = decoder("aws-eventstream", inner="ndjson")
    failed = message(
        b'{"message":"the model broke","errorCode":"StreamBroken"}',
        message_type="exception",
        exception_type="ModelStreamError",
    )
    frames = reader.feed(message(b'{"a":1}\n{"b"', message_type="event", event_type="PayloadPart") + failed)
    assert [(frame.name, frame.data, frame.error) for frame in frames] == [
        (None, b'{"a":1}', False),
        ("ModelStreamError", b'{"message":"the model broke","errorCode":"StreamBroken"}', True),
    ]


def test_a_text_stream_is_decoded_in_whole_characters_and_its_cut_end_is_shown() -> None:
    assert decode("text", b"h\xc3", b"\xa9", b"\xe2\x82") == [
        (None, b"h", False),
        (None, "é".encode(), False),
        (None, "\N{REPLACEMENT CHARACTER}".encode(), False),
    ]
    assert decode("text", b"hi") == [(None, b"hi", False)]


@pytest.mark.parametrize("framing", STREAMS)
def test_a_stream_is_decoded_at_any_boundaries(framing: str) -> None:
    stream, wanted = STREAMS[framing]
    whole = decode(framing, stream)
    assert [data for _, data, _ in whole] == wanted
    for at in range(len(stream)):
        assert decode(framing, stream[:at], stream[at:]) == whole
    assert decode(framing, *(stream[i : i + 1] for i in range(len(stream)))) == whole


_JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(st.lists(_JSON, max_size=6), st.sampled_from([None, 0, 2]), st.booleans(), st.integers(1, 9))
def test_any_array_is_split_into_its_elements(values: list, indent: int | None, ascii_only: bool, size: int) -> None:
    stream = json.dumps(values, indent=indent, ensure_ascii=ascii_only).encode()
    frames = decode("json-array", *(stream[i : i + size] for i in range(0, len(stream), size)))
    assert [json.loads(data) for _, data, _ in frames] == values


def test_an_element_is_returned_before_its_comma() -> None:
    reader = decoder("json-array")
    assert [frame.data for frame in reader.feed(b'[{"a":1}')] == [b'{"a":1}']
    assert [frame.data for frame in reader.feed(b',{"b":2}')] == [b'{"b":2}']


@pytest.mark.parametrize(
    "document", [b'{"error":{"code":503}}', b"upstream connect error", b'[{"error":{}}'], ids=["object", "text", "cut"]
)
def test_a_document_that_is_no_array_is_one_event(document: bytes) -> None:
    assert [data for _, data, _ in decode("json-array", document)] == [document.lstrip(b"[")]


BETWEEN = {
    "record separators": b'\x1e{"a":\n1}\n\x1e[2]\n\x1e{"b":"{"}\n',
    "lengths": b'8\n{"a":\n1}3\n[2]9\n{"b":"{"}\n',
    "headers": b'Content-Length: 8\r\nDate: Mon, 1 Jan\r\n\r\n{"a":\n1}Content-Length: 3\r\n\r\n[2]X: "]"\n\n{"b":"{"}',
    "boundaries": b'--x\r\nC: "y"\r\n\r\n{"a":\n1}\r\n--x\r\n\r\n[2]\r\n--x\r\n\r\n{"b":"{"}\r\n--x--\r\n',
    "nothing": b'{"a":\n1}[2]{"b":"{"}',
}


@pytest.mark.parametrize("stream", BETWEEN.values(), ids=BETWEEN)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_json_documents_are_found_with_other_text_between_them(stream: bytes, size: int) -> None:
    frames = decode("json-array", *(stream[at : at + size] for at in range(0, len(stream), size)))
    assert [data for _, data, _ in frames] == [b'{"a":\n1}', b"[2]", b'{"b":"{"}']


def test_a_document_that_is_cut_off_is_returned_for_the_error_message() -> None:
    assert [data for _, data, _ in decode("json-array", b'\x1e{"a":1}\n\x1e{"b":')] == [b'{"a":1}', b'{"b":']


def test_values_without_brackets_between_documents_are_events() -> None:
    assert [data for _, data, _ in decode("json-array", b'{"a":1}, 7, "x", {}\n"end"')] == [
        b'{"a":1}',
        b"7",
        b'"x"',
        b"{}",
        b'"end"',
    ]


@pytest.mark.parametrize("begins", [b"[", b"{},"], ids=["in the array", "after a document"])
def test_many_commas_of_an_array_take_linear_time(begins):
    """A tenth of a second; in quadratic time, more than ten."""
    began = time.process_time()  # CPU time, which excludes other processes
    frames = decode("json-array", begins + b"," * 200_000 + b'{"a": 1}]'[: None if begins == b"[" else -1])
    assert time.process_time() - began < 5
    assert [data for _, data, _ in frames][-1] == b'{"a": 1}'


def prefixed(*messages: bytes, flags: bytes = b"") -> bytes:
    """The messages with their lengths, and with one byte of `flags` each."""
    return b"".join(flags[at : at + 1] + len(message).to_bytes(4) + message for at, message in enumerate(messages))


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_messages_after_their_lengths_are_events(size: int) -> None:
    long = b'{"v":"' + b"x" * 300 + b'"}'
    stream = prefixed(b'{"v":"{"}', b"", long, b"[1]")
    frames = decode("length-prefixed", *(stream[at : at + size] for at in range(0, len(stream), size)))
    assert [(name, data) for name, data, _ in frames] == [(None, b'{"v":"{"}'), (None, long), (None, b"[1]")]


def test_the_envelope_that_ends_a_stream_is_named() -> None:
    stream = prefixed(b'{"v":1}', b'{"error":{"code":"unavailable"}}', flags=b"\0\2")
    frames = decode("enveloped", stream[:8], stream[8:])
    assert [(name, data) for name, data, _ in frames] == [
        (None, b'{"v":1}'),
        ("end", b'{"error":{"code":"unavailable"}}'),
    ]


@pytest.mark.parametrize(
    ("framing", "stream", "message"),
    [
        ("length-prefixed", b"\0\0\0\x09{", "ended inside a message"),
        ("length-prefixed", b'{"error": 1}', "claims 2065851762 bytes"),
        ("enveloped", b"\1\0\0\0\1x", "compressed"),
    ],
    ids=["cut off", "JSON instead of messages", "compressed"],
)
def test_broken_messages_are_rejected(framing: str, stream: bytes, message: str) -> None:
    with pytest.raises(UpstreamError, match=message):
        decode(framing, stream)


def test_an_exception_inside_a_stream_is_flagged_and_named() -> None:
    frames = decode("aws-eventstream", START + THROTTLED + FAULT)
    assert frames == [
        ("messageStart", b'{"role":"assistant"}', False),
        ("throttlingException", b'{"message":"slow down"}', True),
        ("InternalError", b'{"message": "boom"}', True),
    ]


def test_every_header_type_is_skipped() -> None:
    heading = b"".join(
        bytes([1]) + name + body
        for name, body in [
            (b"a", b"\x00"),
            (b"b", b"\x01"),
            (b"c", b"\x02\x7f"),
            (b"d", b"\x03\x00\x01"),
            (b"e", b"\x04\x00\x00\x00\x01"),
            (b"f", b"\x05" + bytes(8)),
            (b"g", b"\x06\x00\x02hi"),
            (b"h", b"\x08" + bytes(8)),
            (b"i", b"\x09" + bytes(16)),
        ]
    )
    heading += b"\x0b:event-type\x07\x00\x01x"
    prelude = struct.pack(">II", len(heading) + 16, len(heading))
    body = prelude + struct.pack(">I", zlib.crc32(prelude)) + heading
    assert [name for name, *_ in decode("aws-eventstream", body + struct.pack(">I", zlib.crc32(body)))] == ["x"]


def _flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("at", range(0, len(DELTA), 3))
def test_a_flipped_bit_is_detected_anywhere(at: int) -> None:
    with pytest.raises(UpstreamFailed, match="event stream message"):
        decode("aws-eventstream", _flip(DELTA, at) + bytes(64))


def _claiming(total: int, heading: int) -> bytes:
    prelude = struct.pack(">II", total, heading)
    return prelude + struct.pack(">I", zlib.crc32(prelude))


@pytest.mark.parametrize(
    "data",
    [_claiming(15, 0), _claiming(100, 90), _claiming(2_000_000, 0), _claiming(300_000, 200_000)],
    ids=["too short", "headers longer than all", "too long", "headers too long"],
)
def test_an_impossible_length_is_rejected_at_once(data: bytes) -> None:
    with pytest.raises(UpstreamFailed, match="claims"):
        decode("aws-eventstream", data)


def test_malformed_headers_with_valid_checksums_are_rejected() -> None:
    for heading in (b"\x05a", b"\x01a\x63", b"\x01a\x07\x00\x09x", b"\x01\xff\x00", b"\x01a\x04\x00"):
        prelude = struct.pack(">II", len(heading) + 16, len(heading))
        body = prelude + struct.pack(">I", zlib.crc32(prelude)) + heading
        with pytest.raises(UpstreamFailed, match="malformed headers"):
            decode("aws-eventstream", body + struct.pack(">I", zlib.crc32(body)))


def test_a_stream_that_ends_inside_a_message_is_incomplete() -> None:
    with pytest.raises(AnswerLost, match="inside a message"):
        decode("aws-eventstream", START + DELTA[:-1])


@pytest.mark.parametrize(
    ("framing", "piece"),
    [("sse", b"data: x"), ("ndjson", b"xxxxxxx"), ("json-array", b'[{"a":"'), ("json-array", b"[[[[[[")],
)
def test_an_endless_event_is_rejected(framing: str, piece: bytes) -> None:
    with pytest.raises(UpstreamFailed, match="exceeds 1000 bytes"):
        decode(framing, *[piece] * 300, limit=1000)


def test_an_unmatched_closing_bracket_is_rejected() -> None:
    with pytest.raises(UpstreamFailed, match="closes more"):
        decode("json-array", b"]")


def test_an_unknown_framing_is_an_internal_error() -> None:
    with pytest.raises(ValueError, match="no such framing"):
        decoder("morse")  # type: ignore[arg-type]


def _recorded(framing: str) -> list[dict]:
    if not (TRAFFIC / "index.json").exists():
        pytest.skip(f"no recorded traffic beside the repository ({TRAFFIC})")
    rows = json.loads((TRAFFIC / "index.json").read_text())["exchanges"]
    return [
        json.loads((TRAFFIC / row["file"]).read_text())["response"] for row in rows if row.get("framing") == framing
    ]


def test_recorded_line_streams_are_decoded() -> None:
    answers = _recorded("ndjson")
    assert answers
    for answer in answers:
        events = [json.loads(data) for _, data, _ in decode("ndjson", answer["sse"].encode())]
        assert events[-1]["done"] is True


def test_recorded_binary_streams_are_decoded() -> None:
    answers = [answer for answer in _recorded("aws-eventstream") if "raw_base64" in answer]
    assert answers
    for answer in answers:
        raw = base64.b64decode(answer["raw_base64"])
        frames = decode("aws-eventstream", *(raw[i : i + 100] for i in range(0, len(raw), 100)))
        assert [frame[0] for frame in frames] == [
            event["headers"].get(":event-type") or event["headers"].get(":exception-type") for event in answer["events"]
        ]
