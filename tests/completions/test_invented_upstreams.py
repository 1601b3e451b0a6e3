"""Upstreams of invented formats with habits of their own: no streaming, texts for events, errors that only the mapping
knows."""

import json
from base64 import b64encode
from decimal import Decimal

import pytest

from support.eventstream import message
from support.inprocess import SSE, inprocess, replying
from support.usage_files import rows
from tollgate.errors import ConfigErrors

ASK = {"model": "acme/one", "messages": [{"role": "user", "content": "hello"}]}
JSON = {"content-type": "application/json"}

OWN = """
mapping: NAME
request:
  from_hub: {prompt: "{{ $.turns[*].parts[*].text | join }}", live: $.stream}
response:
  to_hub:
    parts:
      - {kind: text, text: $.said}
      - {$each: $c in $.calls, kind: tool_call, name: $c.name, args: "{{ $c.with | json }}"}
    stop: $.why
    usage: {input: $.heard, output: $.spoken}
error:
  to_hub: {message: $.trouble}
"""
STREAM = """
stream:
  to_hub:
    always:
      - {$when: $.trouble, error: {message: $.trouble}}
      - {delta: {kind: text, text: $.bit}}
      - {$when: $.heard, usage: {input: $.heard, output: $.spoken}}
      - {stop: {reason: $.why}}
"""
ANSWER = {"said": "hi there", "why": "end", "heard": 10, "spoken": 5}
BITS = [{"bit": "hi"}, {"bit": " there"}, {"why": "end", "heard": 10, "spoken": 5}]


def provider(name, mapping, *, priority=0, more="", framing="sse"):
    return f"""
provider: {name}
url: app://{name}
priority: {priority}
{more}
speaks: {{{mapping}: {{path: /answer, framing: {framing}}}}}
models:
  acme/one: {{upstream: up-1, price: {{prompt: "0.001", completion: "0.002"}}}}
"""


def write_mapping(folder, name, text=OWN):
    (folder / "mappings").mkdir(exist_ok=True)
    (folder / "mappings" / f"{name}.yaml").write_text(text.replace("NAME", name))


def events_of(reply):
    return [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]


def text_of(reply):
    return "".join(choice["delta"].get("content") or "" for event in events_of(reply) for choice in event["choices"])


async def test_an_upstream_that_does_not_stream_is_asked_for_the_whole_answer_and_told_as_a_stream(tmp_path):
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


async def test_an_upstream_that_does_not_stream_may_fail_and_gives_way(tmp_path):
    write_mapping(tmp_path, "whole-only")
    async with inprocess(
        tmp_path,
        providers={"first": provider("first", "whole-only"), "second": provider("second", "whole-only", priority=1)},
        apps={"first": replying(500, b'{"trouble": "x"}'), "second": replying(body=json.dumps(ANSWER).encode())},
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": True})
        assert reply.headers["x-tollgate-attempts"] == "2" and text_of(reply) == "hi there"


@pytest.mark.parametrize("framing", ["ndjson", "json-array"])
async def test_a_stream_of_json_documents_may_call_itself_json(tmp_path, framing):
    write_mapping(tmp_path, "bits", OWN + STREAM)
    documents = [json.dumps(bit).encode() for bit in BITS]
    blocks = [document + b"\n" for document in documents] if framing == "ndjson" else [b"[", b",".join(documents), b"]"]
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "bits", framing=framing)},
        apps={"acme": replying(blocks=blocks, headers=JSON)},
    ) as here:
        assert text_of(await here.post("/v1/chat/completions", {**ASK, "stream": True})) == "hi there"


@pytest.mark.parametrize("framing", ["ndjson", "json-array"])
async def test_an_error_object_in_place_of_such_a_stream_gives_way(tmp_path, framing):
    write_mapping(tmp_path, "bits", OWN + STREAM)
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


async def test_an_error_only_the_mapping_knows_is_retried_and_not_billed_while_nothing_was_told(tmp_path):
    write_mapping(tmp_path, "bits", OWN + STREAM)
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "bits")},
        apps={"acme": replying(blocks=[b'data: {"trouble": "busy"}\n\n'], headers=SSE)},
    ) as here:
        reply = await here.post("/v1/messages", {**ASK, "max_tokens": 9, "stream": True})
        assert reply.status_code == 500 and here.balance() == Decimal(100)


