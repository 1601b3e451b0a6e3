"""Upstreams with invented formats and unusual behaviour: no streaming, plain text events, errors that only the mapping
recognises."""

import asyncio
import json
from base64 import b64encode
from decimal import Decimal

import pytest

from completions.invented import ANSWER, ASK, BITS, JSON, MAPPING, STREAM, events_of, provider, text_of, write_mapping
from support.eventstream import message
from support.inprocess import SSE, inprocess, replying
from support.usage_files import rows
from support.waiting import until
from tollgate.errors import ConfigErrors


async def test_a_stream_for_an_upstream_that_does_not_stream_is_made_from_its_whole_answer(tmp_path):
    write_mapping(tmp_path, "whole-only")
    seen = []
    answer = {**ANSWER, "calls": [{"name": "f", "with": {"k": 1}}]}
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "whole-only", more="headers: {x-live: {$when: $stream, $value: '1'}}")},
        apps={"acme": replying(body=json.dumps(answer).encode(), seen=seen)},
    ) as here:
        chat = await here.post("/v1/chat/completions", {**ASK, "stream": True})
        assert chat.headers["content-type"].startswith("text/event-stream") and chat.text.endswith("data: [DONE]\n\n")
        assert json.loads(seen[0][3]) == {"prompt": "hello"} and "x-live" not in seen[0][2]
        assert text_of(chat) == "hi there"
        calls = [
            call
            for event in events_of(chat)
            for choice in event["choices"]
            for call in choice["delta"].get("tool_calls") or []
        ]
        assert "".join(call["function"].get("arguments") or "" for call in calls) == '{"k":1}'
        assert (
            events_of(chat)[-1]["usage"]["total_tokens"] == 15 and chat.headers["x-tollgate-dropped"] == "turns[].role"
        )
        messages = await here.post("/v1/messages", {**ASK, "max_tokens": 9, "stream": True})
        assert [event["type"] for event in events_of(messages)][-1] == "message_stop"
        responses = await here.post("/v1/responses", {"model": "acme/one", "input": "hello", "stream": True})
        assert events_of(responses)[-1]["type"] == "response.completed"
        found = await rows(here, tmp_path)
    assert [(row["stream"], row["outcome"], row["cost"], row["estimated"]) for row in found] == [
        (True, "ok", Decimal("0.02"), False)
    ] * 3


async def test_a_failed_upstream_that_does_not_stream_falls_back_to_the_next_route(tmp_path):
    write_mapping(tmp_path, "whole-only")
    async with inprocess(
        tmp_path,
        providers={"first": provider("first", "whole-only"), "second": provider("second", "whole-only", priority=1)},
        apps={"first": replying(500, b'{"trouble": "x"}'), "second": replying(body=json.dumps(ANSWER).encode())},
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": True})
        assert reply.headers["x-tollgate-attempts"] == "2" and text_of(reply) == "hi there"


@pytest.mark.parametrize("framing", ["ndjson", "json-array"])
async def test_a_stream_of_json_documents_may_have_a_json_content_type(tmp_path, framing):
    write_mapping(tmp_path, "bits", MAPPING + STREAM)
    documents = [json.dumps(bit).encode() for bit in BITS]
    blocks = [document + b"\n" for document in documents] if framing == "ndjson" else [b"[", b",".join(documents), b"]"]
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "bits", framing=framing)},
        apps={"acme": replying(blocks=blocks, headers=JSON)},
    ) as here:
        assert text_of(await here.post("/v1/chat/completions", {**ASK, "stream": True})) == "hi there"


@pytest.mark.parametrize("framing", ["ndjson", "json-array"])
async def test_an_error_object_instead_of_a_json_stream_falls_back_to_the_next_route(tmp_path, framing):
    write_mapping(tmp_path, "bits", MAPPING + STREAM)
    async with inprocess(
        tmp_path,
        providers={
            "first": provider("first", "bits", framing=framing),
            "second": provider("second", "bits", priority=1),
        },
        apps={
            "first": replying(body=b'{"trouble": "busy"}'),
            "second": replying(blocks=[b"data: " + json.dumps(bit).encode() + b"\n\n" for bit in BITS], headers=SSE),
        },
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": True})
        assert reply.headers["x-tollgate-attempts"] == "2" and text_of(reply) == "hi there"


async def test_an_error_that_only_the_mapping_recognises_is_not_billed_before_any_output(tmp_path):
    write_mapping(tmp_path, "bits", MAPPING + STREAM)
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "bits")},
        apps={"acme": replying(blocks=[b'data: {"trouble": "busy"}\n\n'], headers=SSE)},
    ) as here:
        reply = await here.post("/v1/messages", {**ASK, "max_tokens": 9, "stream": True})
        assert reply.status_code == 500 and here.balance() == Decimal(100)


async def test_an_error_after_some_text_ends_the_stream(tmp_path):
    write_mapping(tmp_path, "bits", MAPPING + STREAM)
    blocks = [b'data: {"bit": "hi"}\n\ndata: {"trouble": "busy"}\n\n']
    async with inprocess(
        tmp_path,
        providers={"first": provider("first", "bits"), "second": provider("second", "bits", priority=1)},
        apps={"first": replying(blocks=blocks, headers=SSE), "second": replying(500, b"{}")},
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": True})
        assert reply.headers["x-tollgate-attempts"] == "1"
        assert reply.text.count('"error"') == 1 and '"hi"' in reply.text


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
@pytest.mark.parametrize("started", [False, True])
async def test_a_failure_message_inside_a_stream_is_logged_and_not_sent_to_the_client(tmp_path, caplog, path, started):
    write_mapping(tmp_path, "bits", MAPPING + STREAM)
    blocks = [b'data: {"bit": "hi"}\n\n'] * started + [
        b'data: {"trouble": "node gpu-7: key sk-canary is out of money"}\n\n'
    ]
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "bits", more="headers: {x-key: $secret.ACME_KEY}")},
        environ={"ACME_KEY": "sk-canary"},
        apps={"acme": replying(blocks=blocks, headers=SSE)},
    ) as here:
        reply = await here.post(path, {**ASK, "input": "hello", "max_tokens": 9, "stream": True})
        assert (
            "failed to answer" in reply.text or path == "/v1/chat/completions" and not started
        ) and "gpu-7" not in reply.text
        assert "response.failed" in reply.text or not (started and path == "/v1/responses")
    assert "gpu-7" in caplog.text and "sk-canary" not in caplog.text + reply.text


