"""Calls before a request: uploads whose ids it refers to, and sessions."""

import json

import pytest

from completions.invented import ANSWER, provider, write_mapping
from mapping.provider_files import SMALL, compiled
from support.inprocess import inprocess, replying
from tollgate.completions import preparing
from tollgate.errors import ConfigErrors

UPLOADING = """
mapping: NAME
define:
  part($p):
    $match: $p.kind
    text: {t: $p.text}
    image: {picture: {data: $p.data, mime: $p.mime}}
    $else: {$lost: "{{ $p.kind }}"}
request:
  from_hub:
    session: new
    messages: [{$each: $t in $.turns, who: $t.role, parts: [{$each: $p in $t.parts, $value: "{{ part($p) }}"}]}]
response:
  to_hub: {parts: [{kind: text, text: $.output}], stop: end, usage: {input: $.tokens_in, output: $.tokens_out}}
"""
PREPARE = """sse, send: {path: "/{{ $.session }}", body: "{{ $ | without('session') }}"}, prepare: [
      {at: $..picture, call: POST /files, encoding: multipart, body: {shot: {file: $old.data}}, value: $.id},
      {at: $.session, call: "PUT /sessions/{{ $model.upstream }}", value: "$http.headers['x-session']"}]"""


def picture(data):
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def request(*pictures):
    return {
        "model": "acme/one",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "see"}, *pictures]}],
    }


class Uploads:
    """An upstream that gives each file an id, and opens sessions."""

    def __init__(self, status=200):
        self.seen, self.status = [], status

    async def __call__(self, method, path, headers, body):
        self.seen.append((method, path, headers, body))
        if path == "/files":
            count = sum(path == "/files" for _, path, _, _ in self.seen)
            reply = replying(self.status, json.dumps({"id": f"f{count}", "error": None}).encode())
        elif path.startswith("/sessions"):
            reply = replying(201, headers={"x-session": "s/1"})
        else:
            reply = replying(body=json.dumps(ANSWER).encode())
        return await reply(method, path, headers, body)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_refers_to_files_uploaded_before_it(tmp_path, stream):
    write_mapping(tmp_path, "uploading", UPLOADING)
    app = Uploads()
    async with inprocess(
        tmp_path, providers={"acme": provider("acme", "uploading", framing=PREPARE)}, apps={"acme": app}
    ) as here:
        body = {**request(picture("aGk="), picture("aG8="), picture("aGk=")), "stream": stream}
        reply = await here.post("/v1/chat/completions", body)
        assert reply.status_code == 200 and "hi there" in reply.text
    *before, (method, path, _, raw) = app.seen
    assert sorted(f"{method} {path}" for method, path, _, _ in before) == [
        "POST /files",
        "POST /files",
        "PUT /sessions/up-1",
    ]
    assert [b"\r\n\r\nhi\r\n" in raw or b"\r\n\r\nho\r\n" in raw for _, path, _, raw in before if path == "/files"] == [
        True
    ] * 2
    assert (method, path) == ("POST", "/answer/s%2F1")
    parts = json.loads(raw)["messages"][0]["parts"]
    first, second, again = (part["picture"] for part in parts[1:])
    assert first == again != second and {first, second} == {"f1", "f2"} and "session" not in json.loads(raw)


async def test_a_request_that_needs_too_many_calls_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr(preparing, "_MOST", 2)
    write_mapping(tmp_path, "uploading", UPLOADING)
    app = Uploads()
    async with inprocess(
        tmp_path, providers={"acme": provider("acme", "uploading", framing=PREPARE)}, apps={"acme": app}
    ) as here:
        reply = await here.post("/v1/chat/completions", request(*map(picture, ("aGk=", "aG8=", "aGU="))))
    assert (reply.status_code, reply.text) == (400, "the request needs more than 2 calls before it, such as uploads")
    assert app.seen == []


async def test_a_request_without_images_uploads_nothing(tmp_path):
    write_mapping(tmp_path, "uploading", UPLOADING)
    app = Uploads()
    async with inprocess(
        tmp_path, providers={"acme": provider("acme", "uploading", framing=PREPARE)}, apps={"acme": app}
    ) as here:
        assert (await here.post("/v1/chat/completions", request())).status_code == 200
    assert [path for _, path, _, _ in app.seen] == ["/sessions/up-1", "/answer/s%2F1"]


async def test_a_native_request_may_need_a_call_before_it(tmp_path):
    app, answer = Uploads(), {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "usage": {}}
    answer["choices"] = [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]
    ANSWERS = replying(body=json.dumps(answer).encode())

    async def upstream(method, path, headers, body):
        if path == "/answer":
            app.seen.append((method, path, headers, body))
            return await ANSWERS(method, path, headers, body)
        return await app(method, path, headers, body)

    prepare = (
        "sse, prepare: [{at: '$.messages[*].content[*].image_url', call: POST /files, body: $old, value: {url: $.id}}]"
    )
    async with inprocess(
        tmp_path, providers={"acme": provider("acme", "chat", framing=prepare)}, apps={"acme": upstream}
    ) as here:
        assert (await here.post("/v1/chat/completions", request(picture("aGk=")))).status_code == 200
    assert json.loads(app.seen[0][3]) == picture("aGk=")["image_url"]
    assert json.loads(app.seen[1][3])["messages"][0]["content"][1]["image_url"] == {"url": "f1"}


@pytest.mark.parametrize(("status", "expected"), [(503, 200), (413, 413)], ids=["another route", "the caller's fault"])
async def test_a_failed_call_before_the_request_is_a_failure_of_the_route(tmp_path, status, expected):
    write_mapping(tmp_path, "uploading", UPLOADING)
    other = {**ANSWER, "output": "from another"}
    async with inprocess(
        tmp_path,
        providers={
            "acme": provider("acme", "uploading", framing=PREPARE),
            "bemo": provider("bemo", "uploading", priority=1),
        },
        apps={"acme": Uploads(status), "bemo": replying(body=json.dumps(other).encode())},
    ) as here:
        reply = await here.post(
            "/v1/messages",
            {
                **request(),
                "max_tokens": 9,
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
                        ],
                    }
                ],
            },
        )
        assert reply.status_code == expected
        assert ("from another" in reply.text) == (expected == 200)


def test_errors_in_prepare_are_reported_with_their_places():
    written = """speaks:
  chat:
    path: /chat
    prepare:
      - {at: "$.a[0]", call: POST https://api.acme.example/f, value: $.id}
      - {at: $.a, call: "POST {{ $old.url | raw }}", body: $odl, value: $.id}
"""
    with pytest.raises(ConfigErrors) as errors:
        compiled(SMALL.replace("speaks: {chat: /chat/completions}\n", written))
    assert [(each.mark.line, each.message) for each in errors.value.problems] == [
        (8, 'found "$.a[0]", wanted a path of fields, [*] and ..'),
        (9, "this address comes out of the request, so it may lead anywhere with our key"),
        (9, "unknown name `$odl`"),
    ]
