"""Further restrictions of a key (CLIENTS 3d): endpoints, addresses, and concurrent requests."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from conformance.upstreams import ASKS, PATHS, events, provider, whole
from support.inprocess import SSE, Leaving, inprocess
from support.usage_files import rows_by_id
from support.waiting import until

VECTORS = {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}], "model": "up-1"}
PROVIDERS = {
    "acme": provider("app://acme/v1/chat/completions", "chat"),
    "vectors": "provider: vectors\nspeaks: embeddings\nurl: app://acme/v1/embeddings\nmodels: {vectors/one: {}}\n",
    "pictures": (
        "provider: pictures\nimages:\n"
        "  submit: {call: POST app://acme/jobs, body: $.input, result: {id: $.id, status: starting}}\n"
        "  poll: {call: 'GET app://acme/jobs/{{ $job.id }}', every: [600], result: {status: processing}}\n"
        "models:\n  pictures/one: {price: {price: '0.01'}, input_schema: {type: object}}\n"
    ),
}
SURFACES = {
    **{name: (PATHS[name], ASKS[name]) for name in PATHS},
    "count_tokens": ("/v1/messages/count_tokens", ASKS["messages"]),
    "embeddings": ("/v1/embeddings", {"model": "vectors/one", "input": "hello"}),
    "images": ("/v1/images/generations", {"model": "pictures/one", "input": {}}),
    "mcp": (
        "/v1/images/mcp",
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_models", "arguments": {}}},
    ),
}
STREAMED = {name: {**ASKS[name], "stream": True} for name in PATHS}


class Upstream:
    """Answers while its gate is open, and counts the calls that wait for it. A status of 0 breaks a stream off."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.waiting = self.calls = 0
        self.status = 200

    async def __call__(self, method, path, headers, raw):
        self.calls += 1
        self.waiting += 1
        try:
            await self.gate.wait()
        finally:
            self.waiting -= 1
        request = json.loads(raw)
        if request.get("stream"):
            return 200, SSE, self._streamed()
        content = VECTORS if path.endswith("embeddings") else {"id": "job-1"} if path == "/jobs" else whole("chat")
        return self.status or 500, {"content-type": "application/json"}, _blocks(json.dumps(content).encode())

    async def _streamed(self):
        first, *rest = events("chat")
        yield first
        if not self.status:
            raise ConnectionResetError
        for block in rest:
            yield block


async def _blocks(*blocks):
    for block in blocks:
        yield block


@pytest.fixture
def upstream():
    return Upstream()


@pytest.fixture
async def here(tmp_path, upstream):
    async with inprocess(tmp_path, providers=PROVIDERS, apps={"acme": upstream}) as opened:
        yield opened


async def key_for(here, **limits):
    _, secret = await here.services.ledger.create_key("default", **limits)
    return secret


# ---- requests at once

AT_ONCE = {
    "chat": SURFACES["chat"],
    "chat, streamed": (PATHS["chat"], STREAMED["chat"]),
    "responses, streamed": (PATHS["responses"], STREAMED["responses"]),
    "messages": SURFACES["messages"],
    "embeddings": SURFACES["embeddings"],
    "images": SURFACES["images"],
}
REFUSED = {
    "chat": {"error": {"type": "rate_limit_error", "code": "rate_limit_exceeded", "param": None}},
    "responses": {"error": {"type": "rate_limit_error", "code": "rate_limit_exceeded", "param": None}},
    "messages": {"type": "error", "error": {"type": "rate_limit_error"}},
    "embeddings": {"success": False, "code": 429, "message": "rate limit exceeded"},
    "images": {"success": False, "code": 429, "message": "rate limit exceeded"},
}