async def test_chunks_with_a_success_code_and_no_finish_reason_are_an_answer(tmp_path):
    events = [
        {"code": 0, "message": "Success", "choices": [{"index": 0, "delta": {"content": word}}]}
        for word in ("hi", " there")
    ]
    blocks = [*(b"data:%b\n\n" % json.dumps(event).encode() for event in events), b"data:[DONE]\n\n"]
    text = provider("acme", "chat", more="stream: [{default: {object: chat.completion.chunk}}]")
    async with inprocess(
        tmp_path, providers={"acme": text}, apps={"acme": replying(blocks=blocks, headers=SSE)}
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": True})
        assert reply.text.endswith("data: [DONE]\n\n") and reply.text.count("[DONE]") == 1 and "error" not in reply.text
        converted = (await here.post("/v1/messages", {**ASK, "max_tokens": 9, "stream": True})).text
        assert "message_stop" in converted and "error" not in converted


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_with_stop_reason_error_is_never_reported_as_finished(tmp_path, stream, path):
    write_mapping(tmp_path, "bits", MAPPING + STREAM)
    failed = {"body": json.dumps({**ANSWER, "reason": "error"}).encode()}
    if stream:
        failed = {
            "blocks": [b'data: {"bit": "hi"}\n\n', b'data: {"reason": "error", "tokens_in": 10, "tokens_out": 5}\n\n'],
            "headers": SSE,
        }
    async with inprocess(
        tmp_path, providers={"acme": provider("acme", "bits")}, apps={"acme": replying(**failed)}
    ) as here:
        reply = await here.post(path, {**ASK, "max_tokens": 9, "stream": stream})
        assert reply.status_code == (200 if stream else 500)
        assert not any(word in reply.text for word in ('"stop"', "end_turn", "message_stop", "[DONE]"))
        (row,) = await rows(here, tmp_path)
        assert row["outcome"] == "upstream_error" and row["output_tokens"] == (5 if stream else 0)


TEXTS = """
stream:
  to_hub:
    $match: $event
    output: [{delta: {kind: text, text: $}}]
    done: [{stop: {reason: end}}]
"""


async def test_plain_text_events_are_passed_through_verbatim(tmp_path):
    write_mapping(tmp_path, "texts", MAPPING + TEXTS)
    texts = ["Hel", "lo 42", "007", "1.50", "null", '"', "{}", " ", "a\nb", "né"]
    blocks = ["event: output\n" + "".join(f"data: {line}\n" for line in text.split("\n")) + "\n" for text in texts]
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "texts", framing="sse-text")},
        apps={
            "acme": replying(blocks=[block.encode() for block in (*blocks, "event: done\ndata: {}\n\n")], headers=SSE)
        },
    ) as here:
        assert text_of(await here.post("/v1/chat/completions", {**ASK, "stream": True})) == "".join(texts)


@pytest.mark.parametrize("text", [b"hi", b"null"], ids=["text", "JSON without a text"])
async def test_an_answer_that_is_empty_because_its_events_are_text_is_logged(tmp_path, caplog, text):
    write_mapping(tmp_path, "texts", MAPPING + TEXTS)
    blocks = [b"event: output\ndata: " + text + b"\n\n", b"event: odd\ndata: {}\n\n", b"event: done\ndata: {}\n\n"]
    async with inprocess(
        tmp_path, providers={"acme": provider("acme", "texts")}, apps={"acme": replying(blocks=blocks, headers=SSE)}
    ) as here:
        assert text_of(await here.post("/v1/chat/completions", {**ASK, "stream": True})) == ""
        assert here.services.metrics.unmatched_events == {"texts odd": 1}
    words = (
        "provider acme: an answer is empty, and events of its stream (1) are not JSON, which `framing: sse` leaves out"
    )
    assert caplog.text.count(words) == (1 if text == b"hi" else 0)


NAMED = """
stream:
  to_hub:
    $match: $event
    piece: [{delta: {kind: text, text: TEXT}}]
    end|over: [{stop: {reason: end}}]
"""


@pytest.mark.parametrize("framing", ["sse", "sse-text"])
@pytest.mark.parametrize("end", [b"event: end\r\n\r\n", b"event: over\n\n", b"event: end\ndata:\n\n", b"event: end"])
async def test_an_event_without_data_may_end_a_stream(tmp_path, framing, end):
    """LangServe and LangGraph end their streams so (`yield {"event": "end"}`). Other names are still left out."""
    text = "$" if framing == "sse-text" else "$.t"
    write_mapping(tmp_path, "named", MAPPING + NAMED.replace("TEXT", text))
    pieces = [b"hi", b" there"] if framing == "sse-text" else [b'{"t": "hi"}', b'{"t": " there"}']
    blocks = [b"event: ping\n\n", *(b"event: piece\ndata: " + piece + b"\n\n" for piece in pieces), end]
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "named", framing=framing)},
        apps={"acme": replying(blocks=blocks, headers=SSE)},
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": True})
        assert text_of(reply) == "hi there" and events_of(reply)[-1]["choices"][0]["finish_reason"] == "stop"
        found = await rows(here, tmp_path)
    assert [row["outcome"] for row in found] == ["ok"]


async def test_the_line_of_a_mapping_that_cannot_process_a_request_is_in_the_log(tmp_path, caplog):
    write_mapping(tmp_path, "sums", MAPPING.replace("live: $.stream", 'most: "{{ $.max_tokens - $.user }}"'))
    caplog.set_level("DEBUG", "tollgate.completions")
    async with inprocess(tmp_path, providers={"acme": provider("acme", "sums")}, apps={"acme": replying()}) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "max_tokens": 5, "user": "x"})
        assert (reply.status_code, reply.text) == (400, "cannot subtract a number and a text")
    assert "sums.yaml:4: cannot subtract a number and a text" in caplog.text


async def test_the_end_mark_is_recognised_among_plain_text_events(tmp_path):
    write_mapping(tmp_path, "just-texts", MAPPING + "stream: {to_hub: {always: [{delta: {kind: text, text: $}}]}}\n")
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "just-texts", framing="sse-text")},
        apps={"acme": replying(blocks=[b"data: hi\n\ndata:\n\n", b"data: [DONE]\n\n"], headers=SSE)},
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": True})
        assert text_of(reply) == "hi" and reply.text.endswith("data: [DONE]\n\n")


LINES = """
stream:
  to_hub:
    $let: {tag: "{{ $[:1] }}", value: "{{ $[2:] | parse_json }}"}
    always:
      - {$when: $tag == '0', delta: {kind: text, text: $value}}
      - {$when: $ == 'END', stop: {reason: end}}
"""


