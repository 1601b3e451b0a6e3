"""The query parameters of a provider (`query:`), in all of its calls."""

import asyncio
import contextlib
import json

from support.image_provider import Provider
from support.inprocess import inprocess
from support.waiting import until

ACME = """
provider: acme
url: app://acme/v1
query: {key: $secret.ACME_KEY, of: $model.upstream}
speaks:
  chat:
    path: /chat
    query: {version: "2"}
    request: [{set: {file: a}}]
    prepare: [{at: $.file, call: POST /files, body: {}, value: $.id}]
    poll: {while: not $.choices, call: "GET /chat/{{ $.id }}?wait=1", every: [0.001]}
  messages:
    path: /messages
    count_tokens: /count
    poll: {while: not $.content, call: "GET {{ $.where | raw }}", hosts: ["http://127.0.0.1:PORT"], every: [0.001]}
  embeddings: /embed
images:
  submit: {call: POST app://acme/jobs, body: $.input, result: {id: $.id, status: processing, where: $.where}}
  poll:
    call: GET app://acme/jobs/{{ $job.id }}
    every: [0.001]
    result: {status: succeeded}
  fetch: {call: "GET {{ $job.where | raw }}", hosts: ["http://127.0.0.1:PORT"], result: {images: [{url: $.url}]}}
models:
  acme/large: {upstream: big}
  acme/embed: {type: embedding}
  acme/draw: {type: image, price: {price: "1"}, input_schema: {type: object}}
discover:
  url: app://acme/list
  list: $.data
  next: $.next
  model: {id: "acme/{{ $ }}"}
"""
CHAT = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]}
FOUND = {
    "/list": {"data": ["one"], "next": "app://acme/list?after=1"},
    "/list?after=1": {"data": ["two"]},
    "/v1/files": {"id": "f1"},
    "/v1/chat/j1?wait=1": CHAT,
    "/v1/count": {"input_tokens": 3},
    "/v1/embed": {"data": [{"index": 0, "embedding": [0.5]}]},
}
ELSEWHERE = {"content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn", "url": "https://a.example/b"}


@contextlib.asynccontextmanager
async def another_host(targets):
    """A server that notes the targets of its requests; yields its port."""

    async def serve(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        targets.append(head.split()[1].decode())
        body = json.dumps(ELSEWHERE).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (len(body), body))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


def answering(port):
    def answer(method, path, body):
        return 200, FOUND.get(
            path.partition("?key=")[0].partition("&key=")[0],
            {"id": "j1", "where": f"http://127.0.0.1:{port}/signed?sig=1"},
        )

    return answer


async def test_the_query_of_a_provider_is_in_all_its_calls_but_those_to_addresses_out_of_answers(tmp_path):
    """Calls before a request, polls, image jobs and the list of models went without it, and got a 401."""
    elsewhere: list[str] = []
    async with contextlib.AsyncExitStack() as running:
        port = await running.enter_async_context(another_host(elsewhere))
        app, acme = Provider(answering(port)), ACME.replace("PORT", str(port))
        here = await running.enter_async_context(
            inprocess(tmp_path, providers={"acme": acme}, apps={"acme": app}, environ={"ACME_KEY": "k"}, sandbox=False)
        )
        turns = [{"role": "user", "content": "hi"}]
        await until(lambda: any("after" in path for _, path, _ in app.calls))
        for path, body in (
            ("/v1/chat/completions", {"model": "acme/large", "messages": turns}),
            ("/v1/messages/count_tokens", {"model": "acme/large", "messages": turns}),
            ("/v1/messages", {"model": "acme/large", "messages": turns, "max_tokens": 5}),
            ("/v1/embeddings", {"model": "acme/embed", "input": "hi"}),
        ):
            assert (await here.post(path, body)).status_code == 200, path
        made = (await here.post("/v1/images/generations", {"model": "acme/draw", "input": {}})).json()["data"]
        assert (await here.ended_job(made["id"])).json()["data"]["status"] == "succeeded"
    assert {path for _, path, _ in app.calls} == {
        "/list?key=k",
        "/list?after=1&key=k",
        "/v1/files?key=k&of=big&version=2",
        "/v1/chat?key=k&of=big&version=2",
        "/v1/chat/j1?wait=1&key=k&of=big&version=2",
        "/v1/count?key=k&of=big",
        "/v1/messages?key=k&of=big",
        "/v1/embed?key=k&of=embed",
        "/jobs?key=k&of=draw",
        "/jobs/j1?key=k&of=draw",
    }
    assert elsewhere == ["/signed?sig=1"] * 2