@pytest.mark.parametrize("name", AT_ONCE)
async def test_of_64_concurrent_requests_only_the_allowed_number_runs(here, upstream, tmp_path, name):
    path, body = AT_ONCE[name]
    secret = await key_for(here, max_concurrent=3, rpm=4)
    requests = [asyncio.ensure_future(here.post(path, body, key=secret)) for _ in range(64)]
    await until(lambda: upstream.waiting == 3 and sum(each.done() for each in requests) == 61)
    upstream.gate.set()
    replies = await asyncio.gather(*requests)
    refused = [reply for reply in replies if reply.status_code == 429]
    assert len(refused) == 61 and [reply.status_code for reply in replies].count(200) == 3
    assert {reply.headers["retry-after"] for reply in refused} == {"1"}
    assert {reply.headers["x-tollgate-error"] for reply in refused} == {"rate_limit_exceeded"}
    body_of_refusal = refused[0].json()
    wanted = REFUSED[name.partition(",")[0]]
    assert body_of_refusal == body_of_refusal | {each: value for each, value in wanted.items() if each != "error"}
    if "error" in wanted:
        assert body_of_refusal["error"] == wanted["error"] | {
            "message": "Rate limit reached for concurrent requests. Please try again in 1s."
        }
    assert upstream.calls == 3 and not here.services.ledger.concurrency._running
    assert (await here.post(path, body, key=secret)).status_code == 200, "the rate limit counts admitted requests only"
    if name != "images":  # its jobs are still running
        assert len(await rows_by_id(here, tmp_path)) == 4, "a rejected request writes no row"


async def test_requests_that_cost_nothing_take_no_slot(here, upstream):
    secret = await key_for(here, max_concurrent=1)
    running = asyncio.ensure_future(here.post(*SURFACES["chat"], key=secret))
    await until(lambda: upstream.waiting)
    assert (await here.post(*SURFACES["count_tokens"], key=secret)).status_code == 200
    for path in ("/v1/models", "/v1/images/models", "/v1/images/generations"):
        assert (await here.get(path, key=secret)).status_code == 200
    assert (await here.post(*SURFACES["mcp"], key=secret)).status_code == 429
    upstream.gate.set()
    assert (await running).status_code == 200


async def client_leaves_while_waiting(here, upstream, secret):
    client = Leaving(ASKS["chat"], secret, reached=lambda: upstream.waiting)
    await here.opened.app(client.scope, client.receive, client.send)


async def client_leaves_during_the_stream(here, upstream, secret):
    client = Leaving(STREAMED["chat"], secret, blocks=1)
    upstream.gate.set()
    await here.opened.app(client.scope, client.receive, client.send)


async def upstream_fails(here, upstream, secret):
    upstream.status = 500
    upstream.gate.set()
    assert (await here.post(*SURFACES["messages"], key=secret)).status_code == 500


async def stream_breaks_off(here, upstream, secret):
    upstream.status = 0
    upstream.gate.set()
    assert '"error"' in (await here.post(PATHS["chat"], STREAMED["chat"], key=secret)).text


async def request_is_invalid(here, upstream, secret):
    assert (await here.post(PATHS["chat"], b"{", key=secret)).status_code == 400
    assert (
        await here.http.post(
            PATHS["chat"], content=b"x", headers={"authorization": f"Bearer {secret}", "content-type": "text/csv"}
        )
    ).status_code == 400


async def rate_limit_is_exceeded(here, upstream, secret):
    key = here.services.ledger.find_key(secret)
    await here.services.ledger.update_key(key.id, rpm=0)
    assert (await here.post(*SURFACES["chat"], key=secret)).status_code == 429
    await here.services.ledger.update_key(key.id, rpm=None)


async def internal_error(here, upstream, secret):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tollgate.completions.request.check_fields", lambda *_: 1 / 0)
        assert (await here.post(*SURFACES["chat"], key=secret)).status_code == 500


async def gateway_shuts_down(here, upstream, secret):
    running = asyncio.ensure_future(here.post(*SURFACES["chat"], key=secret))
    await until(lambda: upstream.waiting)
    here.opened.app.cut()
    assert (await running).status_code == 503
    here.services.cut = False