async def test_a_line_may_be_a_heartbeat_a_tag_with_json_or_the_end_mark(tmp_path):
    write_mapping(tmp_path, "tagged", MAPPING + LINES)
    lines = b'PING\r\n0:"Hel"\r\n\r\nPING\r\n0:" lo"\r\nEND'
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "tagged", framing="lines")},
        apps={
            "acme": replying(
                blocks=[lines[at : at + 5] for at in range(0, len(lines), 5)], headers={"content-type": "text/plain"}
            )
        },
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": True})
        assert text_of(reply) == "Hel lo" and reply.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_body_may_be_the_text_of_the_answer_and_nothing_else(tmp_path, stream):
    rules = "stream: {to_hub: {always: [{delta: {kind: text, text: $}}, {stop: {reason: end}}]}}\n"
    write_mapping(tmp_path, "bare", "mapping: NAME\nrequest: {from_hub: {live: $.stream}}\n" + rules)
    text = "né ☃\n\n[1,"
    blocks = [bytes([byte]) for byte in text.encode()]
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "bare", framing="text")},
        apps={"acme": replying(blocks=blocks, headers={"content-type": "text/plain; charset=utf-8"})},
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": stream})
        said = text_of(reply) if stream else reply.json()["choices"][0]["message"]["content"]
        assert said == text and "�" not in reply.text


@pytest.mark.parametrize("framing", ["ndjson", "sse"])
async def test_a_stream_inside_a_field_of_the_events_of_another(tmp_path, framing):
    write_mapping(tmp_path, "relayed", MAPPING + STREAM)
    inner = "".join(f"event: bit\ndata: {json.dumps(bit)}\n\n" for bit in BITS)
    pieces = [json.dumps({"seq": at, "chunk": inner[at : at + 11]}) for at in range(0, len(inner), 11)] + [
        '{"seq": -1}'
    ]
    blocks = [f"data: {piece}\n\n" if framing == "sse" else f"{piece}\n" for piece in pieces]
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "relayed", framing=f"{framing}, inner: sse, inner_of: $.chunk")},
        apps={"acme": replying(blocks=[block.encode() for block in blocks], headers=SSE)},
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": True})
        assert text_of(reply) == "hi there" and events_of(reply)[-1]["usage"]["total_tokens"] == 15


async def test_a_frame_with_half_a_surrogate_pair_does_not_lose_its_piece_of_the_inner_stream(tmp_path):
    write_mapping(tmp_path, "relayed", MAPPING + STREAM)
    frames = [json.dumps({"chunk": f"data: {json.dumps(bit)}\n\n", "title": "\ud83d"}) + "\n" for bit in BITS]
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "relayed", framing="ndjson, inner: sse, inner_of: $.chunk")},
        apps={"acme": replying(blocks=[frame.encode() for frame in frames], headers=SSE)},
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": True})
        assert text_of(reply) == "hi there" and events_of(reply)[-1]["usage"]["total_tokens"] == 15


@pytest.mark.parametrize("size", [1, 2, 5])
async def test_a_base64_piece_of_an_inner_stream_may_end_inside_a_character(tmp_path, size):
    write_mapping(tmp_path, "relayed", MAPPING + STREAM)
    text = "né ☃ 😀"
    bits = [*({"bit": letter} for letter in text), BITS[-1]]
    inner = "".join(f"data: {json.dumps(bit, ensure_ascii=False)}\n\n" for bit in bits).encode()
    pieces = [b64encode(inner[at : at + size]).decode() for at in range(0, len(inner), size)]
    framing = '"ndjson", inner: sse, inner_of: "$.chunk | from_base64"'
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "relayed", framing=framing)},
        apps={"acme": replying(blocks=[f'{{"chunk": "{piece}"}}\n'.encode() for piece in pieces], headers=SSE)},
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": True})
        assert text_of(reply) == text and events_of(reply)[-1]["usage"]["total_tokens"] == 15


async def test_json_lines_inside_the_frames_of_an_event_stream_are_read(tmp_path):
    write_mapping(tmp_path, "bits", MAPPING + STREAM)
    lines = b"".join(json.dumps(bit).encode() + b"\n" for bit in BITS)
    frames = [
        message(lines[at : at + 9], message_type="event", event_type="PayloadPart") for at in range(0, len(lines), 9)
    ]
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "bits", framing="aws-eventstream, inner: ndjson")},
        apps={"acme": replying(blocks=frames, headers={"content-type": "application/vnd.amazon.eventstream"})},
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": True})
        assert text_of(reply) == "hi there" and events_of(reply)[-1]["usage"]["total_tokens"] == 15


@pytest.mark.parametrize(
    ("payload", "told"), [(b"", "refused"), (b"Too long.", "Too long."), (b'{"message":"No."}', "No.")]
)
async def test_an_exception_frame_without_json_is_told_by_its_type(tmp_path, payload, told):
    write_mapping(tmp_path, "bits", MAPPING + STREAM)
    when = "status: 200, when: $.error.type == 'refused'"
    rule = f"errors: {{rules: [{{{when}, verdict: stop, as: 400, message: $.error.message}}]}}"
    frame = message(payload, message_type="exception", exception_type="refused")
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "bits", framing="aws-eventstream", more=rule)},
        apps={"acme": replying(blocks=[frame], headers={"content-type": "application/vnd.amazon.eventstream"})},
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": True})
        assert (reply.status_code, told in reply.text) == (400, True), reply.text


async def test_a_header_may_depend_on_whether_the_request_streams(tmp_path):
    write_mapping(tmp_path, "bits", MAPPING + STREAM)
    seen = []
    more = "headers: {x-sse: {$when: $stream, $value: enable}, x-agent: \"$headers['x-client']\"}"
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "bits", more=more)},
        apps={"acme": replying(body=json.dumps(ANSWER).encode(), seen=seen)},
    ) as here:
        assert (await here.post("/v1/chat/completions", ASK)).status_code == 200
        await here.post("/v1/chat/completions", {**ASK, "stream": True})
    assert [sent[2].get("x-sse") for sent in seen] == [None, "enable"]


async def test_an_edit_may_read_client_headers_except_secrets(tmp_path):
    write_mapping(tmp_path, "bits", MAPPING)
    seen = []
    more = """request:
  - set: {words: "{{ $headers['acme-beta'] | split(',') }}", all: $headers}
headers: {x-key: "{{ $headers[$vars.which] }}", x-beta: "$headers['acme-beta']"}
vars: {which: authorization}"""
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "bits", more=more)},
        apps={"acme": replying(body=json.dumps(ANSWER).encode(), seen=seen)},
    ) as here:
        assert (await here.post("/v1/chat/completions", ASK, acme_beta="a,b")).status_code == 200
        assert here.key not in str(seen)
    sent, headers = json.loads(seen[0][3]), seen[0][2]
    assert (
        sent["words"] == ["a", "b"]
        and sent["all"]["acme-beta"] == "a,b"
        and not {"authorization", "x-api-key"} & sent["all"].keys()
    )
    assert headers["x-beta"] == "a,b" and "x-key" not in headers


LISTED = """
mapping: NAME
request: {from_hub: {prompt: "{{ $.turns[*].parts[*].text | join }}"}}
response:
  to_hub:
    $let: {first: "$[0]"}
    parts: [{kind: text, text: $first.output}]
    stop: $first.reason
    usage: {input: $first.tokens_in, output: $first.tokens_out}
"""


