"""The limits of a key: expiry, revocation, rate limits, spend caps, allowed models, strictness, and state that belongs
to its account."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from conformance.upstreams import ASKS, PATHS, events, provider, whole
from support.inprocess import inprocess, replying
from support.usage_files import rows_by_id
from tollgate.sandbox import Sandbox

CLIENTS = ("chat", "responses", "messages")
DIALECT_KEYS = {"chat": "invalid_api_key", "responses": "invalid_api_key", "messages": "authentication_error"}
ECHO = {client: {**ASKS[client], "model": "sandbox/echo"} for client in CLIENTS}


@pytest.mark.parametrize("client", CLIENTS)
async def test_26_expired_and_revoked_keys_are_401_and_write_no_row(tmp_path, client):
    async with inprocess(tmp_path) as here:
        ledger = here.services.ledger
        _, expired = await ledger.create_key("default", expires_at=datetime.now(UTC) - timedelta(seconds=1))
        record, revoked = await ledger.create_key("default")
        assert (await here.post(PATHS[client], ECHO[client], key=revoked)).status_code == 200
        await ledger.revoke_key(record.id)
        for key in (
            expired,
            revoked,
            "sk-tg-" + "a" * 49,
            "nonsense",
            "sk-live-something-of-another-vendor-1234567890",
        ):
            reply = await here.post(PATHS[client], ECHO[client], key=key)
            assert reply.status_code == 401 and key not in reply.text
            error = reply.json()["error"]
            assert DIALECT_KEYS[client] in (error.get("code"), error.get("type"))
        assert len(await rows_by_id(here, tmp_path)) == 1
        assert 'tollgate_refused_total{reason="invalid_api_key"} 5' in (await here.get("/metrics")).text


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_rate_limit_is_a_429_with_the_body_and_headers_of_the_api(tmp_path, client):
    async with inprocess(tmp_path) as here:
        _, key = await here.services.ledger.create_key("default", rpm=2, tpm=100_000)
        first = await here.post(PATHS[client], ECHO[client], key=key)
        second = await here.post(PATHS[client], {**ECHO[client], "stream": True}, key=key)
        third = await here.post(PATHS[client], ECHO[client], key=key)
        assert [first.status_code, second.status_code, third.status_code] == [200, 200, 429]
        assert 1 <= int(third.headers["retry-after"]) <= 60
        error = third.json()["error"]
        if client == "messages":
            assert error["type"] == "rate_limit_error"
            for kind in ("requests", "tokens"):
                assert first.headers[f"anthropic-ratelimit-{kind}-limit"] in ("2", "100000")
                assert re.fullmatch(
                    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", first.headers[f"anthropic-ratelimit-{kind}-reset"]
                )
            assert [each.headers["anthropic-ratelimit-requests-remaining"] for each in (first, second, third)] == [
                "1",
                "0",
                "0",
            ]
        else:
            assert (error["type"], error["code"], error["param"]) == ("rate_limit_error", "rate_limit_exceeded", None)
            assert re.fullmatch(r"Rate limit reached for requests\. Please try again in \d+s\.", error["message"])
            for kind in ("requests", "tokens"):
                assert first.headers[f"x-ratelimit-limit-{kind}"] in ("2", "100000")
                assert re.fullmatch(r"(\d+m)?\d+(ms|s)", first.headers[f"x-ratelimit-reset-{kind}"])
            assert [each.headers["x-ratelimit-remaining-requests"] for each in (first, second, third)] == [
                "1",
                "0",
                "0",
            ]
        assert len(await rows_by_id(here, tmp_path)) == 2, "a rejected request writes no row"
        assert (await here.services.ledger.sums("default")).held == 0, "and holds nothing of the balance"


@pytest.mark.parametrize("client", CLIENTS)
async def test_an_error_reports_the_remaining_limits_too(tmp_path, client):
    async with inprocess(tmp_path) as here:
        _, key = await here.services.ledger.create_key("default", rpm=9)
        field = "input" if client == "responses" else "messages"
        refused, failed = [
            await here.post(
                PATHS[client], {**ECHO[client], field: [{"role": "user", "content": f"[[error={status}]]"}]}, key=key
            )
            for status in (400, 500)
        ]
        name = "anthropic-ratelimit-requests-remaining" if client == "messages" else "x-ratelimit-remaining-requests"
        assert [(each.status_code, each.headers.get(name)) for each in (refused, failed)] == [(400, "8"), (500, "7")]


async def test_a_token_limit_counts_the_reported_usage(tmp_path):
    async with inprocess(tmp_path) as here:
        _, key = await here.services.ledger.create_key("default", tpm=1000)
        request = {
            **ECHO["chat"],
            "messages": [{"role": "user", "content": "[[prompt-tokens=900]] [[completion-tokens=200]] hi"}],
        }
        assert (await here.post(PATHS["chat"], request, key=key)).status_code == 200
        refused = await here.post(PATHS["chat"], ECHO["chat"], key=key)
        assert refused.status_code == 429 and "tokens" in refused.json()["error"]["message"]


@pytest.mark.parametrize("client", CLIENTS)
async def test_04_a_spend_cap_is_403_insufficient_quota_and_holds_under_concurrency(tmp_path, client):
    """The cap covers three calls of 0.1: of ten concurrent ones three succeed."""
    expensive = provider(
        "app://sandbox/v1/chat/completions",
        "chat",
        name="expensive",
        model="expensive/echo",
        price='{prompt: "0", completion: "0.001", unit: 1, currency: USD}',
    )
    expensive = expensive.replace("upstream: up-1", "upstream: echo")
    limit = {"chat": "max_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}[client]
    request = {**ASKS[client], "model": "expensive/echo", limit: 100}
    text = "[[delay=200ms]] [[tokens=100]] hi"
    request["input" if client == "responses" else "messages"] = (
        text if client == "responses" else [{"role": "user", "content": text}]
    )
    async with inprocess(tmp_path, providers={"expensive": expensive}) as here:
        record, key = await here.services.ledger.create_key("default", spend_cap=Decimal("0.3"))
        replies = await asyncio.gather(*(here.post(PATHS[client], request, key=key) for _ in range(10)))
        statuses = sorted(reply.status_code for reply in replies)
        assert statuses == [200] * 3 + [403] * 7
        error = next(reply for reply in replies if reply.status_code == 403).json()["error"]
        assert error["type"] == ("billing_error" if client == "messages" else "insufficient_quota")
        assert (await here.services.ledger.keys_spent())[record.id] == Decimal("0.3")
        assert (await here.post(PATHS[client], {**ECHO[client]})).status_code == 200, (
            "the account itself still has credits"
        )


@pytest.mark.parametrize("client", CLIENTS)
async def test_24_listed_models_are_callable_and_callable_models_are_listed(tmp_path, client):
    """PITFALLS 24, for several keys: one rule determines both, an empty list allows nothing, and a hidden model looks
    unknown."""
    more = {"acme": provider("app://sandbox/v1/chat/completions", "chat", model="acme/one").replace("up-1", "echo")}
    async with inprocess(tmp_path, providers=more) as here:
        ledger = here.services.ledger
        everything = {entry["id"] for entry in (await here.get("/v1/models")).json()["data"]}
        for allowed in (None, (), ("sandbox/*",), ("acme/one",), ("*/echo",), ("nothing/*",)):
            _, key = await ledger.create_key("default", allowed_models=allowed)
            listed = {entry["id"] for entry in (await here.get("/v1/models", key=key)).json()["data"]}
            assert listed == everything if allowed is None else listed < everything
            for model in sorted(everything | {"no/such"}):
                reply = await here.post(PATHS[client], {**ASKS[client], "model": model}, key=key)
                callable_ = reply.status_code == 200 or "model" not in reply.text.lower()
                chat = (
                    model in everything
                    and next(e for e in (await here.get("/v1/models")).json()["data"] if e["id"] == model)["type"]
                    == "chat"
                )
                assert callable_ == (model in listed and chat), f"{allowed} {model}: {reply.status_code} {reply.text}"
                shown = await here.get(f"/v1/models/{model}", key=key)
                assert (shown.status_code == 200) == (model in listed)
            hidden = (
                await here.post(PATHS[client], {**ASKS[client], "model": "acme/one"}, key=key)
                if "acme/one" not in listed
                else None
            )
            if hidden is not None:
                unknown = await here.post(PATHS[client], {**ASKS[client], "model": "acme/two"}, key=key)
                clean = [re.sub(r"acme/(one|two)|req_\w+", "", reply.text) for reply in (hidden, unknown)]
                assert clean[0] == clean[1] and hidden.status_code == unknown.status_code


async def test_a_field_that_a_format_lacks_is_reported_and_rejected_in_strict_mode(tmp_path):
    seen = []
    routes = {"acme": provider("app://acme/v1/messages", "messages")}
    async with inprocess(
        tmp_path, providers=routes, apps={"acme": replying(body=json.dumps(whole("messages")).encode(), seen=seen)}
    ) as here:
        request = {**ASKS["chat"], "seed": 7, "frequency_penalty": 0.5}
        lax = await here.post(PATHS["chat"], request)
        assert lax.status_code == 200 and {"seed", "frequency_penalty"} <= set(
            re.split(r",\s*", lax.headers["x-tollgate-dropped"])
        )
        strict = await here.post(PATHS["chat"], request, x_tollgate_strict="true")
        assert strict.status_code == 400 and "seed" in strict.text and len(seen) == 1
        _, key = await here.services.ledger.create_key("default", strict=True)
        assert (await here.post(PATHS["chat"], request, key=key)).status_code == 400
        assert (await here.post(PATHS["chat"], ASKS["chat"], key=key)).status_code == 200
        rows = [row for row in (await rows_by_id(here, tmp_path)).values() if row["outcome"] == "ok"]
        assert (
            "seed" in rows[0]["lost"]
            and "x-tollgate-dropped" not in (await here.post(PATHS["chat"], ASKS["chat"])).headers
        )


STATEFUL = """
provider: {name}
speaks: {{responses: /responses, chat: /chat/completions}}
url: app://{name}/v1
priority: {priority}
models:
  shared/echo: {{upstream: echo, context: 100000, price: {{prompt: "1", completion: "2", unit: 1000000, currency: USD}}}}