@pytest.mark.parametrize("way", [
    client_leaves_while_waiting, client_leaves_during_the_stream, upstream_fails, stream_breaks_off, request_is_invalid,
    rate_limit_is_exceeded, internal_error, gateway_shuts_down,
], ids=lambda way: way.__name__)  # fmt: skip
async def test_27_a_slot_is_released_however_its_request_ends(here, upstream, way):
    secret = await key_for(here, max_concurrent=1)
    await way(here, upstream, secret)
    assert not here.services.ledger.concurrency._running
    upstream.status = 200
    upstream.gate.set()
    for _ in range(3):
        assert (await here.post(*SURFACES["embeddings"], key=secret)).status_code == 200


class Caller(Leaving):
    """An ASGI client that stays, and records the running requests at the moment its answer ends."""

    def __init__(self, here, path, body, secret, *, breaks=False):
        super().__init__(body, secret)
        self.scope |= {"path": path, "scheme": "http", "server": ("127.0.0.1", 8787), "client": ("127.0.0.1", 1)}
        self.scope["headers"].append((b"host", b"127.0.0.1:8787"))
        self.running, self.breaks, self.found = here.services.ledger.concurrency._running, breaks, []

    async def send(self, message):
        if self.breaks:
            raise OSError("the connection is gone")
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.found.append(dict(self.running))


AT_THE_END = {name: AT_ONCE[name] for name in ("chat", "chat, streamed", "images")} | {"mcp": SURFACES["mcp"]}


@pytest.mark.parametrize("name", AT_THE_END)
async def test_a_slot_is_released_before_the_end_of_the_answer_is_sent(here, upstream, name):
    """A client that sends one request after the other is never rejected."""
    upstream.gate.set()
    client = Caller(here, *AT_THE_END[name], await key_for(here, max_concurrent=1))
    await here.opened.app(client.scope, client.receive, client.send)
    assert client.found == [{}]


async def test_27_a_tool_call_whose_answer_cannot_be_sent_releases_its_slot(here):
    client = Caller(here, *SURFACES["mcp"], await key_for(here, max_concurrent=1), breaks=True)
    await here.opened.app(client.scope, client.receive, client.send)
    assert not client.running


async def test_a_key_without_credits_is_a_403_even_if_its_slot_is_taken(here, upstream):
    await here.services.ledger.create_account("poor")
    _, secret = await here.services.ledger.create_key("poor", max_concurrent=1)
    key = here.services.ledger.find_key(secret)
    with here.services.ledger.occupy(key) or pytest.fail("no slot"):
        assert (await here.post(*SURFACES["chat"], key=secret)).status_code == 403


# ---- endpoints and addresses

FORBIDDEN = {
    "chat": {"error": {"type": "invalid_request_error", "code": "permission_denied", "param": None}},
    "messages": {"type": "error", "error": {"type": "permission_error"}},
    "embeddings": {"success": False, "code": 403},
}
FORBIDDEN |= {name: FORBIDDEN["chat"] for name in ("responses",)} | {"count_tokens": FORBIDDEN["messages"]}
FORBIDDEN |= {name: FORBIDDEN["embeddings"] for name in ("images", "mcp")}


def assert_forbidden(reply, name, message):
    body = reply.json()
    body.pop("request_id", None)
    wanted = json.loads(json.dumps(FORBIDDEN[name]))
    wanted.get("error", wanted)["message"] = message
    assert (reply.status_code, reply.headers["x-tollgate-error"], body) == (403, "permission_denied", wanted)
    assert "retry-after" not in reply.headers