async def test_an_answer_may_be_a_list(tmp_path):
    write_mapping(tmp_path, "listed", LISTED)
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "listed")},
        apps={"acme": replying(body=json.dumps([ANSWER]).encode())},
    ) as here:
        reply = (await here.post("/v1/chat/completions", ASK)).json()
        assert reply["choices"][0]["message"]["content"] == "hi there" and reply["usage"]["total_tokens"] == 15


@pytest.mark.parametrize("body", [b'{"detail": "under maintenance"}', b"[]", b'[{"output": "hi"}]', b'"hi"'])
async def test_a_200_in_which_the_mapping_finds_nothing_falls_back_to_the_next_route(tmp_path, body):
    write_mapping(tmp_path, "whole-only")
    async with inprocess(
        tmp_path,
        providers={"first": provider("first", "whole-only"), "second": provider("second", "whole-only", priority=1)},
        apps={"first": replying(body=body), "second": replying(body=json.dumps(ANSWER).encode())},
    ) as here:
        reply = await here.post("/v1/chat/completions", ASK)
        assert reply.headers["x-tollgate-attempts"] == "2" and here.balance() == Decimal("99.98")


@pytest.mark.parametrize(
    ("framing", "body", "message_part"),
    [
        ("sse", b'{"bit": "hi"}\n{"reason": "end"}\n', "there is no event in what it sent, read with `framing: sse`"),
        (
            "ndjson",
            b'data: {"bit": "hi"}\n\ndata: {"reason": "end"}\n\n',
            "there is no event in what it sent, read with `framing: ndjson`",
        ),
        (
            "sse",
            b'event: token\ndata: {"bit": "hi"}\n\nevent: fin\ndata: {}\n\n',
            "`named` has no rule for its events 'token, fin'",
        ),
        ("sse", b'event: bit\ndata: {"bit": "hi"}\n\n', "the upstream ended before the answer was finished\n"),
        (
            "sse",
            b'{"bit": "hi"}',
            "a stream was asked for and none came: with `framing: sse` 'application/json' is none",
        ),
    ],
    ids=["lines read as events", "events read as lines", "other names", "cut", "JSON"],
)
async def test_the_log_explains_why_a_stream_counts_as_broken_off(tmp_path, caplog, framing, body, message_part):
    write_mapping(
        tmp_path,
        "named",
        MAPPING
        + "stream: {to_hub: {$match: $event, $absent: [{stop: {reason: $.reason}}], bit: [{delta: {kind: text, text: "
        "$.bit}}]}}\n",
    )
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "named", framing=framing)},
        apps={"acme": replying(body=body, headers=JSON if "json" in message_part else SSE)},
    ) as here:
        sent = (await here.post("/v1/chat/completions", {**ASK, "stream": True})).text
    assert message_part in caplog.text and "framing" not in sent and "rule" not in sent


async def test_the_log_explains_why_a_stream_is_no_whole_answer(tmp_path, caplog):
    write_mapping(tmp_path, "whole-only")
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "whole-only")},
        apps={"acme": replying(body=b'data: {"bit": "hi"}\n\n', headers=SSE)},
    ) as here:
        reply = await here.post("/v1/chat/completions", ASK)
    assert reply.status_code == 500 and "default: {stream: false}" not in reply.text
    assert "no stream was asked for and one came (`request: [{default: {stream: false}}]`" in caplog.text


async def test_a_text_part_without_text_is_omitted(tmp_path):
    write_mapping(tmp_path, "whole-only")
    answer = {"calls": [{"name": "f", "with": {}}], "tokens_in": 1, "tokens_out": 1}
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "whole-only")},
        apps={"acme": replying(body=json.dumps(answer).encode())},
    ) as here:
        reply = (await here.post("/v1/messages", {**ASK, "max_tokens": 9})).json()
        assert [block["type"] for block in reply["content"]] == ["tool_use"]


async def test_a_mapping_without_from_hub_is_a_config_error_for_its_provider(tmp_path):
    write_mapping(tmp_path, "half", "mapping: NAME\nresponse: {to_hub: {parts: [{kind: text, text: $.output}]}}\n")
    with pytest.raises(ConfigErrors) as caught:
        async with inprocess(tmp_path, providers={"acme": provider("acme", "half")}):
            pass
    assert (
        "providers/acme.yaml:6:16: speaks.half: mapping `half` has no request.from_hub, which a provider that speaks "
        "it needs" in str(caught.value)
    )


async def test_a_token_rejected_with_status_200_is_not_used_again(tmp_path):
    write_mapping(tmp_path, "whole-only")
    requests = []

    async def app(method, path, headers, body):
        requests.append(path)
        content = (
            {"access_token": f"t{len(requests)}"}
            if path == "/token"
            else ANSWER
            if path.endswith("=t3")
            else {"trouble": "Access token invalid"}
        )

        async def chunks():
            yield json.dumps(content).encode()

        return 200, JSON, chunks()

    more = """auth: {kind: oauth_client, token_url: app://acme/token, form: {apikey: x}, query: access_token}
errors: {rules: [{status: [200], when: $.trouble, verdict: next, alarm: key}]}"""
    async with inprocess(
        tmp_path, providers={"acme": provider("acme", "whole-only", more=more)}, apps={"acme": app}
    ) as here:
        assert (await here.post("/v1/chat/completions", ASK)).status_code == 500
        assert (await here.post("/v1/chat/completions", ASK)).json()["choices"][0]["message"]["content"] == "hi there"
    assert requests == ["/token", "/answer?access_token=t1", "/token", "/answer?access_token=t3"]


@pytest.mark.parametrize(
    ("reads", "answer", "headers"),
    [
        ("token: $.data.token, expires_in: $.data.ttl", {"data": {"token": "t-1", "ttl": "900"}}, {}),
        ("token: \"$answer_headers['x-subject-token']\"", {}, {"x-subject-token": "t-1"}),
        ("token: $", "t-1", {}),
    ],
    ids=["a field of its own", "a header", "all of the answer"],
)
async def test_a_token_may_be_requested_with_json_and_read_from_a_configured_place(tmp_path, reads, answer, headers):
    requests = []

    async def app(method, path, request_headers, body):
        requests.append((path, json.loads(body), request_headers.get("authorization")))
        issued = path == "/token"

        async def chunks():
            yield json.dumps(answer if issued else ANSWER).encode()

        return (201, JSON | headers, chunks()) if issued else (200, JSON, chunks())

    more = f"auth: {{kind: oauth_client, token_url: app://acme/token, body: {{user: {{name: me}}, n: 1}}, {reads}}}"
    write_mapping(tmp_path, "whole-only")
    async with inprocess(
        tmp_path, providers={"acme": provider("acme", "whole-only", more=more)}, apps={"acme": app}
    ) as here:
        for _ in range(2):
            assert (await here.post("/v1/chat/completions", ASK)).status_code == 200
    assert requests[0] == ("/token", {"user": {"name": "me"}, "n": 1}, None)
    assert [authorised for _, _, authorised in requests[1:]] == ["Bearer t-1", "Bearer t-1"]