async def test_an_error_after_some_text_ends_the_stream(tmp_path):
    write_mapping(tmp_path, "bits", OWN + STREAM)
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
@pytest.mark.parametrize("begun", [False, True])
async def test_what_an_upstream_says_of_its_own_failure_in_a_stream_is_no_clients_business(
    tmp_path, caplog, path, begun
):
    write_mapping(tmp_path, "bits", OWN + STREAM)
    blocks = [b'data: {"bit": "hi"}\n\n'] * begun + [
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
            "failed to answer" in reply.text or path == "/v1/chat/completions" and not begun
        ) and "gpu-7" not in reply.text
        assert "response.failed" in reply.text or not (begun and path == "/v1/responses")
    assert "gpu-7" in caplog.text and "sk-canary" not in caplog.text + reply.text


async def test_chunks_that_tell_of_success_and_no_reason_for_their_end_are_an_answer(tmp_path):
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
        said = (await here.post("/v1/messages", {**ASK, "max_tokens": 9, "stream": True})).text
        assert "message_stop" in said and "error" not in said


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_stopped_because_of_an_error_is_never_told_as_finished(tmp_path, stream, path):
    write_mapping(tmp_path, "bits", OWN + STREAM)
    failed = {"body": json.dumps({**ANSWER, "why": "error"}).encode()}
    if stream:
        failed = {
            "blocks": [b'data: {"bit": "hi"}\n\n', b'data: {"why": "error", "heard": 10, "spoken": 5}\n\n'],
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


async def test_events_that_are_plain_text_are_kept_to_the_letter(tmp_path):
    write_mapping(tmp_path, "texts", OWN + TEXTS)
    told = ["Hel", "lo 42", "007", "1.50", "null", '"', "{}", " ", "a\nb", "né"]
    blocks = ["event: output\n" + "".join(f"data: {line}\n" for line in text.split("\n")) + "\n" for text in told]
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "texts", framing="sse-text")},
        apps={
            "acme": replying(blocks=[block.encode() for block in (*blocks, "event: done\ndata: {}\n\n")], headers=SSE)
        },
    ) as here:
        assert text_of(await here.post("/v1/chat/completions", {**ASK, "stream": True})) == "".join(told)


async def test_the_end_mark_is_known_among_plain_texts(tmp_path):
    write_mapping(tmp_path, "just-texts", OWN + "stream: {to_hub: {always: [{delta: {kind: text, text: $}}]}}\n")
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "just-texts", framing="sse-text")},
        apps={"acme": replying(blocks=[b"data: hi\n\ndata:\n\n", b"data: [DONE]\n\n"], headers=SSE)},
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": True})
        assert text_of(reply) == "hi" and reply.text.endswith("data: [DONE]\n\n")


async def test_lines_inside_the_frames_of_an_event_stream(tmp_path):
    write_mapping(tmp_path, "bits", OWN + STREAM)
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


async def test_a_header_may_depend_on_whether_a_stream_is_asked_for(tmp_path):
    write_mapping(tmp_path, "bits", OWN + STREAM)
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


async def test_an_edit_may_read_what_the_client_says_in_headers_but_not_its_secrets(tmp_path):
    write_mapping(tmp_path, "bits", OWN)
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
    parts: [{kind: text, text: $first.said}]
    stop: $first.why
    usage: {input: $first.heard, output: $first.spoken}
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


@pytest.mark.parametrize("body", [b'{"detail": "under maintenance"}', b"[]", b'[{"said": "hi"}]', b'"hi"'])
async def test_a_200_in_which_the_mapping_finds_nothing_is_no_answer(tmp_path, body):
    write_mapping(tmp_path, "whole-only")
    async with inprocess(
        tmp_path,
        providers={"first": provider("first", "whole-only"), "second": provider("second", "whole-only", priority=1)},
        apps={"first": replying(body=body), "second": replying(body=json.dumps(ANSWER).encode())},
    ) as here:
        reply = await here.post("/v1/chat/completions", ASK)
        assert reply.headers["x-tollgate-attempts"] == "2" and here.balance() == Decimal("99.98")