@pytest.mark.parametrize("allowed", ["chat", "responses", "messages", "embeddings", "images", "mcp"])
async def test_a_key_may_be_used_for_its_endpoints_only(here, upstream, tmp_path, allowed):
    upstream.gate.set()
    secret = await key_for(here, endpoints=[allowed])
    for name, (path, body) in SURFACES.items():
        of = "messages" if name == "count_tokens" else name
        reply = await here.post(path, body, key=secret)
        if of == allowed:
            assert reply.status_code == 200, reply.text
        else:
            assert_forbidden(reply, name, f"this key may not be used for {of}")
    paid = {"chat", "responses", "messages", "embeddings"} & {allowed}
    assert len(await rows_by_id(here, tmp_path)) == len(paid) + (allowed == "messages"), "a rejection writes no row"
    looks = [await here.get(f"/v1/images/generations{end}", key=secret) for end in ("", "/" + "0" * 36)]
    assert [look.status_code for look in looks] == ([200, 404] if allowed == "images" else [403, 403])
    for path in ("/v1/models", "/v1/models/acme/one", "/v1/images/models"):
        assert (await here.get(path, key=secret)).status_code == 200, "the catalogs require no key"


async def from_address(here, peer, path, body, secret, forwarded=()):
    transport = httpx.ASGITransport(app=here.opened.app, client=(peer, 4711))
    headers = [("authorization", f"Bearer {secret}"), *(("x-forwarded-for", each) for each in forwarded)]
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8787") as client:
        options = {"json": body} if body is not None else {}
        return await client.request("GET" if body is None else "POST", path, headers=headers, **options)


@pytest.mark.parametrize("name", SURFACES)
async def test_a_key_may_be_used_from_its_addresses_only(here, upstream, name):
    upstream.gate.set()
    path, body = SURFACES[name]
    secret = await key_for(here, allowed_addresses=["203.0.113.0/24", "2001:db8::7"], endpoints=["embeddings"])
    refused = await from_address(here, "198.51.100.1", path, body, secret, forwarded=["203.0.113.7"])
    assert_forbidden(refused, name, "this key may not be used from this address")
    for peer in ("203.0.113.7", "::ffff:203.0.113.7", "2001:db8::7"):
        reply = await from_address(here, peer, path, body, secret)
        assert reply.status_code == (200 if name == "embeddings" else 403) and "address" not in reply.text


async def test_a_key_from_another_address_gets_no_catalog(here):
    secret = await key_for(here, allowed_addresses=["203.0.113.7"])
    for path in ("/v1/models", "/v1/models/acme/one", "/v1/images/models"):
        assert (await from_address(here, "198.51.100.1", path, None, secret)).status_code == 403
        assert (await from_address(here, "203.0.113.7", path, None, secret)).status_code == 200
    assert (await from_address(here, "198.51.100.1", "/v1/models", None, "")).status_code == 200


async def test_behind_a_trusted_proxy_the_forwarded_address_counts(tmp_path, upstream):
    settings = "server: {trusted_proxies: [10.0.0.0/8]}\n"
    upstream.gate.set()
    async with inprocess(tmp_path, providers=PROVIDERS, apps={"acme": upstream}, settings=settings) as here:
        secret = await key_for(here, allowed_addresses=["203.0.113.7"])
        for peer, forwarded, status in [
            ("10.0.0.1", ["203.0.113.7"], 200),
            ("10.0.0.1", ["203.0.113.7, 198.51.100.1"], 403),
            ("10.0.0.1", ["203.0.113.7", "198.51.100.1"], 403),
            ("10.0.0.1", [], 403),
            ("198.51.100.1", ["203.0.113.7"], 403),
            ("203.0.113.7", ["198.51.100.1"], 200),
        ]:
            reply = await from_address(here, peer, *SURFACES["chat"], secret, forwarded)
            assert reply.status_code == status, (peer, forwarded)


async def test_changed_restrictions_apply_at_once(here, upstream):
    upstream.gate.set()
    secret = await key_for(here)
    key = here.services.ledger.find_key(secret)
    for changes, status in [
        ({"endpoints": ["mcp"]}, 403), ({"endpoints": None}, 200), ({"allowed_addresses": ["192.0.2.1"]}, 403),
        ({"allowed_addresses": []}, 200), ({"endpoints": []}, 200), ({"max_concurrent": 0}, 429),
    ]:  # fmt: skip
        await here.services.ledger.update_key(key.id, **changes)
        assert (await here.post(*SURFACES["chat"], key=secret)).status_code == status, changes