@pytest.mark.parametrize(
    ("form", "asked"),
    [
        ('{version: "1", resource: "https://a.example/"}', "?version=1&resource=https%3A%2F%2Fa.example%2F"),
        ("{}", ""),
    ],
    ids=["with fields", "without fields"],
)
async def test_a_token_may_be_requested_by_get(tmp_path, form, asked):
    requests = []

    async def app(method, path, headers, body):
        requests.append((method, path, headers.get("metadata"), headers.get("content-type"), body))
        authorised = headers.get("authorization") == "Bearer t-1"

        async def chunks():
            yield json.dumps(ANSWER if authorised else {"access_token": "t-1", "expires_in": "3599"}).encode()

        return 200, JSON, chunks()

    more = (
        f'auth: {{kind: oauth_client, method: GET, token_url: "app://acme/token", form: {form}, '
        'headers: {Metadata: "true"}}'
    )
    write_mapping(tmp_path, "whole-only")
    async with inprocess(
        tmp_path, providers={"acme": provider("acme", "whole-only", more=more)}, apps={"acme": app}
    ) as here:
        assert (await here.post("/v1/chat/completions", ASK)).status_code == 200
    assert requests[0] == ("GET", f"/token{asked}", "true", None, b"")
    assert len(requests) == 2


async def test_requests_that_wait_for_the_same_failing_token_get_their_own_limits(tmp_path):
    gate = asyncio.Event()

    async def app(method, path, headers, body):
        await gate.wait()

        async def chunks():
            yield b"{}"

        return 503, JSON, chunks()

    more = "auth: {kind: oauth_client, token_url: app://acme/token, form: {apikey: x}}"
    write_mapping(tmp_path, "whole-only")
    async with inprocess(
        tmp_path, providers={"acme": provider("acme", "whole-only", more=more)}, apps={"acme": app}
    ) as here:
        keys = [(await here.services.ledger.create_key("default", rpm=rpm))[1] for rpm in (3, 70)]
        asked = [asyncio.create_task(here.post("/v1/chat/completions", ASK, key=key)) for key in keys]
        await until(lambda: len(here.services.live) == 2)
        gate.set()
        replies = await asyncio.gather(*asked)
    assert [reply.status_code for reply in replies] == [500, 500]
    assert [reply.headers["x-ratelimit-limit-requests"] for reply in replies] == ["3", "70"]


async def test_a_token_quoted_in_an_error_is_redacted(tmp_path):
    async def app(method, path, headers, body):
        if path == "/token":
            status, content = 200, {"access_token": "ya29.a+b/c=="}
        else:
            status, content = 400, {"error": {"message": f"bad request: POST {path}, token ya29.a+b/c=="}}

        async def chunks():
            yield json.dumps(content).encode()

        return status, JSON, chunks()

    more = "auth: {kind: oauth_client, token_url: app://acme/token, form: {apikey: x}, query: access_token}"
    write_mapping(tmp_path, "whole-only")
    async with inprocess(
        tmp_path, providers={"acme": provider("acme", "whole-only", more=more)}, apps={"acme": app}
    ) as here:
        refused = await here.post("/v1/chat/completions", ASK)
    assert refused.status_code == 400 and "POST /answer?access_token=[secret], token [secret]" in refused.text


@pytest.mark.parametrize(
    ("auth", "message_part"),
    [
        (
            "{kind: oauth_client, token_url: https://t.example, client_idd: x, client_secret: y}",
            "`oauth_client` has no option `client_idd` (did you mean `client_id`?)",
        ),
        ("{kind: oauth_client, token_url: https://t.example, client_secret: y}", "`oauth_client` needs client_id"),
        ("{kind: oauth_client, form: {apikey: y}}", "`oauth_client` needs token_url"),
        ("{kind: oauth_client, token_url: https://t.example, form: y}", 'auth.form: found "y", wanted a map'),
        (
            "{kind: oauth_client, token_url: https://t.example, form: {a: b}, scope: x}",
            "`scope` has no effect beside `form` (write it into `form`)",
        ),
        (
            "{kind: oauth_client, token_url: https://t.example, client_id: x, client_secret: y, query: t, scheme: Key}",
            "`scheme` has no effect beside `query` (leave one of them out)",
        ),
        (
            "{kind: oauth_client, token_url: https://t.example, body: {a: b}, form: {a: b}}",
            "`form` has no effect beside `body` (write it into `body`)",
        ),
        (
            "{kind: oauth_client, token_url: https://t.example, body: {a: b}, token: data.token}",
            'auth.token: found "data.token", wanted where the token is, such as $.data.token',
        ),
        (
            "{kind: oauth_client, token_url: https://t.example, method: GET, body: {a: b}}",
            "a GET has no `body` (write its fields into `form`: they are sent in the query)",
        ),
        (
            "{kind: oauth_client, token_url: https://t.example, method: get, form: {}}",
            'auth.method: found "get", wanted "POST" or "GET"',
        ),
        ("{kind: sigv4, service: x, form: {a: b}}", "`sigv4` has no option `form`"),
        ("{kind: sigv4, service: x}", "`sigv4` needs region, access_key, secret_key"),
        ("{kind: sigv4, service: x, region: null, access_key: a, secret_key: b}", "`sigv4` needs region"),
        ("{kind: oauth_jwt, scope: x}", "`oauth_jwt` needs credentials or credentials_file"),
        (
            "{kind: sigv4, service: [x], region: r, access_key: a, secret_key: b}",
            "auth.service: found a list, wanted text",
        ),
    ],
    ids=[
        "misspelt",
        "missing",
        "missing beside a form",
        "no form",
        "beside a form",
        "beside a query",
        "beside a body",
        "a token that is no path",
        "body of a GET",
        "another method",
        "form of another kind",
        "several missing",
        "null is missing",
        "none of two",
        "no text",
    ],
)
async def test_options_of_auth_are_checked_at_load(tmp_path, auth, message_part):
    write_mapping(tmp_path, "whole-only")
    with pytest.raises(ConfigErrors) as caught:
        async with inprocess(tmp_path, providers={"acme": provider("acme", "whole-only", more=f"auth: {auth}")}):
            pass
    assert message_part in str(caught.value) and "acme.yaml:5:" in str(caught.value)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
