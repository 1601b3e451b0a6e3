"""Billing: the service tier that was applied, nothing without an answer, and holds that cover the most expensive
case."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from decimal import Decimal
from typing import Any

import pytest

from support.inprocess import SSE, inprocess, replying
from support.stores import available_to
from support.usage_files import rows_by_id
from support.waiting import SECONDS
from tollgate.completions.native_chat import NativeChat

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
MESSAGE = {
    "id": "m1",
    "type": "message",
    "role": "assistant",
    "model": "up-1",
    "content": [{"type": "text", "text": "hi"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
}
ASK = {"model": "acme/one", "max_tokens": 50, "messages": [{"role": "user", "content": "hello"}]}
BASE = Decimal(2)


def provider(speaks: str = "chat", url: str = "app://acme/chat", more: str = "") -> str:
    return f"""
provider: acme
speaks: {speaks}
url: {url}
models:
  acme/one:
    upstream: up-1
    context: 1000
    max_output: 100
    price: {{prompt: "1", completion: "2", unit: 10, currency: USD{more}}}
"""


async def test_a_row_of_a_model_without_a_price_has_no_price_list(tmp_path):
    unpriced = provider().partition("    price:")[0]
    async with inprocess(tmp_path, providers={"acme": unpriced}, apps={"acme": replying(body=chat())}) as here:
        assert (await here.post("/v1/chat/completions", ASK)).status_code == 200
        [row] = (await rows_by_id(here, tmp_path)).values()
    assert (row["prices"], row["cost"]) == (None, 0)


async def test_a_failed_request_for_a_model_without_a_price_costs_nothing_and_has_a_row(tmp_path):
    unpriced, refusing = provider().partition("    price:")[0], replying(status=400, body=b'{"error": "no"}')
    async with inprocess(tmp_path, providers={"acme": unpriced}, apps={"acme": refusing}) as here:
        assert (await here.post("/v1/chat/completions", ASK)).status_code == 400
        [row] = (await rows_by_id(here, tmp_path)).values()
    assert (row["outcome"], row["cost"], row["currency"], row["rate"]) == ("rejected", 0, "USD", 1)


async def test_a_row_has_the_cost_in_the_currency_of_the_price_and_the_rate_to_usd(tmp_path):
    in_yuan, app = provider().replace("USD", "CNY"), replying(body=chat())
    settings = 'credits: {rates: {USD: "1", CNY: "0.15"}}\n'
    async with inprocess(tmp_path, settings=settings, providers={"acme": in_yuan}, apps={"acme": app}) as here:
        assert (await here.post("/v1/chat/completions", ASK)).status_code == 200
        [row] = (await rows_by_id(here, tmp_path)).values()
    assert (row["native_cost"], row["currency"], row["rate"]) == (2, "CNY", Decimal("0.15"))
    assert row["cost"] == Decimal("0.3")


TIERS = (
    ', service_tiers: {flex: {prompt: "0.5", completion: "1"}, batch: {prompt: "0.5", completion: "1"}}, multipliers: '
    '{priority: "2"}'
)
WIDE = 'credits: {hold_cap: "1000000"}\n'


def chat(tier: str | None = None, usage: Any = USAGE) -> bytes:
    reported = {"service_tier": tier} if tier else {}
    return json.dumps(
        {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": "up-1",
            **reported,
            "usage": usage,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
        }
    ).encode()


def blocks(tier: str | None) -> list[bytes]:
    reported = {"service_tier": tier} if tier else {}
    frame = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "up-1", **reported}
    events = [
        {**frame, "choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": None}]},
        {**frame, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {**frame, "choices": [], "usage": USAGE},
    ]
    return [*(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events), b"data: [DONE]\n\n"]


async def spent(here: Any, body: dict[str, Any], path: str = "/v1/chat/completions") -> tuple[Any, Decimal]:
    before = here.balance()
    reply = await here.post(path, body)
    await here.services.settlements.drain(SECONDS)
    return reply, before - here.balance()


@pytest.mark.parametrize(
    ("requested", "reported", "times"),
    [
        ("flex", "flex", "0.5"),
        ("flex", None, "0.5"),
        ("flex", "default", "1"),
        (None, "priority", "2"),
        ("priority", "fast", "2"),
        ("auto", "priority", "2"),
        ("priority", "default", "1"),
        ("batch", None, "1"),
        (None, None, "1"),
    ],
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_the_applied_tier_is_billed(tmp_path, requested, reported, times, stream):
    app = replying(blocks=blocks(reported), headers=SSE) if stream else replying(body=chat(reported))
    async with inprocess(tmp_path, providers={"acme": provider(more=TIERS)}, apps={"acme": app}) as here:
        reply, cost = await spent(here, {**ASK, "stream": stream, **({"service_tier": requested} if requested else {})})
        assert reply.status_code == 200
        assert cost == BASE * Decimal(times)


@pytest.mark.parametrize("later", [{}, {"service_tier": None}], ids=["absent later", "null later"])
async def test_the_tier_in_the_first_chunk_of_a_stream_is_billed(tmp_path, later):
    first, *others = (json.loads(block[6:]) for block in blocks(None)[:-1])
    chunks = [{**first, "service_tier": "priority"}, *({**each, **later} for each in others)]
    app = replying(blocks=[b"data: " + json.dumps(each).encode() + b"\n\n" for each in chunks], headers=SSE)
    async with inprocess(tmp_path, providers={"acme": provider(more=TIERS)}, apps={"acme": app}) as here:
        assert (await spent(here, {**ASK, "stream": True}))[1] == 2 * BASE


async def test_the_tier_that_a_broken_off_stream_reported_is_billed(tmp_path):
    app = replying(blocks=blocks("default")[:1], headers=SSE)
    async with inprocess(tmp_path, providers={"acme": provider(more=TIERS)}, apps={"acme": app}) as here:
        _, cost = await spent(here, {**ASK, "stream": True, "service_tier": "priority"})
        [row] = (await rows_by_id(here, tmp_path)).values()
        assert (row["outcome"], row["price_rule"], row["cost"]) == ("upstream_error", "base", cost)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", ["/v1/messages", "/v1/chat/completions"])
async def test_the_tier_in_the_usage_of_a_message_is_billed(tmp_path, client, stream):
    usage = {"input_tokens": 10, "output_tokens": 5, "service_tier": "priority"}
    events = [
        {"type": "message_start", "message": {**MESSAGE, "content": [], "usage": {**usage, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]
    app = (
        replying(blocks=[b"data: " + json.dumps(event).encode() + b"\n\n" for event in events], headers=SSE)
        if stream
        else replying(body=json.dumps({**MESSAGE, "usage": usage}).encode())
    )
    priced = provider("messages", "app://acme/messages", TIERS)
    async with inprocess(tmp_path, settings=WIDE, providers={"acme": priced}, apps={"acme": app}) as here:
        assert (await spent(here, {**ASK, "stream": stream}, client))[1] == BASE * 2


async def test_a_row_names_the_price_rules_that_applied(tmp_path):
    tiers = (
        ', volumes: [{min_prompt_tokens: 5, prompt: "3", completion: "4"}], service_tiers: {flex: {prompt: "0.5", '
        'completion: "1"}}'
    )
    async with inprocess(
        tmp_path, providers={"acme": provider(more=tiers)}, apps={"acme": replying(body=chat("flex"))}
    ) as here:
        _, cost = await spent(here, ASK)
        rows = await rows_by_id(here, tmp_path)
        assert [(row["price_rule"], row["cost"]) for row in rows.values()] == [("volumes[0] flex", cost)]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_the_hold_is_released_if_the_cost_exceeds_what_a_row_can_store(tmp_path, stream):
    app = replying(blocks=blocks(None), headers=SSE) if stream else replying(body=chat())
    async with inprocess(
        tmp_path, providers={"acme": provider(more=', request: "999999999999"')}, apps={"acme": app}
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": stream})
        assert (reply.status_code, reply.text) == (500, "internal server error")
        assert await available_to(here.services.ledger, "default") == here.balance() == Decimal(100)


DEPTHS = (
    ', request: "1", volumes: [{word: medium, request: "5"}, {word: high, request: "9", completion: "4"}], '
    'multipliers: {far: "2"}'
)
WORDS = "usage: {words: [$.web_search_options.search_context_size, $.place]}\n"


@pytest.mark.parametrize(
    ("options", "edit", "times"),
    [
        pytest.param({}, "", 3, id="no word"),
        pytest.param({"search_context_size": "low"}, "", 3, id="a word without a price"),
        pytest.param({"search_context_size": "medium"}, "", 7, id="medium"),
        pytest.param({"search_context_size": "high"}, "", 12, id="a word that changes several prices"),
        pytest.param({"search_context_size": ["high"]}, "", 3, id="not a string"),
        pytest.param(
            {"search_context_size": "high"}, "request: [{drop: [web_search_options]}]\n", 3, id="dropped by an edit"
        ),
        pytest.param(
            {"search_context_size": "medium"},
            "request: [{set: {place: far}}]\n",
            9,
            id="a multiplier for a word set by the file",
        ),
    ],
)
async def test_words_of_the_request_select_prices(tmp_path, options, edit, times):
    config = provider(more=DEPTHS) + WORDS + edit
    async with inprocess(tmp_path, providers={"acme": config}, apps={"acme": replying(body=chat())}) as here:
        reply, cost = await spent(here, {**ASK, "web_search_options": options})
        assert (reply.status_code, cost) == (200, times)


async def test_prices_are_selected_by_the_words_of_the_converted_request(tmp_path):
    config = provider(more=DEPTHS) + WORDS + "request: [{set: {place: far}}]\n"
    async with inprocess(tmp_path, providers={"acme": config}, apps={"acme": replying(body=chat())}) as here:
        reply, cost = await spent(here, ASK, "/v1/messages")
        assert (reply.status_code, cost) == (200, 1 + 2 * BASE)


async def test_a_tier_that_was_lost_in_conversion_gives_no_discount(tmp_path):
    answer = json.dumps({**MESSAGE, "usage": {"input_tokens": 10, "output_tokens": 5}}).encode()
    async with inprocess(
        tmp_path,
        providers={"acme": provider("messages", "app://acme/messages", TIERS)},
        apps={"acme": replying(body=answer)},
    ) as here:
        reply, cost = await spent(here, {**ASK, "service_tier": "flex"})
        assert "service_tier flex" in reply.headers["x-tollgate-dropped"]
        assert cost == BASE


async def test_a_tier_that_an_edit_drops_gives_no_discount(tmp_path):
    config = provider(more=TIERS) + "request: [{drop: [service_tier]}]\n"
    async with inprocess(tmp_path, providers={"acme": config}, apps={"acme": replying(body=chat())}) as here:
        assert (await spent(here, {**ASK, "service_tier": "flex"}))[1] == BASE


async def test_a_tier_that_reached_the_provider_applies_even_if_other_fields_are_lost(tmp_path):
    answer = json.dumps(
        {
            "id": "r",
            "object": "response",
            "created_at": 1,
            "status": "completed",
            "model": "up-1",
            "usage": {"input_tokens": 10, "output_tokens": 5},
            "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}],
        }
    ).encode()
    async with inprocess(
        tmp_path,
        providers={"acme": provider("responses", "app://acme/responses", TIERS)},
        apps={"acme": replying(body=answer)},
    ) as here:
        reply, cost = await spent(here, {**ASK, "service_tier": "flex", "service_tier_note": "soon"})
        assert "service_tier_note" in reply.headers["x-tollgate-dropped"]
        assert cost == BASE * Decimal("0.5")


@pytest.mark.parametrize(
    ("url", "app", "status"),
    [
        ("http://127.0.0.1:9/chat", None, 502),
        ("app://acme/chat", replying(500, b'{"error": {"message": "broke"}}'), 500),
        ("app://acme/chat", replying(400, b'{"error": {"message": "no"}}'), 400),
    ],
    ids=["unreachable", "failed", "rejected"],
)
async def test_a_request_without_an_answer_costs_nothing(tmp_path, url, app, status):
    flat = provider(url=url, more=', request: "3"')
    async with inprocess(tmp_path, providers={"acme": flat}, apps={"acme": app} if app else {}) as here:
        reply, cost = await spent(here, ASK)
        assert (reply.status_code, cost) == (status, 0)


@pytest.mark.parametrize(
    ("scheme", "body"),
    [("https", ASK), ("http", ASK), ("https", {"model": "acme/one", "input": ["a", "b"]})],
    ids=["chat before it is sent", "chat after it was sent", "embeddings before they are sent"],
)
async def test_a_client_that_leaves_pays_only_if_its_request_was_sent(tmp_path, scheme, body):
    """The provider accepts connections but never answers: over https it receives no request before the handshake."""
    path = "/v1/embeddings" if "input" in body else "/v1/chat/completions"
    with socket.create_server(("127.0.0.1", 0)) as server:
        text = provider(
            "embeddings" if "input" in body else "chat", f"{scheme}://127.0.0.1:{server.getsockname()[1]}/x"
        )
        async with inprocess(
            tmp_path,
            providers={
                "acme": text.replace("upstream: up-1", "upstream: up-1\n    type: embedding")
                if "input" in body
                else text
            },
        ) as here:
            before = here.balance()
            request = asyncio.ensure_future(here.post(path, body))
            connection, _ = await asyncio.to_thread(server.accept)
            with connection:
                await asyncio.to_thread(connection.recv, 1)  # of the request, or of the handshake before it
                request.cancel()
                await asyncio.gather(request, return_exceptions=True)
            (row,) = (await rows_by_id(here, tmp_path)).values()
            assert (row["outcome"], row["cost"] > 0, here.balance() < before) == (
                "client_gone",
                scheme == "http",
                scheme == "http",
            )


async def test_a_flat_price_per_request_is_added_to_the_cost_of_an_answer(tmp_path):
    async with inprocess(
        tmp_path, providers={"acme": provider(more=', request: "3"')}, apps={"acme": replying(body=chat())}
    ) as here:
        assert (await spent(here, ASK))[1] == BASE + 3


async def amounts_held(tmp_path, more: str, *options: dict[str, Any]) -> list[Decimal]:
    """The amounts held for a small request with each of these options."""
    small = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    async with inprocess(
        tmp_path,
        providers={"acme": provider(more=more)},
        apps={"acme": replying(body=chat("default", small))},
        settings=WIDE,
    ) as here:
        held: list[Decimal] = []
        hold = here.services.ledger.hold
        here.services.ledger.hold = lambda key, amount: held.append(amount) or hold(key, amount)
        for option in options:
            await spent(here, {**ASK, **option})
    return held


async def test_a_more_expensive_tier_is_held_for(tmp_path):
    usual, priority, flex = await amounts_held(
        tmp_path, TIERS, {}, {"service_tier": "priority"}, {"service_tier": "flex"}
    )
    assert usual > 10
    assert 2 <= priority / usual < 2.2  # the request is a little longer as well
    assert 1 <= flex / usual < 1.1


async def test_a_requested_option_with_a_multiplier_is_held_for(tmp_path):
    usual, fast, both, cheap = await amounts_held(
        tmp_path,
        ', multipliers: {fast: "2", us: "1.1", slow: "0.5"}',
        {},
        {"speed": "fast"},
        {"speed": "fast", "inference_geo": "us"},
        {"speed": "slow"},
    )
    assert 2 <= fast / usual < 2.2
    assert 2.2 <= both / usual < 2.6
    assert 1 <= cheap / usual < 1.1, "the default tier may be applied"


async def test_the_larger_of_max_tokens_and_max_completion_tokens_is_held_for(tmp_path):
    limits = {"max_tokens": 90, "max_completion_tokens": 1}
    (both,) = await amounts_held(tmp_path, "", limits)
    assert both >= Decimal(90) * 2 / 10, "a provider may support only one of the two names"


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        pytest.param({"prompt_tokens": -5, "completion_tokens": 5}, "input was -5", id="estimated instead"),
        pytest.param(
            {**USAGE, "prompt_tokens_details": {"cached_tokens": 50}},
            "cache_read was 50, more than the 10 of input",
            id="cut to what is possible",
        ),
    ],
)
async def test_impossible_token_counts_are_logged(tmp_path, caplog, usage, words):
    app = replying(body=chat(usage=usage))
    async with inprocess(tmp_path, providers={"acme": provider()}, apps={"acme": app}) as here:
        with caplog.at_level(logging.WARNING, "tollgate.completions"):
            await spent(here, ASK)
        assert words in caplog.text
        assert "acme" in caplog.text


async def test_a_failed_responses_stream_reports_its_usage(tmp_path):
    broken = [
        *blocks(None)[:1],
        b"data: " + json.dumps({"id": "c", "choices": [], "usage": USAGE}).encode() + b"\n\n",
        b'data: {"error": {"message": "broke"}}\n\n',
    ]
    async with inprocess(
        tmp_path, providers={"acme": provider()}, apps={"acme": replying(blocks=broken, headers=SSE)}
    ) as here:
        reply, cost = await spent(here, {"model": "acme/one", "input": "hi", "stream": True}, "/v1/responses")
        failed = json.loads(
            next(line for line in reply.text.splitlines() if "response.failed" in line and line.startswith("data: "))[
                6:
            ]
        )
        assert failed["response"]["usage"]["output_tokens"] == 5
        assert cost == BASE


async def test_arguments_nested_too_deep_to_convert_are_a_400(tmp_path):
    deep = "[" * 400 + "]" * 400
    body = {
        **ASK,
        "messages": [
            {"role": "user", "content": "x"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": f'{{"a": {deep}}}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "y"},
        ],
    }
    async with inprocess(
        tmp_path, providers={"acme": provider("messages", "app://acme/messages")}, apps={"acme": replying(body=b"{}")}
    ) as here:
        reply, cost = await spent(here, body)
        assert (reply.status_code, cost) == (400, 0)


async def test_a_rejection_names_the_field_of_the_clients_format(tmp_path):
    svg = {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/svg+xml;base64,AAAA"}]}
    async with inprocess(
        tmp_path, providers={"acme": provider("messages", "app://acme/messages")}, apps={"acme": replying(body=b"{}")}
    ) as here:
        reply = await here.post("/v1/responses", {"model": "acme/one", "input": [svg]})
        assert (reply.status_code, reply.json()["error"]["code"], reply.json()["error"]["param"]) == (
            400,
            "cannot_convert",
            "input",
        )
        asked = {"model": "acme/one", "input": "hi", "truncation": "auto"}
        reply = await here.post("/v1/responses", asked, x_tollgate_strict="true")
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "truncation"), "others keep theirs"


async def test_a_previous_response_of_a_provider_without_the_model_is_a_404_that_says_so(tmp_path):
    async with inprocess(
        tmp_path, providers={"acme": provider("responses", "app://acme/responses")}, apps={"acme": replying(body=b"{}")}
    ) as here:
        account = here.services.ledger.find_key(here.key).account_id
        await here.services.minted.remember(account, "elsewhere", ["resp_1"])
        reply = await here.post("/v1/responses", {"model": "acme/one", "input": "hi", "previous_response_id": "resp_1"})
        assert reply.status_code == 404
        assert reply.json()["error"] == {
            "message": "Previous response with id 'resp_1' not found. "
            "The provider that keeps it does not serve acme/one.",
            "type": "invalid_request_error",
            "param": "previous_response_id",
            "code": "previous_response_not_found",
        }


@pytest.mark.parametrize(
    "broken",
    [
        "tollgate.completions.whole.reported_tier",
        "tollgate.completions.native_chat.NativeChat.feed",
        "tollgate.completions.native_chat.NativeChat.close",
        "tollgate.completions.native_chat.NativeChat.usage",
    ],
)
async def test_an_internal_error_writes_a_row_and_releases_the_hold(tmp_path, monkeypatch, broken):
    def fail(*_: object) -> None:
        raise KeyError("broken")

    stream = "native_chat" in broken
    app = replying(blocks=blocks(None), headers=SSE) if stream else replying(body=chat())
    async with inprocess(tmp_path, providers={"acme": provider()}, apps={"acme": app}) as here:
        monkeypatch.setattr(broken, fail)
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": stream})
        assert (reply.status_code, reply.text) == (500, "internal server error")
        assert await available_to(here.services.ledger, "default") == here.balance()
        (row,) = (await rows_by_id(here, tmp_path)).values()
    assert (row["outcome"], row["cost"], row["error_code"]) == (
        "error",
        BASE if broken.endswith("close") else 0,
        "internal_error",
    ), "reported usage is billed"


@pytest.mark.parametrize("usage", [None, {**USAGE, "prompt_tokens": 10**9}], ids=["none", "impossible"])
@pytest.mark.parametrize("broken", ["close", "tail"])
async def test_after_an_internal_error_an_estimate_is_billed_and_impossible_usage_is_not(
    tmp_path, monkeypatch, usage, broken
):
    def fail(*_: object) -> None:
        raise KeyError("broken")

    sent = [block.replace(json.dumps(USAGE).encode(), json.dumps(usage).encode()) for block in blocks(None)]
    app = replying(blocks=sent, headers=SSE)
    async with inprocess(tmp_path, providers={"acme": provider()}, apps={"acme": app}) as here:
        monkeypatch.setattr(NativeChat, broken, fail)
        await here.post("/v1/chat/completions", {**ASK, "stream": True})
        (row,) = (await rows_by_id(here, tmp_path)).values()
    estimated = broken == "tail"  # the tokens were counted before
    assert (row["outcome"], row["estimated"], bool(row["cost"])) == ("error", estimated, estimated)
    assert row["cost"] < BASE


@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_while_the_row_is_created_releases_the_hold(tmp_path, monkeypatch, stream):
    def fail(*_: object) -> None:
        raise KeyError("broken")

    app = replying(blocks=blocks(None), headers=SSE) if stream else replying(body=chat())
    async with inprocess(tmp_path, providers={"acme": provider()}, apps={"acme": app}) as here:
        monkeypatch.setattr("tollgate.completions.exchange.usage_row", fail)
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": stream})
        assert (reply.status_code, reply.text) == (500, "internal server error")
        assert await available_to(here.services.ledger, "default") == here.balance() and not here.services.live


@pytest.mark.parametrize("client", ["/v1/messages", "/v1/chat/completions"])
async def test_the_multipliers_of_an_answer_are_billed(tmp_path, client):
    answer = json.dumps(
        {
            **MESSAGE,
            "usage": {
                "input_tokens": 10,
                "output_tokens": 5,
                "speed": "fast",
                "inference_geo": "us",
                "service_tier": "standard",
            },
        }
    ).encode()
    more = ', multipliers: {fast: "2", us: "1.1"}'
    async with inprocess(
        tmp_path,
        settings=WIDE,
        providers={"acme": provider("messages", "app://acme/messages", more)},
        apps={"acme": replying(body=answer)},
    ) as here:
        assert (await spent(here, ASK, client))[1] == BASE * Decimal("2.2")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_losses_at_the_end_of_an_answer_are_recorded_in_its_row(tmp_path, stream):
    usage = {"input_tokens": 10, "output_tokens": 5}
    events = [
        {"type": "message_start", "message": {**MESSAGE, "content": [], "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "stop_sequence", "stop_sequence": "END"}, "usage": usage},
        {"type": "message_stop"},
    ]
    whole = json.dumps({**MESSAGE, "stop_reason": "stop_sequence", "stop_sequence": "END", "usage": usage}).encode()
    app = (
        replying(blocks=[b"data: " + json.dumps(event).encode() + b"\n\n" for event in events], headers=SSE)
        if stream
        else replying(body=whole)
    )
    async with inprocess(
        tmp_path, providers={"acme": provider("messages", "app://acme/messages")}, apps={"acme": app}
    ) as here:
        await spent(here, {**ASK, "stop": ["END"], "stream": stream})
        assert [row["lost"] for row in (await rows_by_id(here, tmp_path)).values()] == ["stop sequence that was met"]


async def test_a_long_end_user_is_cut_in_the_usage_files(tmp_path):
    async with inprocess(tmp_path, providers={"acme": provider()}, apps={"acme": replying(body=chat())}) as here:
        for name in ("ann\x00", "x" * 100_000):
            assert (await here.post("/v1/chat/completions", {**ASK, "user": name})).status_code == 200
        names = {row["end_user"] for row in (await rows_by_id(here, tmp_path)).values()}
    assert names == {"ann\x00", "x" * 1000}


@pytest.mark.parametrize(
    ("fields", "recorded"),
    [
        ({"user": "ann"}, "ann"),
        ({"safety_identifier": "bob"}, "bob"),
        ({"user": "ann", "safety_identifier": "bob"}, "ann"),
        ({"user": None, "safety_identifier": "bob"}, "bob"),
        ({"user": 5}, None),
        ({}, None),
    ],
)
async def test_an_end_user_is_recorded_from_either_field(tmp_path, fields, recorded):
    async with inprocess(tmp_path, providers={"acme": provider()}, apps={"acme": replying(body=chat())}) as here:
        assert (await here.post("/v1/chat/completions", {**ASK, **fields})).status_code == 200
        assert [row["end_user"] for row in (await rows_by_id(here, tmp_path)).values()] == [recorded]


@pytest.mark.parametrize("named", ["up-2", "two", "up-2-20261101", "up-2@20261101", "unknown", "up-3"])
async def test_passes_of_another_model_are_billed_at_its_price_or_else_as_the_requested_model(tmp_path, named):
    passes = [
        {"type": "message", "input_tokens": 6, "output_tokens": 3},
        {"type": "advisor_message", "model": named, "input_tokens": 20, "output_tokens": 10},
        {"type": "message", "input_tokens": 4, "output_tokens": 2},
    ]
    answer = json.dumps({**MESSAGE, "usage": {"input_tokens": 10, "output_tokens": 5, "iterations": passes}}).encode()
    more = (
        '  acme/two: {upstream: up-2, aliases: [two], price: {prompt: "30", completion: "40", unit: 10, currency: '
        "CNY}}\n  acme/three: {upstream: up-3}\n"
    )
    async with inprocess(
        tmp_path,
        settings=WIDE,
        providers={"acme": provider("messages", "app://acme/messages") + more},
        apps={"acme": replying(body=answer)},
    ) as here:
        _, spent_now = await spent(here, ASK, "/v1/messages")
        (row,) = (await rows_by_id(here, tmp_path)).values()
    priced = named not in ("unknown", "up-3")
    advice = Decimal(100) * Decimal("0.14") if priced else Decimal(4)
    assert spent_now == row["cost"] == row["native_cost"] == BASE + advice
    assert (row["input_tokens"], row["output_tokens"], row["price_rule"]) == (
        30,
        15,
        "base + acme/two" if priced else "base",
    )


async def test_a_reload_changes_no_price_of_a_running_request(tmp_path):
    passes = [{"type": "advisor_message", "model": "up-2", "input_tokens": 10, "output_tokens": 5}]
    answer = json.dumps({**MESSAGE, "usage": {"input_tokens": 10, "output_tokens": 5, "iterations": passes}}).encode()
    more = '  acme/two: {upstream: up-2, price: {prompt: "1", completion: "2", unit: 10, currency: USD}}\n'
    file, answering = tmp_path / "providers" / "acme.yaml", replying(body=answer)

    async def app(*call: Any) -> Any:
        file.write_text(file.read_text().replace('prompt: "1"', 'prompt: "3"'))
        assert (await here.opened.reloader.reload()).ok
        return await answering(*call)

    async with inprocess(
        tmp_path,
        settings=WIDE,
        providers={"acme": provider("messages", "app://acme/messages") + more},
        apps={"acme": app},
    ) as here:
        _, spent_now = await spent(here, ASK, "/v1/messages")
    assert spent_now == BASE


async def test_passes_that_name_the_requested_model_are_billed_at_its_own_price(tmp_path):
    passes = [
        {"type": "message", "model": "up-1", "input_tokens": 6, "output_tokens": 3},
        {"type": "fallback_message", "model": "up-2", "input_tokens": 4, "output_tokens": 2},
    ]
    answer = json.dumps({**MESSAGE, "usage": {"input_tokens": 4, "output_tokens": 2, "iterations": passes}}).encode()
    more = '  acme/two: {upstream: up-2, price: {prompt: "30", completion: "40", unit: 10, currency: CNY}}\n'
    async with inprocess(
        tmp_path,
        settings=WIDE,
        providers={"acme": provider("messages", "app://acme/messages") + more},
        apps={"acme": replying(body=answer)},
    ) as here:
        _, spent_now = await spent(here, ASK, "/v1/messages")
        (row,) = (await rows_by_id(here, tmp_path)).values()
    assert spent_now == row["cost"] == BASE * 6 / 10 + Decimal(20) * Decimal("0.14")
    assert (row["input_tokens"], row["output_tokens"], row["price_rule"]) == (10, 5, "base + acme/two")


@pytest.mark.parametrize(
    "naming",
    [
        pytest.param(
            lambda name: {"tools": [{"type": "advisor_20260301", "name": "advisor", "model": name}]}, id="a tool"
        ),
        pytest.param(
            lambda name: {"tools": [{"type": "house:advisor", "parameters": {"model": name}}]},
            id="a tool with parameters",
        ),
        pytest.param(lambda name: {"fallbacks": [{"model": "up-1"}, {"model": name}]}, id="a fallback"),
        pytest.param(lambda name: {"fallbacks": ["up-1", name]}, id="the name of a fallback"),
        pytest.param(lambda name: {"models": ["acme/one", name]}, id="one to choose from"),
    ],
)
async def test_a_model_named_inside_the_request_must_be_allowed_for_the_key(tmp_path, naming):
    more = "  acme/two: {upstream: up-2, aliases: [two]}\n"
    answer = json.dumps({**MESSAGE, "usage": {"input_tokens": 10, "output_tokens": 5}}).encode()
    async with inprocess(
        tmp_path,
        providers={"acme": provider("messages", "app://acme/messages") + more},
        apps={"acme": replying(body=answer)},
    ) as here:
        _, narrow = await here.services.ledger.create_key("default", allowed_models=("acme/one",))
        for name, status in (
            ("two", 404),
            ("up-2", 404),
            ("up-2-20261101", 404),
            ("acme/one", 200),
            ("unlisted", 404),  # and perhaps as dear as any other
            ("acme/unlisted", 404),
        ):
            reply = await here.post("/v1/messages", {**ASK, **naming(name)}, key=narrow)
            assert reply.status_code == status, (name, reply.text)
        _, wide = await here.services.ledger.create_key("default", allowed_models=("acme/*",))
        for key in (wide, None):
            for name, status in (("up-2", 200), ("unlisted", 200), ("other/unlisted", 404 if key else 200)):
                more_args = {"key": key} if key else {}
                assert (await here.post("/v1/messages", {**ASK, **naming(name)}, **more_args)).status_code == status


async def test_a_function_tool_may_have_a_parameter_named_model(tmp_path):
    answer = json.dumps({**MESSAGE, "usage": {"input_tokens": 10, "output_tokens": 5}}).encode()
    more = "  acme/two: {upstream: up-2}\n"
    async with inprocess(
        tmp_path,
        providers={"acme": provider("messages", "app://acme/messages") + more},
        apps={"acme": replying(body=answer)},
    ) as here:
        _, narrow = await here.services.ledger.create_key("default", allowed_models=("acme/one",))
        tools = [
            {"type": "custom", "name": "f", "model": "up-2"},
            {"type": "web_search_20250305", "name": "web_search"},
        ]
        assert (await here.post("/v1/messages", {**ASK, "tools": tools}, key=narrow)).status_code == 200


NOTHING = {
    "chat": [
        {},
        {"id": "c", "choices": []},
        {"id": "c", "choices": [], "usage": USAGE},
        {"id": "c", "choices": None, "usage": USAGE},
    ],
    "responses": [{}, {"id": "r"}],
    "messages": [
        {},
        {"id": "m", "type": "message", "content": []},
        {
            "id": "m",
            "type": "message",
            "content": [],
            "stop_reason": None,
            "usage": {"input_tokens": 3, "output_tokens": 1},
        },
    ],
}
CLIENTS = ["/v1/chat/completions", "/v1/messages", "/v1/responses"]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("speaks", "body"), [(speaks, body) for speaks, bodies in NOTHING.items() for body in bodies])
async def test_a_200_without_content_is_no_answer_and_costs_nothing(tmp_path, client, speaks, body):
    ask = {"model": "acme/one", "input": "hello"} if client.endswith("responses") else ASK
    async with inprocess(
        tmp_path,
        providers={"acme": provider(speaks, "app://acme/x")},
        apps={"acme": replying(body=json.dumps(body).encode())},
    ) as here:
        reply, cost = await spent(here, ask, client)
        (row,) = (await rows_by_id(here, tmp_path)).values()
    assert (reply.status_code, cost, row["cost"], row["outcome"]) == (500, 0, 0, "upstream_error"), reply.text


def claude(content: list[dict[str, Any]], end: dict[str, Any], usage: dict[str, Any], stream: bool) -> Any:
    """An upstream that answers with these blocks of the messages format, and ends so."""
    if not stream:
        return replying(body=json.dumps({**MESSAGE, "content": content, **end, "usage": usage}).encode())
    start = {**MESSAGE, "content": [], "stop_reason": None, "usage": {"input_tokens": 10, "output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}]
    for index, block in enumerate(content):
        events += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_stop", "index": index},
        ]
    events += [{"type": "message_delta", "delta": end, "usage": usage}, {"type": "message_stop"}]
    return replying(
        blocks=[f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events], headers=SSE
    )


def before_claude(tmp_path, app):
    """A gateway with this upstream of the messages format, as a context manager."""
    providers = {"acme": provider("messages", "app://acme/messages")}
    return inprocess(tmp_path, settings=WIDE, providers=providers, apps={"acme": app})


@pytest.mark.parametrize("client", ["/v1/messages", "/v1/chat/completions"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("category", "cost"), [("cyber", 0), (None, 0), ("bio", BASE)])
async def test_a_refusal_that_the_provider_does_not_charge_costs_nothing(tmp_path, client, stream, category, cost):
    end = {"stop_reason": "refusal", "stop_details": {"type": "refusal", "category": category, "explanation": "No."}}
    app = claude([], end, {"input_tokens": 10, "output_tokens": 5}, stream)
    async with before_claude(tmp_path, app) as here:
        reply, spent_now = await spent(here, {**ASK, "stream": stream}, client)
        (row,) = (await rows_by_id(here, tmp_path)).values()
    assert (reply.status_code, spent_now, row["cost"]) == (200, cost, cost), reply.text
    assert (row["input_tokens"], row["output_tokens"], row["estimated"]) == (10, 5, False)
    assert row["price_rule"] == ("base" if cost else "none")


@pytest.mark.parametrize("client", ["/v1/messages", "/v1/chat/completions"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_refusal_after_output_is_billed(tmp_path, client, stream):
    end = {"stop_reason": "refusal", "stop_details": {"type": "refusal", "category": "cyber", "explanation": "No."}}
    app = claude([{"type": "text", "text": "Well"}], end, {"input_tokens": 10, "output_tokens": 5}, stream)
    async with before_claude(tmp_path, app) as here:
        reply, spent_now = await spent(here, {**ASK, "stream": stream}, client)
    assert (reply.status_code, spent_now) == (200, BASE), reply.text


@pytest.mark.parametrize("client", ["/v1/messages", "/v1/chat/completions"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("category", "refused"), [("cyber", 0), (None, 0), ("frontier_llm", 1)])
async def test_a_refusal_that_is_not_charged_costs_nothing_when_another_model_answers(
    tmp_path, client, stream, category, refused
):
    trigger = {"type": "refusal", "category": category}
    content = [
        {"type": "fallback", "from": {"model": "up-1"}, "to": {"model": "up-2"}, "trigger": trigger},
        {"type": "text", "text": "hi"},
    ]
    passes = [
        {"type": "message", "model": "up-1", "input_tokens": 20, "output_tokens": 0},
        {"type": "fallback_message", "model": "up-2", "input_tokens": 10, "output_tokens": 5},
    ]
    app = claude(content, {"stop_reason": "end_turn"}, {**passes[1], "iterations": passes}, stream)
    async with before_claude(tmp_path, app) as here:
        _, spent_now = await spent(here, {**ASK, "stream": stream}, client)
        (row,) = (await rows_by_id(here, tmp_path)).values()
    assert spent_now == row["cost"] == BASE * (1 + refused)
    assert row["input_tokens"] == 10 + 20 * refused


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("usage", [None, {"input_tokens": 10, "output_tokens": 5}], ids=["without usage", "with usage"])
async def test_a_failed_response_costs_its_reported_usage_for_a_client_of_its_format(tmp_path, client, usage):
    body = {
        "id": "r",
        "object": "response",
        "status": "failed",
        "output": [],
        "error": {"code": "server_error", "message": "broke"},
        "usage": usage,
    }
    ask = {"model": "acme/one", "input": "hello"} if client.endswith("responses") else ASK
    async with inprocess(
        tmp_path,
        settings=WIDE,
        providers={"acme": provider("responses", "app://acme/x")},
        apps={"acme": replying(body=json.dumps(body).encode())},
    ) as here:
        reply, cost = await spent(here, ask, client)
        (health,) = here.services.health.routes()
    native = client.endswith("responses")
    assert (reply.status_code, cost) == (200 if native else 500, BASE if native and usage else 0), reply.text
    assert not native or reply.json() == body
    assert health.failures == 1


async def test_a_queued_response_passes_natively_and_costs_its_prompt(tmp_path):
    body = {"id": "r", "object": "response", "status": "queued", "output": [], "error": None, "usage": None}
    async with inprocess(
        tmp_path,
        settings=WIDE,
        providers={"acme": provider("responses", "app://acme/x")},
        apps={"acme": replying(body=json.dumps(body).encode())},
    ) as here:
        reply, cost = await spent(here, {"model": "acme/one", "input": "hello"}, "/v1/responses")
        assert reply.json()["status"] == "queued" and cost > 0
        assert (await spent(here, ASK))[0].status_code == 500