"""  # noqa: E501


async def test_a_stored_answer_belongs_to_its_account_and_its_provider(tmp_path):
    """Two providers of one model: the id is sent to the one that created it, even if the other is preferred now."""
    apps = {name: Sandbox() for name in ("alpha", "beta")}
    calls = []

    def watched(name):
        async def app(method, path, headers, body):
            calls.append(name)
            return await apps[name](method, path, headers, body)

        return app

    routes = {name: STATEFUL.format(name=name, priority=place) for place, name in enumerate(apps)}
    async with inprocess(tmp_path, providers=routes, apps={name: watched(name) for name in apps}) as here:
        for stream in (False, True):
            first = await here.post("/v1/responses", {"model": "shared/echo", "input": "remember me", "stream": stream})
            stored = json.loads(first.text.strip().rpartition("data: ")[2])["response"] if stream else first.json()
            minter = calls[-1]
            here.services.health.failed(f"{minter}/echo", minter, "upstream_failed", "down", retry_after=30)
            onward = {"model": "shared/echo", "input": "and now?", "previous_response_id": stored["id"]}
            own = await here.post("/v1/responses", onward)
            assert own.status_code == 200 and calls[-1] == minter == own.headers["x-tollgate-provider"]

            await here.services.ledger.create_account(f"stranger{stream}")
            await here.services.ledger.grant(f"stranger{stream}", Decimal(1))
            _, foreign = await here.services.ledger.create_key(f"stranger{stream}")
            before = len(calls)
            for key, wrong in ((foreign, stored["id"]), (here.key, "resp_guessed")):
                reply = await here.post("/v1/responses", {**onward, "previous_response_id": wrong}, key=key)
                assert reply.status_code == 404 and len(calls) == before
                assert (
                    reply.json()["error"]["code"] == "previous_response_not_found"
                    and reply.json()["error"]["param"] == "previous_response_id"
                )
            item = await here.post(
                "/v1/responses",
                {
                    "model": "shared/echo",
                    "input": [
                        {"type": "item_reference", "id": stored["output"][0]["id"]},
                        {"role": "user", "content": "x"},
                    ],
                },
                key=foreign,
            )
            assert item.status_code == 404 and len(calls) == before
        _, second = await here.services.ledger.create_key("default")
        assert (await here.post("/v1/responses", onward, key=second)).status_code == 200, (
            "another key of the same account"
        )


@pytest.mark.parametrize("client", CLIENTS)
async def test_11_a_conversation_stays_with_its_healthy_provider(tmp_path, client):
    """PITFALLS 11: a prompt cache is only available at the provider that has it."""
    called = []

    def app(name):
        async def answer(method, path, headers, body):
            called.append(name)
            stream = json.loads(body).get("stream")
            good = (
                replying(blocks=events(client), headers={"content-type": "text/event-stream"})
                if stream
                else replying(body=json.dumps(whole(client)).encode())
            )
            return await good(method, path, headers, body)

        return answer

    names = ("alpha", "beta", "gamma")
    routes = {name: provider(f"app://{name}/v1", client, name=name) for name in names}
    async with inprocess(tmp_path, providers=routes, apps={name: app(name) for name in names}) as here:
        for conversation in range(6):
            called.clear()
            opening = {"role": "user", "content": f"conversation {conversation}"}
            for turn in range(5):
                more = [{"role": "assistant", "content": "yes"}, {"role": "user", "content": f"turn {turn}"}] * turn
                body = {
                    **ASKS[client],
                    ("input" if client == "responses" else "messages"): [opening, *more],
                    "stream": bool(turn % 2),
                }
                assert (await here.post(PATHS[client], body)).status_code == 200
            assert len(set(called)) == 1, called
        here.services.health.failed(f"{called[0]}/up-1", called[0], "upstream_failed", "down", retry_after=30)
        await here.post(PATHS[client], body)
        assert called[-1] != called[0]