@pytest.mark.parametrize("last", [b"data: [DONE]\n\n", b"data: [DONE]\n", b"data: [DONE]", b"data: [DONE]\r\r"])
async def test_done_without_its_blank_line_ends_an_answer_without_a_finish_reason(tmp_path, path, last):
    chunk = {
        "id": "c",
        "model": "up-1",
        "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hi"}, "finish_reason": None}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }
    blocks = [b"data: %b\n\n" % json.dumps(chunk).encode(), last]
    ask = {"model": "acme/one", "input": "hello"} if path.endswith("responses") else {**ASK, "max_tokens": 9}
    async with inprocess(
        tmp_path, providers={"acme": provider("acme", "chat")}, apps={"acme": replying(blocks=blocks, headers=SSE)}
    ) as here:
        reply = await here.post(path, {**ask, "stream": True})
        assert (
            "Hi" in reply.text
            and '"error":{' not in reply.text.replace(" ", "")
            and "response.failed" not in reply.text
        )
        assert here.balance() == Decimal("99.98")


NATIVE = {
    "chat": (
        "/v1/chat/completions",
        [
            {"id": "c", "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}]},
            {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        ],
    ),
    "messages": (
        "/v1/messages",
        [
            {
                "type": "message_start",
                "message": {
                    "id": "m",
                    "role": "assistant",
                    "content": [],
                    "usage": {"input_tokens": 1, "output_tokens": 1},
                },
            },
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ],
    ),
}


@pytest.mark.parametrize("cut", [0, 3, 9])
@pytest.mark.parametrize("protocol", NATIVE)
async def test_a_byte_order_mark_before_a_stream_does_not_reach_clients(tmp_path, protocol, cut):
    path, events = NATIVE[protocol]
    raw = b"\xef\xbb\xbf" + b"".join(b"event: x\ndata: %b\n\n" % json.dumps(event).encode() for event in events)
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", protocol)},
        apps={"acme": replying(blocks=[raw[:cut], raw[cut:]], headers=SSE)},
    ) as here:
        reply = await here.post(path, {**ASK, "max_tokens": 9, "stream": True})
        assert reply.content.startswith(b"event: x\ndata: ") and reply.status_code == 200


ODD_TEXTS = {
    "a high surrogate": (b"caf\\ud83d", "caf\ufffd"),
    "a low surrogate": (b"\\uDE00 caf", "\ufffd caf"),
    "a surrogate pair": (b"\\ud83d\\ude00", "\U0001f600"),
    "surrogates around a pair": (b"\\ude00\\ud83d\\ude00\\ud83d", "\ufffd\U0001f600\ufffd"),
    "an escaped backslash": (b"\\\\ud83d\\ud83d", "\\ud83d\ufffd"),
    "invalid UTF-8": (b"caf\xe9", "caf\ufffd"),
}


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("case", ODD_TEXTS)
async def test_an_answer_that_lenient_json_parsers_accept_is_accepted(tmp_path, case, mark):
    written, read = ODD_TEXTS[case]
    choice = {"index": 0, "message": {"role": "assistant", "content": "TEXT"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    raw = json.dumps({"id": "c", "choices": [choice], "usage": usage}).encode().replace(b"TEXT", written)
    app = replying(body=mark + raw)
    async with inprocess(tmp_path, providers={"acme": provider("acme", "chat")}, apps={"acme": app}) as here:
        assert (await here.post("/v1/chat/completions", ASK)).json()["choices"][0]["message"]["content"] == read
        assert (await here.post("/v1/messages", {**ASK, "max_tokens": 9})).json()["content"][0]["text"] == read
        assert here.balance() == Decimal("99.96")


@pytest.mark.parametrize("case", ODD_TEXTS)
async def test_a_stream_loses_no_event_to_a_lone_surrogate(tmp_path, case):
    written, read = ODD_TEXTS[case]
    chunks = [
        {"id": "c", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}
        for text, finish in (("a ", None), ("TEXT", None), ("z", "stop"))
    ]
    blocks = [b"data: %b\n\n" % json.dumps(chunk).encode().replace(b"TEXT", written) for chunk in chunks]
    app = replying(blocks=[*blocks, b"data: [DONE]\n\n"], headers=SSE)
    async with inprocess(tmp_path, providers={"acme": provider("acme", "chat")}, apps={"acme": app}) as here:
        converted = await here.post("/v1/messages", {**ASK, "max_tokens": 9, "stream": True})
        deltas = [event["delta"] for event in events_of(converted) if event["type"] == "content_block_delta"]
        text = "".join(delta.get("text", "") for delta in deltas)
        assert text == f"a {read}z"
        native = await here.post("/v1/chat/completions", {**ASK, "stream": True})
        assert native.text.endswith("data: [DONE]\n\n") and '"error"' not in native.text


async def test_an_error_after_a_byte_order_mark_is_read(tmp_path):
    error = {"message": "bad knob", "type": "invalid_request_error", "param": "knob"}
    app = replying(400, body=b"\xef\xbb\xbf" + json.dumps({"error": error}).encode())
    async with inprocess(tmp_path, providers={"acme": provider("acme", "chat")}, apps={"acme": app}) as here:
        reply = await here.post("/v1/responses", {"model": "acme/one", "input": "hi"})
        error = reply.json()["error"]
        assert (reply.status_code, error["message"], error["param"]) == (400, "bad knob", "knob")


@pytest.mark.parametrize("figure", [b"NaN", b"Infinity", b"-Infinity"])
async def test_a_number_that_json_does_not_allow_loses_no_answer_and_no_event(tmp_path, figure):
    choice = {"index": 0, "finish_reason": "stop", "logprobs": {"content": [{"token": "a", "logprob": "FIGURE"}]}}
    text = 'NaN "quoted", -Infinity \\ and Infinity'
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    whole = {"id": "c", "choices": [{**choice, "message": {"role": "assistant", "content": text}}], "usage": usage}
    event = {"id": "c", "choices": [{**choice, "delta": {"content": text}}], "usage": usage}
    raw = json.dumps(whole).encode().replace(b'"FIGURE"', figure)
    blocks = [b"data: %b\n\n" % json.dumps(event).encode().replace(b'"FIGURE"', figure), b"data: [DONE]\n\n"]
    providers = {"acme": provider("acme", "chat")}
    async with inprocess(tmp_path / "whole", providers=providers, apps={"acme": replying(body=raw)}) as here:
        native = (await here.post("/v1/chat/completions", ASK)).json()["choices"][0]
        assert native["message"]["content"] == text and native["logprobs"]["content"][0]["logprob"] is None
        converted = (await here.post("/v1/messages", {**ASK, "max_tokens": 9})).json()
        assert converted["content"] == [{"type": "text", "text": text}]
    streaming = {"acme": replying(blocks=blocks, headers=SSE)}
    async with inprocess(tmp_path / "stream", providers=providers, apps=streaming) as here:
        converted = await here.post("/v1/messages", {**ASK, "max_tokens": 9, "stream": True})
        deltas = [event["delta"] for event in events_of(converted) if event["type"] == "content_block_delta"]
        assert "".join(delta["text"] for delta in deltas) == text and "message_stop" in converted.text


@pytest.mark.parametrize("stream", [False, True], ids=["an answer", "an event"])
async def test_a_very_long_body_is_not_repaired(tmp_path, monkeypatch, stream):
    monkeypatch.setattr(f"tollgate.completions.native._MOST_REPAIRED{'_EVENT' if stream else ''}", 100)
    choice = {"delta" if stream else "message": {"content": "x" * 100}, "index": 0, "finish_reason": "stop"}
    raw = json.dumps({"id": "c", "choices": [choice], "x": "FIGURE"}).encode().replace(b'"FIGURE"', b"NaN")
    app = replying(blocks=[b"data: %b\n\n" % raw], headers=SSE) if stream else replying(body=raw)
    async with inprocess(tmp_path, providers={"acme": provider("acme", "chat")}, apps={"acme": app}) as here:
        assert (await here.post("/v1/messages", {**ASK, "max_tokens": 9, "stream": stream})).status_code == 500


SUBTRACTED = ("input: $.tokens_in,", 'input: "{{ $.tokens_in - 1 }}",')
SUBTRACTING = "[{set: {tokens_in: '{{ $.tokens_in - 1 }}'}}]"
ONLY_STREAMED = MAPPING[: MAPPING.index("response:")] + MAPPING[MAPPING.index("error:") :] + STREAM
FAILING = {
    "an edit of an answer": (MAPPING, f"response: {SUBTRACTING}", False),
    "an edit of an answer, for a client that streams": (MAPPING, f"response: {SUBTRACTING}", True),
    "an edit of an event": (MAPPING + STREAM, f"stream: {SUBTRACTING}", True),
    "an edit of an event, for a whole answer": (ONLY_STREAMED, f"stream: {SUBTRACTING}", False),
    "a mapping": (MAPPING.replace(*SUBTRACTED), "", False),
    "a mapping of events": (
        MAPPING + STREAM.replace("always:", "always:\n      - {start: {created: '{{ $.tokens_in - 1 }}'}}"),
        "",
        True,
    ),
}


@pytest.mark.parametrize("mapping, edits, stream", FAILING.values(), ids=FAILING)
async def test_an_answer_that_its_file_fails_on_falls_back_to_the_next_route(tmp_path, caplog, mapping, edits, stream):
    """A string where the file computes with a number: another route may report the number."""
    write_mapping(tmp_path, "own", mapping)
    bad, good = ({**ANSWER, "bit": "hi", "tokens_in": tokens_in} for tokens_in in ("ten", 11))
    blocks = [[b"data: " + json.dumps(answer).encode() + b"\n\n"] for answer in (bad, good)]
    streams = "stream:" in mapping
    apps = [
        replying(blocks=events, headers=SSE) if streams else replying(body=json.dumps(answer).encode())
        for events, answer in zip(blocks, (bad, good), strict=True)
    ]
    async with inprocess(
        tmp_path,
        providers={
            "first": provider("first", "own", more=edits),
            "second": provider("second", "own", priority=1, more=edits),
        },
        apps=dict(zip(("first", "second"), apps, strict=True)),
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": stream})
        assert reply.status_code == 200 and reply.headers["x-tollgate-attempts"] == "2"
        tokens_in = 11 if "created" in mapping else 10
        paid = tokens_in * Decimal("0.001") + 5 * Decimal("0.002")
        assert here.balance() == 100 - paid, "the tokens of the failed route are not billed"
    assert "does not fit its mapping: " in caplog.text and ".yaml:" in caplog.text


@pytest.mark.parametrize("format_", ["bits", "chat"])
async def test_an_event_that_an_edit_fails_on_ends_the_stream_after_the_earlier_events(tmp_path, caplog, format_):
    write_mapping(tmp_path, "bits", MAPPING + STREAM)
    events = [
        {"choices": [{"index": 0, "delta": {"content": "hi"}}], "bit": "hi"},
        {"bit": " there", "tokens_in": "ten"},
    ]
    blocks = [b"".join(b"data: " + json.dumps(bit).encode() + b"\n\n" for bit in events)]
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", format_, more=f"stream: {SUBTRACTING}")},
        apps={"acme": replying(blocks=blocks, headers=SSE)},
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": True})
        assert '"hi"' in reply.text and reply.text.count('"error"') == 1 and "[DONE]" not in reply.text
        (row,) = await rows(here, tmp_path)
    assert row["outcome"] == "upstream_error" and row["estimated"] and row["output_tokens"] > 0
    assert "does not fit its mapping: " in caplog.text and "acme.yaml:5: cannot subtract" in caplog.text


@pytest.mark.parametrize("hidden", [False, True], ids=["plain", "in base64"])
@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("format_", ["bits", "chat"])
async def test_error_rules_read_a_stream_event_before_its_edits(tmp_path, caplog, format_, started, hidden):
    """As for whole answers: edits apply to answers. If they ran first they could drop the error code, and the failure
    would be an empty event."""
    write_mapping(tmp_path, "bits", MAPPING + STREAM)
    bit = {"code": 0, "choices": [{"index": 0, "delta": {"content": "hi"}}], "bit": "hi"}
    events = (
        [bit, {"code": 10001, "message": "engine lost"}] if started else [{"code": 10001, "message": "engine lost"}]
    )
    if hidden:
        events = [{"bytes": b64encode(json.dumps(event).encode()).decode()} for event in events]
    when = "$.code == 10001" if hidden else "$.code is present and $.code != 0"  # the first names what bytes must hold
    blocks = [b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)]
    more = f"""
errors: {{message: $.message, rules: [{{status: 200, when: {when}, verdict: next}}]}}
stream: [{{drop: [code, message]}}, {{default: {{object: chat.completion.chunk}}}}]"""
    described = provider("acme", format_, more=more)
    if hidden:
        described = described.replace("framing: sse", "framing: sse, unwrap: $.bytes | from_base64 | parse_json")
    async with inprocess(
        tmp_path, providers={"acme": described}, apps={"acme": replying(blocks=blocks, headers=SSE)}
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": True})
        assert reply.status_code == (200 if started else 500)
        assert [event for event in events_of(reply) if "choices" not in event] == (
            [{"error": {"message": "The model service failed to answer. Please try again later."}}] if started else []
        )
        assert ('"hi"' in reply.text) is started
        (row,) = await rows(here, tmp_path)
    assert row["outcome"] == "upstream_error" and "engine lost" in caplog.text


@pytest.mark.parametrize("stream", [False, True])
async def test_usage_that_cannot_be_computed_is_estimated_and_the_answer_is_kept(tmp_path, stream):
    write_mapping(tmp_path, "bits", MAPPING + STREAM)
    answer = {**ANSWER, "bit": "hi there", "tokens_in": "ten"}
    answers = {
        True: replying(blocks=[b"data: " + json.dumps(answer).encode() + b"\n\n"], headers=SSE),
        False: replying(body=json.dumps(answer).encode()),
    }
    more = "usage: {read: {input: '{{ $.tokens_in - 1 }}', output: $.tokens_out}}"
    async with inprocess(
        tmp_path, providers={"acme": provider("acme", "bits", more=more)}, apps={"acme": answers[stream]}
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": stream})
        assert reply.status_code == 200 and "hi there" in reply.text and "error" not in reply.text
        (row,) = await rows(here, tmp_path)
    assert row["estimated"] and row["input_tokens"] > 0 and row["cost"] > 0


@pytest.mark.parametrize(
    ("errors", "message"),
    [("", "wordy"), ("errors: {message: $.detail}", "less is more")],
    ids=["of the format", "of the provider"],
)
async def test_the_mapping_reads_the_body_of_an_error_status_unless_the_provider_does(tmp_path, errors, message):
    write_mapping(
        tmp_path, "own", MAPPING.replace("message: $.trouble", "message: $.trouble.say, code: $.trouble.kind")
    )
    body = {"trouble": {"say": "wordy", "kind": "prompt_too_wordy"}, "detail": "less is more"}
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "own", more=errors)},
        apps={"acme": replying(400, body=json.dumps(body).encode())},
    ) as here:
        reply = await here.post("/v1/responses", {"model": "acme/one", "input": "hello"})
    assert reply.status_code == 400
    assert (reply.json()["error"]["message"], reply.json()["error"]["code"]) == (message, "prompt_too_wordy")


SENT = """
mapping: NAME
request:
  from_hub:
    ask: "{{ $.turns[*].parts[*].text | join }}"
    persona: "{{ $.system[*].text | join }}"
    heat: $.temperature
    cap: $.max_tokens
response:
  to_hub: {parts: [{kind: text, text: $.said}], stop: end}
"""
PERSONA = [{"role": "system", "content": "Né\nbrief"}, {"role": "user", "content": "a / b?"}]


@pytest.mark.parametrize(
    ("send", "method", "target", "body"),
    [
        ("path: '/{{ $.ask }}', method: GET", "GET", "/answer/a%20%2F%20b%3F?heat=0.5&live=false", b""),
        (
            "body: \"{{ $ | without('heat', 'persona', 'cap') }}\"",
            "POST",
            "/answer?heat=0.5&live=false",
            b'{"ask":"a / b?"}',
        ),
        ("body: $.lacking, method: PUT", "PUT", "/answer?heat=0.5&live=false", b""),
    ],
    ids=["in the path", "in the body", "nothing"],
)
async def test_parts_of_a_request_may_be_sent_outside_its_body(tmp_path, send, method, target, body):
    write_mapping(tmp_path, "outside", SENT)
    seen = []
    heading = 'headers: {X-Persona: "{{ $.persona | to_base64 }}", x-cap: $.cap}'
    text = provider(
        "acme", "outside", framing=f"sse, send: {{{send}, query: {{heat: $.heat, live: $stream}}, {heading}}}"
    )
    async with inprocess(
        tmp_path, providers={"acme": text}, apps={"acme": replying(body=json.dumps(ANSWER).encode(), seen=seen)}
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "messages": PERSONA, "temperature": 0.5})
        assert reply.status_code == 200, reply.text
    assert (seen[0][0], seen[0][1], seen[0][3]) == (method, target, body)
    headers = {name.lower(): value for name, value in seen[0][2].items()}
    assert headers["x-persona"] == "TsOpCmJyaWVm" and "x-cap" not in headers
    assert ("content-type" in headers) == bool(body)


async def test_a_request_without_a_value_for_its_url_is_rejected(tmp_path):
    write_mapping(tmp_path, "outside", SENT)
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "outside", framing="sse, send: {path: '/{{ $.cap }}'}")},
        apps={"acme": replying(body=json.dumps(ANSWER).encode())},
    ) as here:
        assert (await here.post("/v1/messages", {**ASK, "max_tokens": 7})).status_code == 200
        reply = await here.post("/v1/responses", {"model": "acme/one", "input": "hi"})
        assert reply.status_code == 400 and "a value for this model's URL" in reply.json()["error"]["message"]