@pytest.mark.parametrize(
    ("framing", "body", "says"),
    [
        ("sse", b'{"bit": "hi"}\n{"why": "end"}\n', "there is no event in what it sent, read with `framing: sse`"),
        (
            "ndjson",
            b'data: {"bit": "hi"}\n\ndata: {"why": "end"}\n\n',
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
async def test_the_log_says_why_a_stream_counts_as_broken_off(tmp_path, caplog, framing, body, says):
    write_mapping(
        tmp_path,
        "named",
        OWN + "stream: {to_hub: {$match: $event, $absent: [{stop: {reason: $.why}}], bit: [{delta: {kind: text, text: "
        "$.bit}}]}}\n",
    )
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "named", framing=framing)},
        apps={"acme": replying(body=body, headers=JSON if "json" in says else SSE)},
    ) as here:
        told = (await here.post("/v1/chat/completions", {**ASK, "stream": True})).text
    assert says in caplog.text and "framing" not in told and "rule" not in told


async def test_a_part_without_anything_in_it_is_none(tmp_path):
    write_mapping(tmp_path, "whole-only")
    answer = {"calls": [{"name": "f", "with": {}}], "heard": 1, "spoken": 1}
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", "whole-only")},
        apps={"acme": replying(body=json.dumps(answer).encode())},
    ) as here:
        reply = (await here.post("/v1/messages", {**ASK, "max_tokens": 9})).json()
        assert [block["type"] for block in reply["content"]] == ["tool_use"]


async def test_a_mapping_no_provider_can_speak_is_told_when_files_are_read(tmp_path):
    write_mapping(tmp_path, "half", "mapping: NAME\nresponse: {to_hub: {parts: [{kind: text, text: $.said}]}}\n")
    with pytest.raises(ConfigErrors) as told:
        async with inprocess(tmp_path, providers={"acme": provider("acme", "half")}):
            pass
    assert (
        "providers/acme.yaml:6:16: speaks.half: mapping `half` has no request.from_hub, which a provider that speaks "
        "it needs" in str(told.value)
    )


async def test_a_token_refused_in_a_200_is_not_used_again(tmp_path):
    write_mapping(tmp_path, "whole-only")
    asked = []

    async def app(method, path, headers, body):
        asked.append(path)
        told = (
            {"access_token": f"t{len(asked)}"}
            if path == "/token"
            else ANSWER
            if path.endswith("=t3")
            else {"trouble": "Access token invalid"}
        )

        async def chunks():
            yield json.dumps(told).encode()

        return 200, JSON, chunks()

    more = """auth: {kind: oauth_client, token_url: app://acme/token, form: {apikey: x}, query: access_token}
errors: {rules: [{status: [200], when: $.trouble, verdict: next, alarm: key}]}"""
    async with inprocess(
        tmp_path, providers={"acme": provider("acme", "whole-only", more=more)}, apps={"acme": app}
    ) as here:
        assert (await here.post("/v1/chat/completions", ASK)).status_code == 500
        assert (await here.post("/v1/chat/completions", ASK)).json()["choices"][0]["message"]["content"] == "hi there"
    assert asked == ["/token", "/answer?access_token=t1", "/token", "/answer?access_token=t3"]


@pytest.mark.parametrize(
    ("reads", "answer", "headers"),
    [
        ("token: $.data.token, expires_in: $.data.ttl", {"data": {"token": "t-1", "ttl": "900"}}, {}),
        ("token: \"$answer_headers['x-subject-token']\"", {}, {"x-subject-token": "t-1"}),
        ("token: $", "t-1", {}),
    ],
    ids=["a field of its own", "a header", "all of the answer"],
)
async def test_a_token_asked_for_in_json_and_told_where_its_file_says(tmp_path, reads, answer, headers):
    asked = []

    async def app(method, path, request_headers, body):
        asked.append((path, json.loads(body), request_headers.get("authorization")))
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
    assert asked[0] == ("/token", {"user": {"name": "me"}, "n": 1}, None)
    assert [authorised for _, _, authorised in asked[1:]] == ["Bearer t-1", "Bearer t-1"]


