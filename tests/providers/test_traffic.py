"""Recorded traffic of each provider, replayed through its file: requests, answers, streams, usage, prices, errors."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from providers import facts, shipped, traffic
from support.places import TRAFFIC
from tollgate.charge import price_usage
from tollgate.mapping import Context, Refused, StreamConverter, Tap, convert_response, tap_response
from tollgate.mapping.provider import Offer
from tollgate.usage import from_hub

AT = datetime(2026, 11, 18, 8, 30, tzinfo=UTC)
"""A Wednesday within the peak hours of the provider that has them."""
FILES = sorted({exchange.file for exchange in traffic.exchanges()}) or ["none"]
CLIENTS = ("chat", "responses", "messages")

pytestmark = pytest.mark.skipif(not traffic.exchanges(), reason=traffic.ABSENT)
priced = pytest.mark.skipif(not facts.FACTS.is_file(), reason=facts.ABSENT)


def offer_of(exchange: traffic.Exchange) -> Offer | None:
    found = [offer for offer in shipped.offers(exchange.file) if offer.endpoint == exchange.endpoint]
    return shipped.offer_for(exchange.file, exchange.endpoint, exchange.model) if found else None


def context(offer: Offer | None) -> Context:
    facts_of_model = offer.model_facts if offer else {"upstream": "m", "parameters": []}
    return Context(facts_of_model, offer.can if offer else {}, run_id="run", now=1_700_000_000)


def edits(exchange: traffic.Exchange, kind: str) -> Any:
    """The edits of its offer, or for a file without models those that apply to every model."""
    provider, offer = shipped.runtime().providers[exchange.file], offer_of(exchange)
    endpoint = provider.endpoints[exchange.endpoint].config
    found = provider.scopes.edits(kind, endpoint, offer.model if offer else None)
    return (lambda body: found(body, context(offer))) if found is not None else (lambda body: body)


def rules(exchange: traffic.Exchange) -> Any:
    return shipped.runtime().providers[exchange.file].endpoints[exchange.endpoint].errors


def excludes(exchange: traffic.Exchange) -> frozenset[str]:
    return (
        offer_of(exchange) or shipped.runtime().providers[exchange.file].endpoints[exchange.endpoint]
    ).usage.excludes


def edited_events(exchange: traffic.Exchange) -> list[tuple[str | None, Any]]:
    change = edits(exchange, "stream")
    return [
        (name, change(copy.deepcopy(event)) if isinstance(event, dict) else event) for name, event in exchange.events
    ]


# -- requests

MUST_DROP = {
    "mistral": ("stream_options", "user", "logit_bias", "store", "max_completion_tokens", "seed"),
    "groq": ("logprobs", "logit_bias", "top_logprobs", "max_tokens"),
    "deepseek": ("store", "max_completion_tokens"),
    "xai": ("store", "web_search_options", "max_tokens"),
    "together": ("max_completion_tokens", "store", "user", "service_tier"),
    "fireworks": ("store",),
    "perplexity": ("tools", "tool_choice", "stream_options"),
    "dashscope": ("store", "service_tier"),
    "zai": ("store", "n", "logprobs", "presence_penalty", "frequency_penalty", "seed", "stream_options"),
    "cerebras": ("store",),
    "bedrock": ("stream",),
}
"""Members for which these providers reject a whole request, from their documentation."""
NO_DEVELOPER = (
    "mistral",
    "deepseek",
    "xai",
    "together",
    "fireworks",
    "dashscope",
    "zai",
    "cerebras",
    "perplexity",
    "huggingface",
    "sambanova",
)


@pytest.mark.parametrize("file", FILES)
def test_requests_pass_the_file_s_edits_and_lose_what_the_provider_rejects(file: str) -> None:
    for exchange in traffic.of(file):
        if not isinstance(exchange.request, dict) or exchange.endpoint == "chat" and "messages" not in exchange.request:
            continue
        before = copy.deepcopy(exchange.request)
        if exchange.mapping in CLIENTS and file == "bedrock":
            before |= {"stream": True}
        given = copy.deepcopy(before)
        try:
            sent = edits(exchange, "request")(given)
        except Refused as no:
            assert file in ("perplexity", "dashscope"), (exchange.id, no.message)
            continue
        assert given == before, f"{exchange.id}: the caller's document was changed"
        if exchange.endpoint == "messages" and file == "vertex":
            assert "model" not in sent, exchange.id
        if exchange.endpoint == "chat":
            assert not {*MUST_DROP.get(file, ())} & sent.keys(), exchange.id
        if exchange.endpoint == "chat":
            roles = [message.get("role") for message in sent["messages"]]
            assert file not in NO_DEVELOPER or "developer" not in roles, exchange.id
            assert len(roles) == len(before["messages"]), exchange.id
            assert [
                m.get("content")
                for m in sent["messages"]
                if m.get("role") == "user" and isinstance(m.get("content"), str)
            ] == [
                m.get("content")
                for m in before["messages"]
                if m.get("role") == "user" and isinstance(m.get("content"), str)
            ], exchange.id
        json.dumps(sent)


@pytest.mark.parametrize("file", FILES)
def test_a_request_with_everything_that_providers_reject_is_cleaned(file: str) -> None:
    """Sends everything that any provider rejects through every chat model of the file."""
    for offer in shipped.offers(file):
        if offer.endpoint != "chat" or offer.request_edits is None:
            continue
        body = {
            "model": offer.model.upstream,
            "messages": [
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": "Hi", "name": "bob"},
            ],
            "max_completion_tokens": 5,
            "max_tokens": 5,
            "temperature": 1.9,
            "top_p": 0.9,
            "n": 1,
            "seed": 7,
            "user": "u",
            "store": False,
            "logit_bias": {},
            "logprobs": True,
            "top_logprobs": 1,
            "presence_penalty": 0.1,
            "frequency_penalty": 0.1,
            "stop": ["x", "y"],
            "metadata": {},
            "stream": True,
            "stream_options": {"include_usage": True},
            "service_tier": "auto",
            "reasoning_effort": "low",
            "web_search_options": {},
        }
        if file == "perplexity":
            body |= {"tool_choice": "auto"}
        sent = offer.request_edits(copy.deepcopy(body), Context(offer.model_facts, offer.can))
        assert not {*MUST_DROP.get(file, ())} & sent.keys(), offer.route
        assert not {"max_tokens", "max_completion_tokens"} <= sent.keys() or file in (
            "openai",
            "azure-openai",
            "vertex",
        ), offer.route
        assert sent["temperature" if "temperature" in sent else "messages"], offer.route
        if file in ("zai", "minimax", "moonshot"):
            assert sent["temperature"] <= 1


# -- answers and streams


def content_and_reasoning(message: dict[str, Any]) -> tuple[Any, Any]:
    """Content and reasoning of a recorded answer. A content list contains both."""
    content, thought = message.get("content"), message.get("reasoning_content") or message.get("reasoning")
    if not isinstance(content, list):
        return content, thought
    return (
        "".join(part["text"] for part in content if part["type"] == "text"),
        "".join(piece["text"] for part in content if part["type"] == "thinking" for piece in part["thinking"]),
    )


def with_types(calls: Any) -> Any:
    """Recorded calls with the type that client libraries require."""
    return calls and [{"type": "function", **call} for call in calls]


@pytest.mark.parametrize("file", FILES)
def test_answers_keep_their_text_and_reasoning(file: str) -> None:
    for exchange in traffic.of(file):
        if not exchange.answered:
            continue
        changed = edits(exchange, "response")(copy.deepcopy(exchange.body))
        if exchange.mapping == "chat":
            for before, after in zip(exchange.body["choices"], changed["choices"], strict=True):
                old, new = before.get("message", {}), after.get("message", {})
                content, thought = content_and_reasoning(old)
                assert new.get("content") == content and new.get("tool_calls") == with_types(old.get("tool_calls")), (
                    exchange.id
                )
                assert (new.get("reasoning") or new.get("reasoning_content")) == thought, exchange.id
        for client in CLIENTS:
            made = convert_response(
                shipped.mapping(exchange.mapping), shipped.mapping(client), changed, context(offer_of(exchange))
            )
            assert made.body, exchange.id


@pytest.mark.parametrize("file", FILES)
def test_streams_are_converted_for_every_client(file: str) -> None:
    for exchange in traffic.of(file):
        if (
            not exchange.stream
            or exchange.status >= 400
            or any(isinstance(e, dict) and e.get("object") == "text_completion" for _, e in exchange.events)
        ):
            continue
        events = edited_events(exchange)
        for client in CLIENTS:
            converter = StreamConverter(
                shipped.mapping(exchange.mapping), shipped.mapping(client), context(offer_of(exchange))
            )
            out = [chunk for name, event in events for chunk in converter.feed(event, name)] + converter.finish()
            assert out, exchange.id
            failed = converter.error is not None
            reported = any(
                isinstance(event, dict)
                and (
                    event.get("error")
                    or event.get("type") in ("error", "response.failed")
                    or "rror"
                    in str(
                        (event.get("delta") or {}).get("finish_reason", "")
                        if isinstance(event.get("delta"), dict)
                        else ""
                    ).title()
                )
                for _, event in events
            )
            if failed and not reported:
                assert converter.stop is None or converter.stop == "error", (exchange.id, converter.error)


# -- usage and prices


@priced
@pytest.mark.parametrize("file", FILES)
def test_every_recorded_usage_is_billed_exactly(file: str) -> None:
    compared = 0
    for exchange in traffic.of(file):
        used, offer = exchange.usage, offer_of(exchange)
        if exchange.status >= 400 or used is None:
            continue
        if exchange.stream:
            tap = Tap(shipped.mapping(exchange.mapping))
            for name, event in edited_events(exchange):
                tap.feed(event, name)
            hub = tap.usage
        else:
            hub = tap_response(
                shipped.mapping(exchange.mapping), edits(exchange, "response")(copy.deepcopy(exchange.body))
            ).get("usage")
        usage = from_hub(hub, excludes=excludes(exchange))
        assert (
            facts.Buckets(
                usage.input,
                usage.cache_read,
                usage.cache_write,
                usage.cache_write_1h,
                usage.output,
                usage.reasoning,
                usage.audio_input,
                usage.audio_output,
                usage.searches,
                usage.audio_cache_read,
                usage.image_output,
            )
            == used
        ), (exchange.id, usage, hub)
        row = facts.row_of(file, offer.model) if offer else None
        if row is None:
            continue
        charge = price_usage(usage, offer.own_tariff, shipped.loaded().gateway.credits.rates, at=AT)
        pricing = row["pricing"]
        if drawn := facts.image_prices().get(offer.model.upstream.removesuffix("-preview")):
            pricing = {**pricing, "image_output_token": str(Decimal(drawn) * pricing["unit"] / 10**6)}
        assert charge.cost == facts.cost(pricing, used, AT), (exchange.id, offer.route)
        compared += 1
    assert compared or file in ("huggingface", "ollama", "sambanova", "voyage"), "nothing was compared"


# -- errors

VERDICTS = {
    "oc-zai-045a4d": ("later", None),
    "am-anthropic-9a6838": ("next", None),
    "am-anthropic-da5af7": ("later", None),
    "oc-cerebras-0aeb9e": ("later", None),
    "gg-gemini-0636a8": ("next", "key"),
}


@pytest.mark.parametrize("file", FILES)
def test_every_recorded_error_has_a_verdict(file: str) -> None:
    for exchange in traffic.of(file):
        if exchange.status < 400:
            continue
        verdict = rules(exchange).judge(exchange.status, exchange.headers, exchange.body)
        assert verdict is not None and verdict.message and shipped.CANARY not in verdict.message, exchange.id
        if exchange.id in VERDICTS:
            assert (verdict.kind, verdict.alarm) == VERDICTS[exchange.id], exchange.id
        if exchange.status in (401, 403):
            assert (
                (verdict.kind, verdict.alarm) == ("next", "key")
                or verdict.alarm == "balance"
                or file in ("bedrock", "openrouter")
            ), exchange.id
        # gemini's "quota" is a limit per minute with a time to wait
        if "error_quota" in exchange.features and file != "gemini":
            assert (verdict.kind, verdict.alarm) == ("next", "balance"), exchange.id
        if exchange.status == 429:
            assert verdict.kind in ("later", "next"), exchange.id
        if exchange.status in (500, 502, 503, 529):
            assert verdict.kind in ("later", "next"), exchange.id
        if exchange.status == 400 and not exchange.features & {"error_model_not_found", "error_auth", "error_quota"}:
            assert (
                verdict.kind == "stop"
                or verdict.alarm == "balance"
                or verdict.kind in ("later", "next")
                and file in ("groq", "huggingface", "bedrock", "gemini", "together")
            ), (exchange.id, verdict)
        if "error_model_not_found" in exchange.features:
            assert verdict.kind == "next" or exchange.status == 404, (exchange.id, verdict)
        if "retry-after" in exchange.headers and verdict.kind != "stop":
            assert verdict.retry_after is not None, exchange.id


@pytest.mark.parametrize("file", FILES)
def test_good_answers_are_no_errors_and_errors_inside_a_200_are(file: str) -> None:
    for exchange in traffic.of(file):
        if exchange.answered:
            verdict = rules(exchange).judge(exchange.status, exchange.headers, exchange.body)
            assert verdict is None or "error_in_200" in exchange.features, (exchange.id, verdict)
        if exchange.stream and exchange.status < 400:
            judged = [
                rules(exchange).judge(200, {}, event, chunk=True)
                for _, event in exchange.events
                if isinstance(event, dict)
            ]
            wanted = "stream_error" in exchange.features and exchange.mapping in ("chat", "messages", "ollama")
            assert any(judged) or not wanted, exchange.id
            if exchange.features.isdisjoint({"stream_error", "error_in_200", "incomplete"}):
                assert not any(judged), (exchange.id, next(verdict for verdict in judged if verdict))


EMBEDDINGS = {"openai-embeddings", "cohere-embed", "gemini-embeddings", "vertex-embeddings"}


def test_every_recorded_embeddings_error_has_a_verdict() -> None:
    rows = [
        row
        for row in json.loads((TRAFFIC / "index.json").read_text())["exchanges"]
        if row["protocol"] in EMBEDDINGS and row["status"] >= 400
    ]
    assert len(rows) >= 10
    for row in rows:
        answer = json.loads((TRAFFIC / row["file"]).read_text())["response"]
        provider = shipped.runtime().providers[traffic.FILES[row["provider"]]]
        endpoint = provider.endpoints.get(row["protocol"]) or next(
            found for name, found in provider.endpoints.items() if name.endswith("embeddings")
        )
        verdict = endpoint.errors.judge(
            answer["status"],
            {name.lower(): value for name, value in answer.get("headers", {}).items()},
            answer.get("body"),
        )
        assert verdict is not None and verdict.message, row["id"]
        if answer["status"] in (401, 403):
            assert verdict.alarm == "key", row["id"]