@pytest.mark.parametrize("persona", ["a\r\nx-admin: 1", "a\0", "☃"], ids=["line break", "control", "not latin-1"])
async def test_a_value_that_headers_cannot_have_is_rejected(tmp_path, persona):
    write_mapping(tmp_path, "outside", SENT)
    seen = []
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "outside", framing="sse, send: {headers: {x-persona: $.persona}}")},
        apps={"acme": replying(body=json.dumps(ANSWER).encode(), seen=seen)},
    ) as here:
        messages = [{"role": "system", "content": persona}, *ASK["messages"]]
        reply = await here.post("/v1/responses", {"model": "acme/one", "input": messages})
        assert reply.status_code == 400 and "header x-persona" in reply.json()["error"]["message"]
        assert not here.services.health.cooling()
    assert seen == []


async def test_a_native_request_may_send_parts_outside_its_body(tmp_path):
    seen = []
    answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [], "usage": {}}
    answer["choices"] = [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]
    send = "sse, send: {query: {model: $.model}, body: \"{{ $ | without('model') }}\"}"
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "chat", framing=send)},
        apps={"acme": replying(body=json.dumps(answer).encode(), seen=seen)},
    ) as here:
        assert (await here.post("/v1/chat/completions", {**ASK, "user": "u"})).status_code == 200
    assert seen[0][1] == "/answer?model=up-1"
    assert json.loads(seen[0][3]) == {"messages": ASK["messages"], "user": "u"}


async def test_a_request_may_be_a_multipart_upload(tmp_path):
    write_mapping(
        tmp_path, "upload", SENT.replace("cap: $.max_tokens", "picture: {file: aGk=, name: a.png, type: image/png}")
    )
    seen = []
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "upload", framing="sse, encoding: multipart")},
        apps={"acme": replying(body=json.dumps(ANSWER).encode(), seen=seen)},
    ) as here:
        assert (await here.post("/v1/chat/completions", ASK)).status_code == 200
    kind = next(value for name, value in seen[0][2].items() if name.lower() == "content-type")
    boundary = kind.removeprefix("multipart/form-data; boundary=")
    assert boundary != kind and seen[0][3].count(boundary.encode()) == 3
    assert b'name="ask"\r\n\r\nhello\r\n' in seen[0][3]
    assert b'name="picture"; filename="a.png"\r\nContent-Type: image/png\r\n\r\nhi\r\n' in seen[0][3]