async def test_a_token_that_a_provider_quotes_is_hidden_as_secrets_are(tmp_path):
    async def app(method, path, headers, body):
        if path == "/token":
            status, told = 200, {"access_token": "ya29.a+b/c=="}
        else:
            status, told = 400, {"error": {"message": f"bad request: POST {path}, token ya29.a+b/c=="}}

        async def chunks():
            yield json.dumps(told).encode()

        return status, JSON, chunks()

    more = "auth: {kind: oauth_client, token_url: app://acme/token, form: {apikey: x}, query: access_token}"
    write_mapping(tmp_path, "whole-only")
    async with inprocess(
        tmp_path, providers={"acme": provider("acme", "whole-only", more=more)}, apps={"acme": app}
    ) as here:
        refused = await here.post("/v1/chat/completions", ASK)
    assert refused.status_code == 400 and "POST /answer?access_token=[secret], token [secret]" in refused.text


@pytest.mark.parametrize(
    ("auth", "says"),
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
        "form of another kind",
        "several missing",
        "null is missing",
        "none of two",
        "no text",
    ],
)
async def test_options_of_an_authorisation_are_checked_when_files_are_read(tmp_path, auth, says):
    write_mapping(tmp_path, "whole-only")
    with pytest.raises(ConfigErrors) as told:
        async with inprocess(tmp_path, providers={"acme": provider("acme", "whole-only", more=f"auth: {auth}")}):
            pass
    assert says in str(told.value) and "acme.yaml:5:" in str(told.value)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
@pytest.mark.parametrize("last", [b"data: [DONE]\n\n", b"data: [DONE]\n", b"data: [DONE]", b"data: [DONE]\r\r"])
async def test_done_ends_an_answer_that_names_no_reason_though_its_blank_line_is_missing(tmp_path, path, last):
    told = {
        "id": "c",
        "model": "up-1",
        "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hi"}, "finish_reason": None}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }
    blocks = [b"data: %b\n\n" % json.dumps(told).encode(), last]
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


