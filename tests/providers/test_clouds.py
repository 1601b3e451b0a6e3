"""Bedrock and Vertex against local servers: signatures, tokens, binary streams and paths of the shipped files, with
only the host replaced."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import re
import struct
import zlib
from decimal import Decimal
from types import SimpleNamespace
from urllib.parse import parse_qs, quote, unquote

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from providers import traffic
from providers.shipped import offers, runtime
from support.inprocess import inprocess
from support.places import ROOT, TRAFFIC
from tollgate.completions.native import native_headers
from upstream.scripted import ok, upstream

SECRET_KEY = "wJalr-made-up-secret"
AWS = {
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "AKIDMADEUP",
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_SESSION_TOKEN": "session/made+up",
}


def provider_file(name: str, old: str, new: str) -> str:
    """The shipped file with another host. Its models and shared files stay where they are."""
    text = (ROOT / "providers" / f"{name}.yaml").read_text("utf-8")
    assert old in text
    return (
        text.replace(old, new)
        .replace("models_from: ", f"models_from: {ROOT}/providers/")
        .replace("shared/", f"{ROOT}/providers/shared/")
    )


# -- Bedrock


def bedrock(port: int) -> dict[str, str]:
    return {
        "bedrock": provider_file(
            "bedrock", "https://bedrock-runtime.{{ $vars.region }}.amazonaws.com", f"http://127.0.0.1:{port}"
        )
    }


def frame(event: str, payload: bytes, kind: str = "event") -> bytes:
    """A message of an event stream, encoded by the published layout."""
    names = {
        ":message-type": kind,
        f":{kind}-type" if kind == "exception" else ":event-type": event,
        ":content-type": "application/json",
    }
    headers = b"".join(
        bytes([len(n)]) + n.encode() + b"\x07" + struct.pack(">H", len(v)) + v.encode() for n, v in names.items()
    )
    prelude = struct.pack(">II", len(headers) + len(payload) + 16, len(headers))
    body = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return body + struct.pack(">I", zlib.crc32(body))


def signature_of(seen) -> str:
    """The expected signature of a request, computed from what arrived."""
    method, target, _ = seen.line.split(" ")
    path, _, query = target.partition("?")
    scope, signed = re.search(
        r"Credential=[^/]+/([^,]+), ?SignedHeaders=([^,]+)", seen.headers["authorization"]
    ).groups()
    canonical = "\n".join(
        [
            method,
            "/".join(quote(step, safe="-_.~") for step in path.split("/")),
            query,
            *(f"{name}:{seen.headers[name].strip()}" for name in signed.split(";")),
            "",
            signed,
            hashlib.sha256(seen.body).hexdigest(),
        ]
    )
    text = "\n".join(
        ["AWS4-HMAC-SHA256", seen.headers["x-amz-date"], scope, hashlib.sha256(canonical.encode()).hexdigest()]
    )
    key = ("AWS4" + SECRET_KEY).encode()
    for step in scope.split("/"):
        key = hmac.new(key, step.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def check_signature(seen) -> None:
    assert seen.headers["authorization"].endswith("Signature=" + signature_of(seen))
    assert seen.headers["x-amz-security-token"] == AWS["AWS_SESSION_TOKEN"]


def chunked(*blocks: bytes, kind: str = "application/vnd.amazon.eventstream") -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    return head + b"".join(b"%x\r\n%b\r\n" % (len(block), block) for block in blocks) + b"0\r\n\r\n"


def data_of(text: str) -> list[dict]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


CONVERSE = (
    frame("messageStart", b'{"role":"assistant"}'),
    frame("contentBlockDelta", b'{"contentBlockIndex":0,"delta":{"text":"Hel"}}'),
    frame("contentBlockDelta", b'{"contentBlockIndex":0,"delta":{"text":"lo"}}'),
    frame("contentBlockStop", b'{"contentBlockIndex":0}'),
    frame("messageStop", b'{"stopReason":"end_turn"}'),
    frame("metadata", b'{"usage":{"inputTokens":37,"outputTokens":8,"totalTokens":45}}'),
)


@pytest.mark.parametrize("recorded", [False, True], ids=["made up", "recorded"])
async def test_a_signed_converse_stream_reaches_a_chat_client_and_is_billed(tmp_path, recorded) -> None:
    blocks = [b"".join(CONVERSE)[i : i + 41] for i in range(0, len(b"".join(CONVERSE)), 41)]
    if recorded:
        if not traffic.exchanges():
            pytest.skip(traffic.ABSENT)
        raw = next(TRAFFIC.glob("exchanges/*/bc-bedrock-023688.json"))
        blocks = [base64.b64decode(json.loads(raw.read_text())["response"]["raw_base64"])]

    async def script(seen, peer) -> None:
        check_signature(seen)
        await peer.send(chunked(*blocks))

    async with upstream(script) as server, inprocess(tmp_path, providers=bedrock(server.port), environ=AWS) as app:
        before = app.balance()
        reply = await app.post(
            "/v1/chat/completions",
            {
                "model": "amazon/nova-lite",
                "stream": True,
                "max_tokens": 20,
                "temperature": 0.5,
                "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"}],
            },
        )
        chunks = data_of(reply.text)
        assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == (
            "This is a test" if recorded else "Hello"
        )
        assert chunks[-1]["usage"]["prompt_tokens"] == 37 and chunks[-1]["usage"]["completion_tokens"] == 8
        assert reply.text.rstrip().endswith("data: [DONE]")
        assert before - app.balance() == Decimal(37) * Decimal("0.00000006") + 8 * Decimal("0.00000024")
        sent = json.loads(server.seen[0].body)
        assert server.seen[0].line == "POST /model/amazon.nova-lite-v1%3A0/converse-stream HTTP/1.1"
    assert sent == {
        "system": [{"text": "S"}],
        "messages": [{"role": "user", "content": [{"text": "Hi"}]}],
        "inferenceConfig": {"maxTokens": 20, "temperature": 0.5},
    }


CLAUDE = [
    {
        "type": "message_start",
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 1},
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 5},
    },
    {"type": "message_stop"},
]


def wrapped(event: dict) -> bytes:
    return frame(
        "chunk", json.dumps({"bytes": base64.b64encode(json.dumps(event).encode()).decode(), "p": "abc"}).encode()
    )


async def test_claude_through_invoke_returns_its_own_events(tmp_path) -> None:
    async def script(seen, peer) -> None:
        check_signature(seen)
        await peer.send(chunked(*map(wrapped, CLAUDE)))

    async with upstream(script) as server, inprocess(tmp_path, providers=bedrock(server.port), environ=AWS) as app:
        reply = await app.post(
            "/v1/messages",
            {
                "model": "anthropic/claude-opus-4.5",
                "max_tokens": 50,
                "stream": True,
                "messages": [{"role": "user", "content": "Hi"}],
            },
            anthropic_version="2023-06-01",
        )
        assert data_of(reply.text) == CLAUDE or [
            event["type"] for event in data_of(reply.text) if event["type"] != "ping"
        ] == [e["type"] for e in CLAUDE]
        assert "event: content_block_delta" in reply.text
        assert (
            server.seen[0].line
            == "POST /model/global.anthropic.claude-opus-4-5-20251101-v1%3A0/invoke-with-response-stream HTTP/1.1"
        )
        assert json.loads(server.seen[0].body) == {
            "anthropic_version": "bedrock-2023-05-31",
            "max_tokens": 50,
            "messages": [{"role": "user", "content": "Hi"}],
        }


async def test_an_exception_frame_is_an_error_of_the_stream(tmp_path) -> None:
    body = chunked(
        CONVERSE[0], CONVERSE[1], frame("throttlingException", b'{"message":"Too many requests"}', "exception")
    )
    async with upstream(body) as server, inprocess(tmp_path, providers=bedrock(server.port), environ=AWS) as app:
        reply = await app.post(
            "/v1/chat/completions",
            {"model": "amazon/nova-lite", "stream": True, "messages": [{"role": "user", "content": "Hi"}]},
        )
    assert "overloaded" in data_of(reply.text)[-1]["error"]["message"]
    assert "[DONE]" not in reply.text


async def test_a_whole_answer_and_embeddings_are_converted(tmp_path) -> None:
    async def script(seen, peer) -> None:
        check_signature(seen)
        if "titan" in seen.line:
            await peer.send(ok(b'{"embedding":[0.5,1.0],"inputTextTokenCount":3}', "content-type: application/json"))
        else:
            await peer.send(
                ok(
                    json.dumps(
                        {
                            "output": {"message": {"role": "assistant", "content": [{"text": "Hello"}]}},
                            "stopReason": "end_turn",
                            "usage": {"inputTokens": 3, "outputTokens": 1, "totalTokens": 4},
                        }
                    ).encode(),
                    "content-type: application/json",
                )
            )

    async with upstream(script) as server, inprocess(tmp_path, providers=bedrock(server.port), environ=AWS) as app:
        reply = await app.post(
            "/v1/chat/completions", {"model": "amazon/nova-lite", "messages": [{"role": "user", "content": "Hi"}]}
        )
        assert (reply.json()["choices"][0]["message"]["content"], reply.json()["usage"]["total_tokens"]) == ("Hello", 4)
        reply = await app.post("/v1/embeddings", {"model": "amazon/titan-embed-text", "input": ["a", "b"]})
        assert [entry["embedding"] for entry in reply.json()["data"]] == [[0.5, 1.0], [0.5, 1.0]]
        assert reply.json()["usage"] == {"prompt_tokens": 6, "total_tokens": 6}
        assert [json.loads(seen.body).get("inputText") for seen in server.seen[1:]] == ["a", "b"]


# -- Vertex


@pytest.fixture(scope="module")
def key():
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def account(key, token_url: str) -> str:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    return json.dumps(
        {
            "type": "service_account",
            "client_email": "me@example.com",
            "private_key": private,
            "private_key_id": "k1",
            "token_uri": token_url,
        }
    )


VERTEX_CLAUDE = ok(
    json.dumps(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-opus-4-5",
            "content": [{"type": "text", "text": "Hi"}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 3, "output_tokens": 1},
        }
    ).encode(),
    "content-type: application/json",
)
VERTEX_GEMINI = chunked(
    b'data: {"candidates":[{"content":{"role":"model","parts":[{"text":"Hello"}]},"finishReason":"STOP"}],'
    b'"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":2,"totalTokenCount":6},"responseId":"r1",'
    b'"modelVersion":"g"}\r\n\r\n',
    kind="text/event-stream",
)
ASK_CLAUDE = {
    "model": "anthropic/claude-opus-4.5",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "Hi"}],
}
ASK_GEMINI = {"model": "google/gemini-3.5-flash", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
async def vertex(tmp_path, key):
    """A gateway with the shipped file of Vertex; its `.server` and `.issuer` (of access tokens) have `.seen`."""

    async def tokens(seen, peer) -> None:
        await asyncio.sleep(0.05)
        token = {"access_token": f"ya29.{len(issuer.seen)}", "expires_in": 3600, "token_type": "Bearer"}
        await peer.send(ok(json.dumps(token).encode()))

    async def answers(seen, peer) -> None:
        await peer.send(VERTEX_GEMINI if ":streamGenerateContent" in seen.line else VERTEX_CLAUDE)

    async with upstream(tokens) as issuer, upstream(answers) as server:
        texts = {
            "vertex": provider_file("vertex", "https://aiplatform.googleapis.com", f"http://127.0.0.1:{server.port}")
        }
        environ = {
            "GOOGLE_APPLICATION_CREDENTIALS": account(key, issuer.url("/token")),
            "GOOGLE_VERTEX_PROJECT": "my-project",
        }
        async with inprocess(tmp_path, providers=texts, environ=environ) as app:
            yield SimpleNamespace(app=app, issuer=issuer, server=server)


async def test_vertex_requests_an_access_token_with_a_signed_assertion(vertex, key) -> None:
    assert (await vertex.app.post("/v1/messages", ASK_CLAUDE)).status_code == 200
    [seen] = vertex.issuer.seen
    form = {name: values[0] for name, values in parse_qs(seen.body.decode()).items()}
    assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    audience = vertex.issuer.url("/token")
    claims = jwt.decode(form["assertion"], key.public_key(), algorithms=["RS256"], audience=audience)
    assert (claims["iss"], claims["scope"], claims["exp"] - claims["iat"]) == (
        "me@example.com",
        "https://www.googleapis.com/auth/cloud-platform",
        3600,
    )


async def test_vertex_uses_one_access_token_for_claude_and_gemini(vertex) -> None:
    replies = await asyncio.gather(*(vertex.app.post("/v1/messages", ASK_CLAUDE) for _ in range(5)))
    assert [reply.status_code for reply in replies] == [200] * 5
    assert (await vertex.app.post("/v1/chat/completions", ASK_GEMINI)).status_code == 200
    assert [seen.headers["authorization"] for seen in vertex.server.seen] == ["Bearer ya29.1"] * 6
    assert len(vertex.issuer.seen) == 1


async def test_claude_on_vertex_is_called_natively_on_its_own_path(vertex) -> None:
    reply = await vertex.app.post("/v1/messages", ASK_CLAUDE)
    assert reply.json()["content"][0]["text"] == "Hi"
    [seen] = vertex.server.seen
    place = "/v1/projects/my-project/locations/global/publishers/anthropic/models/claude-opus-4-5"
    assert unquote(seen.line) == f"POST {place}:rawPredict HTTP/1.1"
    assert json.loads(seen.body) == {
        "max_tokens": 9,
        "messages": ASK_CLAUDE["messages"],
        "anthropic_version": "vertex-2023-10-16",
    }


async def test_a_stream_of_gemini_on_vertex_is_converted(vertex) -> None:
    chunks = data_of((await vertex.app.post("/v1/chat/completions", ASK_GEMINI)).text)
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == "Hello"
    assert chunks[-1]["usage"]["total_tokens"] == 6
    [seen] = vertex.server.seen
    place = "/v1/projects/my-project/locations/global/publishers/google/models/gemini-3.5-flash"
    assert unquote(seen.line) == f"POST {place}:streamGenerateContent?alt=sse HTTP/1.1"


def test_each_model_of_bedrock_s_openai_host_is_called_on_its_own_path():
    # "isn't supported on this route": a 400 of both paths, for every model of the other (recorded by vercel/ai for
    # Gemma 4; NousResearch/hermes-agent issue 52316; maximhq/bifrost pull 7063)
    found = {
        (offer.model.upstream, offer.endpoint): offer.address.whole
        for offer in offers("bedrock-mantle")
        if offer.endpoint != "messages"
    }
    host = "https://bedrock-mantle.us-east-1.api.aws"
    assert found["google.gemma-4-31b", "chat"] == f"{host}/openai/v1/chat/completions"
    assert found["xai.grok-4.6", "chat"] == f"{host}/openai/v1/chat/completions"  # by its model card
    assert found["openai.gpt-6-astra", "responses"] == f"{host}/openai/v1/responses"
    assert found["openai.gpt-oss-120b", "responses"] == f"{host}/v1/responses"
    assert found["qwen.qwen3-32b", "chat"] == f"{host}/v1/chat/completions"
    assert ("openai.gpt-oss-safeguard-20b", "responses") not in found  # answers chat only


def test_the_newest_gpts_are_called_at_bedrock_s_own_host_by_their_profiles():
    # recorded by aws-samples/sample-per-model-bedrock
    found = {offer.model.upstream: unquote(offer.address.whole) for offer in offers("bedrock")}
    assert "/model/global.openai.gpt-5.5/" in found["openai.gpt-5.5"]
    assert "/model/google.gemma-3-27b-it/" in found["google.gemma-3-27b-it"]


@pytest.mark.parametrize("model", ["google/gemma-4-31b", "x-ai/grok-4.3"])
def test_models_that_converse_rejects_are_asked_of_bedrock_s_openai_host_first(model):
    routes = runtime().catalog.resolve(model).routes
    assert [route.provider for route in routes if "bedrock" in route.provider] == ["bedrock-mantle", "bedrock"]


def test_gpt_at_azure_ai_foundry_is_also_called_in_responses():
    # GPT with tools and an effort is a 400 in chat: aaif-goose/goose issue 9825
    found = {(offer.model.id, offer.endpoint): offer.address.whole for offer in offers("azure-ai")}
    assert found["openai/gpt-6-sol", "responses"].endswith(".services.ai.azure.com/openai/v1/responses")
    assert ("openai/gpt-6-sol", "chat") in found
    assert ("openai/gpt-oss-120b", "responses") not in found
    assert ("deepseek/deepseek-v3.2", "responses") not in found


@pytest.mark.parametrize("provider", ["gemini", "vertex"])
def test_gemma_4_gets_thinking_levels_and_no_budget(provider):
    # "Thinking budget is not supported for this model.": earendil-works/pi issue 2812, livekit/agents pull 7095
    found = {offer.model.id: offer.can.get("thinking_level") for offer in offers(provider)}
    assert found["google/gemma-4-26b-a4b-it"]


@pytest.mark.parametrize("provider, ids", [("gemini", None), ("vertex", False)])
def test_vertex_gets_calls_without_ids(provider, ids):
    # "Unknown name "id" at 'contents[1].parts[0].function_call'": BerriAI/litellm pull 28324, vercel/ai issue 15891
    found = [offer for offer in offers(provider) if offer.endpoint == "gemini"]
    assert found and all(offer.can.get("call_ids") is ids for offer in found)


def test_vertex_gets_the_tier_of_a_gemini_request_in_a_header():
    # docs.cloud.google.com/vertex-ai/generative-ai/docs/priority-paygo
    offer = next(offer for offer in offers("vertex") if offer.endpoint == "gemini")
    body, sent = offer.request_parts({"contents": [], "serviceTier": "priority"}, stream=True)
    assert (json.loads(body), sent.all_headers({})) == (
        {"contents": []},
        {"x-vertex-ai-llm-shared-request-type": "priority"},
    )


# -- Claude on the clouds


@pytest.mark.parametrize("provider", ["anthropic", "bedrock", "bedrock-mantle", "vertex", "azure-ai"])
def test_only_claude_since_4_6_is_asked_to_continue_after_an_answer(provider):
    # "This model does not support assistant message prefill.": LibreChat-AI/agents pull 323, ericc-ch/copilot-api
    # pull 261
    found = {o.model.id: o.can.get("prefill") for o in offers(provider) if o.model.id.startswith("anthropic/")}
    earlier = [model for model in found if model.endswith(("4.5", "-4", "4.1")) or "claude-3" in model]
    assert not [model for model in earlier if found[model] is False]
    assert found["anthropic/claude-opus-5.5"] is False


@pytest.mark.parametrize("provider", ["bedrock", "bedrock-mantle", "vertex", "azure-ai"])
def test_only_claude_since_4_6_gets_adaptive_thinking(provider):
    # a 400 for the models before
    found = {
        o.model.id: o.can.get("adaptive_thinking") for o in offers(provider) if o.model.id.startswith("anthropic/")
    }
    earlier = [model for model in found if model.endswith(("4.5", "-4", "4.1")) or "claude-3" in model]
    assert not [model for model in earlier if found[model]]
    assert found["anthropic/claude-opus-5.5"]


def test_only_claude_since_4_8_gets_system_messages_in_place():
    # a 400 for the models before and for Sonnet 5
    found = {o.model.id for o in offers("anthropic") if o.can.get("mid_system")}
    assert {"anthropic/claude-opus-4.8", "anthropic/claude-opus-5", "anthropic/claude-opus-5.5"} <= found
    assert not [m for m in found if m.endswith(("4.7", "4.6", "4.5", "-4", "4.1", "sonnet-5")) or "claude-3" in m]


@pytest.mark.parametrize("provider", ["bedrock", "bedrock-mantle", "vertex", "azure-ai"])
def test_only_beta_headers_known_to_a_cloud_are_sent_to_it(provider):
    # an unknown beta is a 400 there: anthropics/claude-code issues 49370 and 34802
    offer = next(offer for offer in offers(provider) if offer.endpoint == "messages")
    request_headers = {
        "anthropic-beta": "oauth-2025-04-20, "
        "context-management-2025-06-27,computer-use-2025-01-24,mcp-servers-2025-12-04"
    }
    sent = native_headers(request_headers, offer.headers(request_headers), offer.made_headers)
    assert sent["anthropic-beta"] == "context-management-2025-06-27,computer-use-2025-01-24"
    request_headers = {"anthropic-beta": "oauth-2025-04-20"}
    assert "anthropic-beta" not in native_headers(request_headers, offer.headers(request_headers), offer.made_headers)


@pytest.mark.parametrize(
    "model, version", [("anthropic/claude-haiku-4.5", "2023-06-01"), ("anthropic/claude-opus-5.5", "2026-10-21")]
)
def test_bedrock_s_messages_host_gets_the_newest_api_version_for_models_that_have_it(model, version):
    # "On Amazon Bedrock, it's available for Claude 4.7 and later models": Anthropic's page about versions
    offer = next(offer for offer in offers("bedrock-mantle") if (offer.model.id, offer.endpoint) == (model, "messages"))
    request_headers = {"anthropic-version": "2026-10-21"}  # as anthropic's SDK sends it since 2.0
    sent = native_headers(request_headers, offer.headers(request_headers), offer.made_headers)
    assert sent["anthropic-version"] == version
    assert offer.headers({})["anthropic-version"] == "2023-06-01"


@pytest.mark.parametrize("provider", ["bedrock", "bedrock-mantle", "vertex", "azure-ai"])
def test_clouds_get_the_beta_for_verdicts_on_calls(provider):
    # Without it Claude Code's `safeguards` are a 400: BerriAI/litellm pull 42288.
    offer = next(offer for offer in offers(provider) if offer.endpoint == "messages")
    word = "dangerous-tool-use-2026-09-03"
    assert offer.headers({"anthropic-beta": f"afk-mode-2026-01-31, {word}"})["anthropic-beta"] == word


@pytest.mark.parametrize(
    ("provider", "sent", "expected"),
    [
        ("bedrock", "advanced-tool-use-2025-11-20", "tool-search-tool-2025-10-19"),
        ("bedrock-mantle", "advanced-tool-use-2025-11-20", "tool-search-tool-2025-10-19"),
        ("bedrock-mantle", "mid-conversation-output-config-2026-07-01", "per-turn-control-2026-07-01"),
        ("vertex", "advanced-tool-use-2025-11-20", "tool-search-tool-2025-10-19"),
        ("azure-ai", "advanced-tool-use-2025-11-20", "advanced-tool-use-2025-11-20"),
        ("azure-ai", "mid-conversation-output-config-2026-07-01", "per-turn-control-2026-07-01"),
    ],
)
def test_a_beta_is_sent_by_the_name_it_has_at_a_cloud(provider, sent, expected):
    # the fields of a beta that is dropped are a 400
    offer = next(offer for offer in offers(provider) if offer.endpoint == "messages")
    assert offer.headers({"anthropic-beta": sent})["anthropic-beta"] == expected


@pytest.mark.parametrize("provider", ["anthropic", "bedrock-mantle", "vertex"])
def test_the_beta_for_bound_thinking_is_sent_only_with_converted_requests(provider):
    # block_binding without its beta is a 400. The beta adds members to responses, which a client's own request
    # did not ask for.
    word = "thinking-binding-controls-2026-08-01"
    newest, older = (
        next(o for o in offers(provider) if o.endpoint == "messages" and bool(o.can.get("bound_thinking")) is bound)
        for bound in (True, False)
    )
    assert newest.headers({})["anthropic-beta"] == word
    beta = {"anthropic-beta": "context-management-2025-06-27"}
    assert newest.headers(beta)["anthropic-beta"] == f"context-management-2025-06-27,{word}"
    assert newest.headers(beta, native=True)["anthropic-beta"] == "context-management-2025-06-27"
    assert "anthropic-beta" not in newest.headers({}, native=True) and "anthropic-beta" not in older.headers({})


@pytest.mark.parametrize("provider", ["gemini", "vertex"])
@pytest.mark.parametrize(
    "model", ["google/gemini-3.1-pro-preview", "google/gemini-3.7-flash", "google/gemini-flash-latest"]
)
def test_gemini_models_without_a_minimal_level_are_declared_to_always_think(provider, model):
    # "Thinking level MINIMAL is not supported": vellum-ai/vellum-assistant pull 32687, bolna-ai/bolna pull 956
    found = [offer for offer in offers(provider) if offer.model.id == model]
    assert all(offer.can.get("thinking_always") for offer in found)
    assert found or provider == "vertex"


@pytest.mark.parametrize(
    "model, batch", [("gemini-embedding-001", 1), ("gemini-embedding-2", 1), ("text-embedding-005", 9)]
)
def test_vertex_sends_gemini_embedding_models_one_text_per_call(model, batch):
    # "supports one instance per request" (Google's page on text embeddings); a 400: RooCodeInc/Roo-Code issue 5123
    assert [offer.batch for offer in offers("vertex") if offer.model.upstream == model] == [batch]


@pytest.mark.parametrize("provider", ["anthropic", "azure-ai", "bedrock-mantle"])
def test_services_with_anthropic_s_own_paths_count_tokens(provider):
    # the page on token counting names Foundry and Bedrock; Anthropic's SDK sends these paths there
    for offer in offers(provider):
        if offer.endpoint == "messages":
            assert offer.address.count_tokens == f"{offer.address.whole}/count_tokens"
