"""Broken bodies on every POST endpoint, native and converted, whole and streamed: the dialect's error or an answer,
never our own failure.

`fuzzing.py` has the settings of a longer run. A failure names its seed.
"""

from __future__ import annotations

import json
import logging
import random
from decimal import Decimal
from typing import Any

import pytest

from conformance import bodies
from conformance.fuzzing import ROUNDS, SEED, judge_stream
from support.inprocess import inprocess, replying
from support.mutate import mutated
from support.places import SANDBOX_IMAGES
from support.stores import available_to
from support.usage_files import rows_by_id
from support.waiting import SECONDS

PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "count_tokens": "/v1/messages/count_tokens",
    "embeddings": "/v1/embeddings",
    "images": "/v1/images/generations",
}
VALID = {
    "chat": bodies.CHAT,
    "responses": bodies.RESPONSES,
    "messages": bodies.MESSAGES,
    "count_tokens": bodies.MESSAGES,
    "embeddings": bodies.EMBEDDINGS,
    "images": bodies.IMAGES,
}
SPOKEN = ("chat", "responses", "messages")
REFUSING = ("gemini", "bedrock", "cohere", "ollama")
"""Formats the sandbox does not speak: their upstream rejects everything, so that only the conversion is tested."""

_MODEL = """
models:
  fuzz/{name}:
    upstream: reasoner
    context: 131072
    max_output: 4096
    encoding: o200k_base
    modalities: {{input: [text, image, file, audio, video], output: [text]}}
    price: {{prompt: "1", completion: "2", unit: 1000000, currency: USD}}
"""


def _provider(name: str) -> str:
    if name in SPOKEN:
        path = {"chat": "/chat/completions", "responses": "/responses", "messages": "/messages"}[name]
        return f"provider: {name}\nurl: app://sandbox/v1\nspeaks: {{{name}: {path}}}\n" + _MODEL.format(name=name)
    return (
        f'provider: {name}\nspeaks: {{{name}: {{url: "app://refusing/x", stream_url: "app://refusing/y"}}}}\n'
        + _MODEL.format(name=name)
    )


@pytest.fixture
async def here(tmp_path):
    refusing = replying(400, b'{"message": "refused", "error": {"message": "refused"}}')
    providers = {name: _provider(name) for name in (*SPOKEN, *REFUSING)} | {"sandbox-images": SANDBOX_IMAGES}
    async with inprocess(
        tmp_path, providers=providers, apps={"refusing": refusing}, settings="fetch: {seconds: 1}\n"
    ) as opened:
        await opened.services.ledger.grant("default", Decimal(10**9), "fuzz")
        yield opened


CELLS = [
    (dialect, f"fuzz/{upstream}") for dialect in ("chat", "responses", "messages") for upstream in (*SPOKEN, *REFUSING)
]
CELLS += [("count_tokens", "fuzz/messages"), ("count_tokens", "fuzz/chat"), ("embeddings", "sandbox/embed")]


@pytest.mark.parametrize(
    ("dialect", "model"), CELLS, ids=[f"{dialect}-{model.rpartition('/')[2]}" for dialect, model in CELLS]
)
async def test_a_damaged_body_gets_an_answer_or_an_error_in_its_dialect(here, tmp_path, caplog, dialect, model):
    answered = await _fuzz(here, caplog, dialect, model)
    if dialect == "count_tokens":
        assert not list((tmp_path / "usage").rglob("*.duckdb")), "counting tokens is free, and leaves no row"
        return
    rows = await rows_by_id(here, tmp_path)
    assert {row["request_id"] for row in rows.values() if row["outcome"] == "ok"} == answered
    assert {row["outcome"] for row in rows.values()} <= {"ok", "rejected"}
    assert all(row["cost"] == 0 for row in rows.values() if row["outcome"] == "rejected")


@pytest.mark.parametrize("model", ["sandbox/draw", "sandbox/paint"])
async def test_a_damaged_image_request_gets_a_job_or_an_error_in_its_envelope(here, caplog, model):
    await _fuzz(here, caplog, "images", model)


async def _fuzz(here: Any, caplog: Any, dialect: str, model: str) -> set[str]:
    answered = set()
    problems: list[str] = []
    ledger = here.services.ledger
    for number in range(ROUNDS):
        seed = f"{SEED} {dialect} {model} {number}"
        rng = random.Random(seed)
        body = {"model": model, **rng.choice(VALID[dialect])}
        if dialect in SPOKEN and rng.random() < 0.5:
            body["stream"] = True
        raw = mutated(body, rng)
        reply = await here.post(PATHS[dialect], raw)
        about = f"seed {seed!r}: {raw[:3000]!r} -> {reply.status_code} {reply.text[:600]}"
        problem = _judge(dialect, reply)
        broken = [record for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info]
        caplog.clear()
        if problem or broken:
            problems.append(
                " ".join((problem or "", *(f"{record.getMessage()} {record.exc_text}" for record in broken), about))
            )
        if reply.status_code == 200 and dialect != "count_tokens":
            answered.add(reply.headers["x-request-id"])
    assert not problems, f"{len(problems)} problems:\n" + "\n\n".join(problems[:8])
    await here.services.settlements.drain(SECONDS)
    if dialect != "images":
        assert await available_to(ledger, "default") == ledger.balance("default"), "something is still held"
    return answered


def _judge(dialect: str, reply: Any) -> str | None:
    """The fault of a reply, or None."""
    kind = reply.headers["content-type"]
    if reply.headers["x-request-id"] != reply.headers["request-id"]:
        return "two request ids"
    if reply.status_code == 200:
        if kind.startswith("text/event-stream"):
            return judge_stream(dialect, reply.text)
        reply.json()
        return None
    if not 400 <= reply.status_code < 500:
        return "neither an answer nor the client's fault"
    if dialect == "chat":
        return (
            None
            if kind == "text/plain; charset=utf-8" and reply.text and reply.status_code == 400
            else "not plain text"
        )
    body = reply.json()
    if dialect == "responses":
        wanted = (
            set(body) == {"error"}
            and set(body["error"]) == {"message", "type", "param", "code"}
            and body["error"]["message"]
        )
    elif dialect in ("messages", "count_tokens"):
        wanted = (
            set(body) == {"type", "error", "request_id"}
            and body["type"] == "error"
            and set(body["error"]) == {"type", "message"}
            and body["error"]["message"]
        )
    else:
        start = "failed to bind request: " if dialect == "embeddings" else "input validation failed"
        wanted = (
            set(body) == {"success", "code", "message"}
            and body["code"] == reply.status_code
            and body["message"].startswith(start)
        )
    return (
        None
        if wanted and "None" not in json.dumps(body.get("error", {}).get("type", ""))
        else "not the dialect's error"
    )