HALVES = {
    "half a character": (b"caf\\ud83d", "caf\ufffd"),
    "the other half": (b"\\uDE00 caf", "\ufffd caf"),
    "a whole one": (b"\\ud83d\\ude00", "\U0001f600"),
    "halves around a whole one": (b"\\ude00\\ud83d\\ude00\\ud83d", "\ufffd\U0001f600\ufffd"),
    "a backslash that is meant": (b"\\\\ud83d\\ud83d", "\\ud83d\ufffd"),
    "broken bytes": (b"caf\xe9", "caf\ufffd"),
}


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("case", HALVES)
async def test_an_answer_that_other_readers_of_json_take_is_taken(tmp_path, case, mark):
    written, read = HALVES[case]
    choice = {"index": 0, "message": {"role": "assistant", "content": "TEXT"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    raw = json.dumps({"id": "c", "choices": [choice], "usage": usage}).encode().replace(b"TEXT", written)
    app = replying(body=mark + raw)
    async with inprocess(tmp_path, providers={"acme": provider("acme", "chat")}, apps={"acme": app}) as here:
        assert (await here.post("/v1/chat/completions", ASK)).json()["choices"][0]["message"]["content"] == read
        assert (await here.post("/v1/messages", {**ASK, "max_tokens": 9})).json()["content"][0]["text"] == read
        assert here.balance() == Decimal("99.96")


@pytest.mark.parametrize("case", HALVES)
async def test_a_stream_loses_no_event_for_half_a_character(tmp_path, case):
    written, read = HALVES[case]
    chunks = [
        {"id": "c", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}
        for text, finish in (("a ", None), ("TEXT", None), ("z", "stop"))
    ]
    blocks = [b"data: %b\n\n" % json.dumps(chunk).encode().replace(b"TEXT", written) for chunk in chunks]
    app = replying(blocks=[*blocks, b"data: [DONE]\n\n"], headers=SSE)
    async with inprocess(tmp_path, providers={"acme": provider("acme", "chat")}, apps={"acme": app}) as here:
        said = await here.post("/v1/messages", {**ASK, "max_tokens": 9, "stream": True})
        deltas = [event["delta"] for event in events_of(said) if event["type"] == "content_block_delta"]
        text = "".join(delta.get("text", "") for delta in deltas)
        assert text == f"a {read}z"
        native = await here.post("/v1/chat/completions", {**ASK, "stream": True})
        assert native.text.endswith("data: [DONE]\n\n") and '"error"' not in native.text


async def test_an_error_behind_a_byte_order_mark_is_read(tmp_path):
    error = {"message": "odd knob", "type": "invalid_request_error", "param": "knob"}
    app = replying(400, body=b"\xef\xbb\xbf" + json.dumps({"error": error}).encode())
    async with inprocess(tmp_path, providers={"acme": provider("acme", "chat")}, apps={"acme": app}) as here:
        reply = await here.post("/v1/responses", {"model": "acme/one", "input": "hi"})
        told = reply.json()["error"]
        assert (reply.status_code, told["message"], told["param"]) == (400, "odd knob", "knob")


@pytest.mark.parametrize("figure", [b"NaN", b"Infinity", b"-Infinity"])
async def test_a_figure_that_is_none_costs_no_answer_and_no_event(tmp_path, figure):
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
        said = (await here.post("/v1/messages", {**ASK, "max_tokens": 9})).json()
        assert said["content"] == [{"type": "text", "text": text}]
    streaming = {"acme": replying(blocks=blocks, headers=SSE)}
    async with inprocess(tmp_path / "stream", providers=providers, apps=streaming) as here:
        said = await here.post("/v1/messages", {**ASK, "max_tokens": 9, "stream": True})
        deltas = [event["delta"] for event in events_of(said) if event["type"] == "content_block_delta"]
        assert "".join(delta["text"] for delta in deltas) == text and "message_stop" in said.text


@pytest.mark.parametrize("stream", [False, True], ids=["an answer", "an event"])
async def test_what_is_very_long_is_not_searched_for_faults(tmp_path, monkeypatch, stream):
    monkeypatch.setattr(f"tollgate.completions.native._MOST_REPAIRED{'_EVENT' if stream else ''}", 100)
    said = {"delta" if stream else "message": {"content": "x" * 100}, "index": 0, "finish_reason": "stop"}
    raw = json.dumps({"id": "c", "choices": [said], "x": "FIGURE"}).encode().replace(b'"FIGURE"', b"NaN")
    app = replying(blocks=[b"data: %b\n\n" % raw], headers=SSE) if stream else replying(body=raw)
    async with inprocess(tmp_path, providers={"acme": provider("acme", "chat")}, apps={"acme": app}) as here:
        assert (await here.post("/v1/messages", {**ASK, "max_tokens": 9, "stream": stream})).status_code == 500


MINUS = ("input: $.heard,", 'input: "{{ $.heard - 1 }}",')
LESS = "[{set: {heard: '{{ $.heard - 1 }}'}}]"
ONLY_STREAMED = OWN[: OWN.index("response:")] + OWN[OWN.index("error:") :] + STREAM
UNFIT = {
    "an edit of an answer": (OWN, f"response: {LESS}", False),
    "an edit of an answer, for a client that streams": (OWN, f"response: {LESS}", True),
    "an edit of an event": (OWN + STREAM, f"stream: {LESS}", True),
    "an edit of an event, for a whole answer": (ONLY_STREAMED, f"stream: {LESS}", False),
    "a mapping": (OWN.replace(*MINUS), "", False),
    "a mapping of events": (
        OWN + STREAM.replace("always:", "always:\n      - {start: {created: '{{ $.heard - 1 }}'}}"),
        "",
        True,
    ),
}


@pytest.mark.parametrize("mapping, edits, stream", UNFIT.values(), ids=UNFIT)
async def test_an_answer_that_its_file_cannot_work_with_is_no_answer(tmp_path, caplog, mapping, edits, stream):
    """A text where the file counts on a number: nobody foresaw it, and another route may tell the number."""
    write_mapping(tmp_path, "own", mapping)
    odd, good = ({**ANSWER, "bit": "hi", "heard": heard} for heard in ("ten", 11))
    blocks = [[b"data: " + json.dumps(answer).encode() + b"\n\n"] for answer in (odd, good)]
    streams = "stream:" in mapping
    apps = [
        replying(blocks=told, headers=SSE) if streams else replying(body=json.dumps(answer).encode())
        for told, answer in zip(blocks, (odd, good), strict=True)
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
        heard = 11 if "created" in mapping else 10
        paid = heard * Decimal("0.001") + 5 * Decimal("0.002")
        assert here.balance() == 100 - paid, "the first one's tokens are not the caller's"
    assert "does not fit its mapping: " in caplog.text and ".yaml:" in caplog.text


@pytest.mark.parametrize("format_", ["bits", "chat"])
async def test_an_event_that_an_edit_cannot_work_with_ends_the_stream_behind_what_came_before(
    tmp_path, caplog, format_
):
    write_mapping(tmp_path, "bits", OWN + STREAM)
    told = [{"choices": [{"index": 0, "delta": {"content": "hi"}}], "bit": "hi"}, {"bit": " there", "heard": "ten"}]
    blocks = [b"".join(b"data: " + json.dumps(bit).encode() + b"\n\n" for bit in told)]
    async with inprocess(
        tmp_path,
        providers={"acme": provider("acme", format_, more=f"stream: {LESS}")},
        apps={"acme": replying(blocks=blocks, headers=SSE)},
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": True})
        assert '"hi"' in reply.text and reply.text.count('"error"') == 1 and "[DONE]" not in reply.text
        (row,) = await rows(here, tmp_path)
    assert row["outcome"] == "upstream_error" and row["estimated"] and row["output_tokens"] > 0
    assert "does not fit its mapping: " in caplog.text and "acme.yaml:5: cannot subtract" in caplog.text


@pytest.mark.parametrize("hidden", [False, True], ids=["plain", "in base64"])
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("format_", ["bits", "chat"])
async def test_error_rules_read_an_event_as_it_came_whatever_the_edits_make_of_it(
    tmp_path, caplog, format_, begun, hidden
):
    """As of whole answers: the edits are for what is an answer. They took the code out, and the failure was an event
    without a word."""
    write_mapping(tmp_path, "bits", OWN + STREAM)
    bit = {"code": 0, "choices": [{"index": 0, "delta": {"content": "hi"}}], "bit": "hi"}
    told = [bit, {"code": 10001, "message": "engine lost"}] if begun else [{"code": 10001, "message": "engine lost"}]
    if hidden:
        told = [{"bytes": b64encode(json.dumps(event).encode()).decode()} for event in told]
    when = "$.code == 10001" if hidden else "$.code is present and $.code != 0"  # the first names what bytes must hold
    blocks = [b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in told)]
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
        assert reply.status_code == (200 if begun else 500)
        assert [event for event in events_of(reply) if "choices" not in event] == (
            [{"error": {"message": "The model service failed to answer. Please retry later."}}] if begun else []
        )
        assert ('"hi"' in reply.text) is begun
        (row,) = await rows(here, tmp_path)
    assert row["outcome"] == "upstream_error" and "engine lost" in caplog.text


@pytest.mark.parametrize("stream", [False, True])
async def test_usage_that_cannot_be_computed_is_estimated_and_the_answer_is_kept(tmp_path, stream):
    write_mapping(tmp_path, "bits", OWN + STREAM)
    answer = {**ANSWER, "bit": "hi there", "heard": "ten"}
    answers = {
        True: replying(blocks=[b"data: " + json.dumps(answer).encode() + b"\n\n"], headers=SSE),
        False: replying(body=json.dumps(answer).encode()),
    }
    more = "usage: {read: {input: '{{ $.heard - 1 }}', output: $.spoken}}"
    async with inprocess(
        tmp_path, providers={"acme": provider("acme", "bits", more=more)}, apps={"acme": answers[stream]}
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": stream})
        assert reply.status_code == 200 and "hi there" in reply.text and "error" not in reply.text
        (row,) = await rows(here, tmp_path)
    assert row["estimated"] and row["input_tokens"] > 0 and row["cost"] > 0
