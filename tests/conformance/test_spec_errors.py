"""SPEC, errors: the exact status, body and headers of each endpoint for each cause, and the number of attempts."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import pytest_asyncio

from conformance.upstreams import ASKS, provider
from support.inprocess import inprocess
from support.stores import available_to
from support.usage_files import rows_by_id
from tollgate.health import Health

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "embeddings": "/v1/embeddings",
    "images": "/v1/images/generations",
}
BODIES: dict[str, dict[str, Any]] = {
    **ASKS,
    "embeddings": {"model": "acme/embed", "input": "hi"},
    "images": {"model": "acme/draw", "input": {"prompt": "hi"}},
}
SPOKEN = {"chat": "chat", "responses": "responses", "messages": "messages"}
ROUTES = ("acme", "beta", "gamma", "delta")
"""Four routes to every model: one more than may be tried."""

_EXTRA = """
  acme/embed: {upstream: embed, type: embedding, context: 8192, price: {prompt: "1", unit: 1000000}}
"""
_IMAGES = """
provider: %s-images
images: {submit: {call: POST app://%s/images, body: $.input, result: {id: $.id, status: $.status}}, poll: {call: "GET app://%s/images/{{ $job.id }}", result: {status: $.status}}}
models: {acme/draw: {upstream: draw, price: {price: "0.04"}, input_schema: {type: object, required: [prompt], properties: {prompt: {type: string}}}}}
"""  # noqa: E501
BUSY = "The model service is overloaded or rate limited. Please try again later."
FAILED = "The model service failed to answer. Please try again later."
SLOW = "The model service did not answer in time (first-byte budget of 0.2 s exceeded). Please try again later."


def openai(message: str, kind: str, code: str | None, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def anthropic(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


def envelope(code: int, message: str) -> tuple[int, dict[str, Any]]:
    return code, {"success": False, "code": code, "message": message}


def failing(
    message: str, *, responses: int = 500, messages: tuple[int, str] = (500, "api_error")
) -> dict[str, tuple[int, Any]]:
    """The replies of the endpoints after every route failed."""
    return {
        "chat": (500, message),
        "responses": (responses, openai(message, "server_error", "server_error")),
        "messages": (messages[0], anthropic(messages[1], message)),
        "embeddings": envelope(500, "internal error, please try again later"),
        "images": envelope(500, "internal server error"),
    }


def refused(status: int, kind: str) -> dict[str, tuple[int, Any]]:
    """The replies of the endpoints if the provider rejected the request."""
    return {
        "chat": (400, "temperature is too hot"),
        "responses": (status, openai("temperature is too hot", "invalid_request_error", "too_hot", "temperature")),
        "messages": (status, anthropic(kind, "temperature is too hot")),
        "embeddings": envelope(400, "failed to bind request: temperature is too hot"),
        "images": envelope(400, "input validation failed: temperature is too hot"),
    }


UNREACHABLE = dict.fromkeys(PATHS, (502, {"message": "Service temporarily unavailable"}))
CAUSES: dict[str, tuple[Any, dict[str, tuple[int, Any]], int]] = {
    "500": (500, failing(FAILED), 3),
    "503": (
        503,
        failing(FAILED, messages=(529, "overloaded_error")) | failing(BUSY, messages=(529, "overloaded_error")),
        3,
    ),
    "429": (429, failing(BUSY), 3),
    "529": (529, failing(BUSY, messages=(529, "overloaded_error")), 3),
    "401, our key": (401, failing(FAILED), 3),
    "403, our key": (403, failing(FAILED), 3),
    "402, our balance": (402, failing(FAILED), 3),
    "no connection": ("reset", UNREACHABLE, 3),
    "silence": ("silence", failing(SLOW, responses=504, messages=(504, "timeout_error")), 3),
    "no JSON": ("html", failing(FAILED), 3),
    "400": (400, refused(400, "invalid_request_error"), 1),
    "422": (422, refused(422, "invalid_request_error"), 1),
}


class Upstream:
    """An app that fails as configured, and counts its calls."""

    def __init__(self) -> None:
        self.how: Any = 200
        self.calls = 0
        self.headers: dict[str, str] = {}

    async def __call__(self, method: str, path: str, headers: Any, body: bytes) -> Any:
        self.calls += 1
        if self.how == "reset":
            raise ConnectionResetError
        if self.how == "silence":
            await asyncio.sleep(5)
        error = {
            "message": "temperature is too hot",
            "type": "invalid_request_error",
            "code": "too_hot",
            "param": "temperature",
        }
        content = b"<html>oops nginx" if self.how == "html" else json.dumps({"type": "error", "error": error}).encode()

        async def blocks() -> Any:
            yield content

        return (
            (200 if self.how == "html" else self.how),
            {"content-type": "text/html" if self.how == "html" else "application/json", **self.headers},
            blocks(),
        )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory):
    folder = tmp_path_factory.mktemp("errors")
    upstream = Upstream()
    speaks = "speaks: {chat: /c, responses: /r, messages: /m, embeddings: /e}"
    texts = {
        name: provider(f"app://{name}/v1", "chat", name=name, lines=_EXTRA).replace("speaks: chat", speaks)
        for name in ROUTES
    }
    texts |= {f"{name}-images": _IMAGES % (name, name, name) for name in ROUTES}
    settings = "timeouts: {first_byte: 0.2}\nretry: {cooldown_failures: 1000}\n"
    async with inprocess(folder, providers=texts, apps=dict.fromkeys(ROUTES, upstream), settings=settings) as here:
        yield here, upstream, folder


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("dialect", PATHS)
async def test_every_cause_has_the_reply_of_each_endpoint(scene, dialect, cause):
    here, upstream, _ = scene
    how, replies, tries = CAUSES[cause]
    for stream in (False, True) if dialect in SPOKEN else (False,):
        upstream.how, upstream.calls, upstream.headers = how, 0, {}
        here.services.health = Health(here.services.health.settings)  # no route is cooling down
        reply = await here.post(PATHS[dialect], {**BODIES[dialect], **({"stream": True} if stream else {})})
        status, body = replies[dialect]
        found = reply.text if isinstance(body, str) else reply.json()
        if isinstance(found, dict) and dialect == "messages" and status != 502:
            assert found.pop("request_id") == reply.headers["request-id"]
        assert (reply.status_code, found) == (status, body)
        assert reply.headers["content-type"] == (
            "text/plain; charset=utf-8" if isinstance(body, str) else "application/json"
        )
        assert upstream.calls == tries
        assert "retry-after" not in reply.headers and "x-should-retry" not in reply.headers
        assert reply.headers["x-tollgate-error"] and "nginx" not in reply.text


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages", "embeddings"])
@pytest.mark.parametrize(
    ("retry_after", "sent"),
    [
        ("7", "7"),
        ("0", "1"),
        ("0.2", "1"),
        ("100000", "120"),
        ("-5", None),
        ("soon", None),
        ("", None),
        ("nan", None),
        ("inf", None),
        ("1e400", None),
    ],
)
async def test_retry_after_is_passed_on_between_one_and_120_seconds(scene, dialect, retry_after, sent):
    here, upstream, _ = scene
    upstream.how, upstream.headers = 503, {"retry-after": retry_after}
    here.services.health = Health(here.services.health.settings)
    reply = await here.post(PATHS[dialect], BODIES[dialect])
    assert reply.status_code == (529 if dialect == "messages" else 500)
    assert reply.headers.get("retry-after") == sent


UNKNOWN = {
    "chat": (400, "model not found: no/such"),
    "responses": (
        400,
        openai("The requested model 'no/such' does not exist.", "invalid_request_error", "model_not_found", "model"),
    ),
    "messages": (404, anthropic("not_found_error", "model: no/such")),
    "embeddings": envelope(400, "failed to bind request: model not found: no/such"),
    "images": envelope(400, "input validation failed: model not found: no/such"),
}


@pytest.mark.parametrize("dialect", PATHS)
async def test_unknown_and_forbidden_models_look_the_same(scene, dialect):
    here, upstream, _ = scene
    upstream.calls = 0
    status, body = UNKNOWN[dialect]
    _, nothing = await here.services.ledger.create_key("default", allowed_models=())
    for model, key in (("no/such", here.key), (BODIES[dialect]["model"], nothing)):
        reply = await here.post(PATHS[dialect], {**BODIES[dialect], "model": model}, key=key)
        wanted = json.loads(json.dumps(body).replace("no/such", model))
        found = reply.text if isinstance(body, str) else reply.json()
        if dialect == "messages":
            found.pop("request_id")
        assert (reply.status_code, found, upstream.calls) == (status, wanted, 0)


@pytest.mark.parametrize("dialect", PATHS)
async def test_a_model_of_another_endpoint_is_rejected_with_its_endpoint(scene, dialect):
    here, upstream, _ = scene
    upstream.calls = 0
    model, place = (
        ("acme/one", "/v1/chat/completions, /v1/responses and /v1/messages")
        if dialect == "embeddings"
        else ("acme/embed", "/v1/embeddings")
    )
    status, body = UNKNOWN[dialect]
    reply = await here.post(PATHS[dialect], {**BODIES[dialect], "model": model})
    found = reply.text if isinstance(body, str) else reply.json()
    if dialect == "messages":
        found.pop("request_id")
    shown = f"{model}' does not exist" if dialect == "responses" else model
    unknown = "no/such' does not exist" if dialect == "responses" else "no/such"
    wanted = json.loads(json.dumps(body).replace(unknown, f"{shown} (it is for {place})"))
    assert (reply.status_code, found, upstream.calls) == (status, wanted, 0)


MISTAKES: dict[str, dict[str, tuple[Any, str]]] = {
    "chat": {
        "no JSON": (b"{", "the request body is not valid JSON: "),
        "a list": ([], "the request body is a list; a JSON object is wanted"),
        "no model": ({"messages": []}, "missing required field: model"),
        "a model that is no text": ({"model": 5, "messages": []}, "model is an integer; text is wanted"),
        "no messages": ({"model": "acme/one"}, "missing required field: messages"),
        "a message that is no object": (
            {"model": "acme/one", "messages": ["hi"]},
            "messages[0] is text; an object is wanted",
        ),
        "content that is a number": (
            {"model": "acme/one", "messages": [{"role": "user", "content": 5}]},
            "messages[0].content is an integer; text or a list of parts is wanted",
        ),
        "stream that is text": ({**ASKS["chat"], "stream": "yes"}, "stream is text; a boolean is wanted"),
    },
    "embeddings": {
        "no JSON": (b"{", "failed to bind request: the request body is not valid JSON"),
        "no model": ({"input": "hi"}, "failed to bind request: model is required"),
        "no input": ({"model": "acme/embed"}, "failed to bind request: input is required"),
        "a wrong encoding": (
            {"model": "acme/embed", "input": "hi", "encoding_format": "hex"},
            "failed to bind request: ",
        ),
        "dimensions that are text": (
            {"model": "acme/embed", "input": "hi", "dimensions": "256"},
            "failed to bind request: ",
        ),
        "an empty input": ({"model": "acme/embed", "input": []}, "failed to bind request: "),
        "too many inputs": ({"model": "acme/embed", "input": ["x"] * 2049}, "failed to bind request: "),
        "a model that talks": (
            {"model": "acme/one", "input": "hi"},
            "failed to bind request: model not found: acme/one",
        ),
    },
    "images": {
        "no JSON": (b"{", "input validation failed: "),
        "no model": ({"input": {"prompt": "x"}}, "input validation failed: model is required"),
        "no input": ({"model": "acme/draw"}, "input validation failed: input is required"),
        "an input that is text": (
            {"model": "acme/draw", "input": "x"},
            "input validation failed: input is required and must be an object",
        ),
        "an input without a prompt": (
            {"model": "acme/draw", "input": {}},
            "input validation failed: input.prompt: is required",
        ),
        "a webhook that is no text": (
            {**BODIES["images"], "webhook": 5},
            "input validation failed: webhook is not text",
        ),
    },
}
for _dialect in ("responses", "messages"):
    MISTAKES[_dialect] = {name: MISTAKES["chat"][name] for name in ("no JSON", "a list", "no model")}
MISTAKES["messages"]["no max_tokens"] = ({"model": "acme/one", "messages": []}, "missing required field: max_tokens")
MISTAKES["responses"]["an input that is a number"] = (
    {"model": "acme/one", "input": 5},
    "input is an integer; text or a list is wanted",
)


@pytest.mark.parametrize(
    ("dialect", "case"), [(dialect, case) for dialect, cases in MISTAKES.items() for case in cases]
)
async def test_an_invalid_field_is_a_400_that_names_it_and_writes_no_row(scene, dialect, case):
    here, upstream, folder = scene
    upstream.calls = 0
    body, wanted = MISTAKES[dialect][case]
    reply = await here.post(PATHS[dialect], body)
    assert reply.status_code == 400 and upstream.calls == 0
    body_of_reply = reply.json() if dialect != "chat" else reply.text
    message = (
        body_of_reply
        if dialect == "chat"
        else body_of_reply["message"]
        if dialect in ("embeddings", "images")
        else body_of_reply["error"]["message"]
    )
    assert message.startswith(wanted)
    if dialect in ("responses", "messages"):
        assert body_of_reply["error"]["type"] == "invalid_request_error"
    assert reply.headers["x-request-id"] not in await rows_by_id(here, folder)


async def test_errors_hold_no_balance_and_cost_nothing(scene):
    here, upstream, folder = scene
    upstream.how, upstream.headers = 400, {}
    for dialect in SPOKEN:  # beside those of the tests above that ran in this process
        await here.post(PATHS[dialect], BODIES[dialect])
    assert await available_to(here.services.ledger, "default") == here.balance() == 100
    rows = (await rows_by_id(here, folder)).values()
    assert (
        rows
        and {row["outcome"] for row in rows} <= {"rejected", "upstream_error", "timeout"}
        and all(row["cost"] == 0 for row in rows)
    )
