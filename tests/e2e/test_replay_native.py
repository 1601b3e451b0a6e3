"""Every recorded exchange of the client formats, through the whole gateway without conversion.

Bodies are equal byte for byte and streams event by event (except that a chat stream's usage moves to its last chunk),
errors are those of CLIENTS 3b, and the usage row equals an independent reading of the recording.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from replay import traffic

if not traffic.present():
    pytest.skip(traffic.ABSENT, allow_module_level=True)

from replay import read_chat, read_messages, read_responses
from replay.traffic import Exchange, exchange, ids, read_sse
from support.inprocess import inprocess
from support.recorded import CALLED, Player, provider_of, request_of
from support.usage_files import rows_by_id

READERS: dict[str, Any] = {"chat": read_chat, "responses": read_responses, "messages": read_messages}
OWN_KEY = {401, 402, 403}
"""Upstream statuses about the operator's account, which are never the caller's fault."""

EXPLAINED: dict[str, str] = {
    "oc-openrouter-0ce01d": "says 2161 tokens read from a cache and 2161 written to it, of 2168: no buckets add up; "
    "each is clamped to what is left",
}
"""Maps an exchange id to the reason why it rightly differs from its recording."""


@pytest.mark.parametrize("protocol", CALLED)
async def test_recorded_traffic_passes_natively(protocol: str, tmp_path, capsys) -> None:
    player = Player()
    missed: dict[str, list[str]] = {}
    billed: dict[str, Exchange] = {}
    names = ids(protocol)
    async with inprocess(tmp_path, providers={protocol: provider_of(protocol)}, apps={protocol: player}) as app:
        account = app.services.ledger.find_key(app.key).account_id
        for x in map(exchange, names):
            player.playing = x
            player.seen.clear()
            await app.services.minted.remember(account, protocol, state_of(x.request))
            request = request_of(x, f"rec/{protocol}")
            reply = await app.post(CALLED[protocol], request)
            misses = (
                request_misses(request, player, protocol, x)
                if player.seen
                else [f"never sent upstream: {reply.status_code} {reply.text[:200]}"]
            )
            if not misses:
                misses = (error_misses if x.status >= 400 else streamed if x.stream else whole)(x, reply, player)
            if misses:
                missed[x.id] = misses
            billed[reply.headers["x-request-id"]] = x
        rows = await rows_by_id(app, tmp_path)
    for request_id, x in billed.items():
        if x.id not in missed and (found := row_misses(x, rows.get(request_id))):
            missed[x.id] = found
    unexplained = {name: misses for name, misses in missed.items() if name not in EXPLAINED}
    with capsys.disabled():
        print(
            f"\nnative {protocol}: {len(names) - len(missed)} of {len(names)} as recorded, "
            f"{len(missed) - len(unexplained)} explained"
        )
    assert not unexplained, "\n".join(f"{name}: {miss}" for name, misses in unexplained.items() for miss in misses)


def state_of(request: Any) -> list[str]:
    """Every id in a request that may be state of a provider, so that it can be registered for this account."""
    return re.findall(
        r'"((?:resp|msg|rs|fc|file|conv|vs|pmpt|container|cntr|ws|ci|mcp\w*|ig|cmp|item)[_-][A-Za-z0-9_-]+)"',
        json.dumps(request),
    )


# ---- the request ----------------------------------------------------------------------------------------------------
def request_misses(request: dict[str, Any], player: Player, protocol: str, x: Exchange) -> list[str]:
    """The upstream receives the client's request with its own model name, and a chat stream requests usage."""
    wanted = {**request, "model": "recorded-model"}
    if protocol == "chat" and request.get("stream"):
        wanted["stream_options"] = {**(request.get("stream_options") or {}), "include_usage": True}
    got = player.seen[0][2]
    return (
        []
        if got == wanted
        else [f"request: {[name for name in wanted | got if wanted.get(name) != got.get(name)]} differ"]
    )


# ---- the answer -----------------------------------------------------------------------------------------------------
def whole(x: Exchange, reply: Any, player: Player) -> list[str]:
    if isinstance(x.body, dict) and x.body.get("error") and x.body.get("object") != "response":
        return error_misses(x, reply, player)
    if reply.status_code != 200:
        return [f"status {reply.status_code}: {reply.text[:200]}"]
    if reply.content == player.sent:
        return []
    got = reply.json()
    if (
        READERS[x.protocol].answer(x.body).usage is None
        and got.pop("usage", None)
        and {k: v for k, v in x.body.items() if k != "usage"} == got
    ):
        return []  # no usage was reported, so the estimate is appended
    return [f"body differs in {[k for k in x.body | got if x.body.get(k) != got.get(k)]}"]


def streamed(x: Exchange, reply: Any, player: Player) -> list[str]:
    if reply.status_code != 200 or not reply.headers["content-type"].startswith("text/event-stream"):
        failed = READERS[x.protocol].stream(x.events)
        first = x.events[0][1] if x.events else None
        if failed.error and isinstance(first, dict) and (first.get("error") or first.get("type") == "error"):
            return error_misses(x, reply, player)  # the error was the first event, so nothing had been sent yet
        return [f"status {reply.status_code}: {reply.text[:200]}"]
    return (chat_stream if x.protocol == "chat" else plain_stream)(x, reply.content)


def blocks_of(raw: bytes) -> list[bytes]:
    return [block for block in re.split(rb"\r?\n\r?\n", raw.strip(b"\r\n")) if block.strip()]


def data_of(block: bytes) -> Any:
    found = read_sse(block.decode())
    return found[0][1] if found else None


def plain_stream(x: Exchange, got: bytes) -> list[str]:
    """Compares byte for byte; an error within the stream is replaced by ours."""
    sent = (x.sse or "").encode()
    answer = READERS[x.protocol].stream(x.events)
    if not answer.error and answer.stops != {"none"}:
        return [] if got == sent else [first_difference(sent, got)]
    theirs, ours = blocks_of(sent), blocks_of(got)
    same = 0
    while same < min(len(theirs), len(ours)) and theirs[same] == ours[same]:
        same += 1
    kept = [data_of(block) for block in theirs[:same]]
    replaced = [data_of(block) for block in ours[same:]]
    if any(isinstance(e, dict) and e.get("type") == "error" for e in [data_of(b) for b in theirs[same + 1 :]]):
        return ["an event before the error was lost"]
    if (
        not replaced
        or replaced[0].get("type") != "error"
        or (x.protocol == "messages" and set(replaced[0]["error"]) != {"type", "message"})
    ):
        return [f"the error is sent as {ours[same:][:2]}"]
    if x.protocol == "responses" and [e["sequence_number"] for e in replaced] != list(
        range(len([e for e in kept if e]), len([e for e in kept if e]) + len(replaced))
    ):
        return [f"sequence numbers {[e['sequence_number'] for e in replaced]} after {len(kept)} events"]
    begun = x.protocol == "responses" and any(isinstance(e, dict) and e.get("type") == "response.created" for e in kept)
    if begun and (replaced[-1].get("type") != "response.failed" or not replaced[-1]["response"]["error"]["code"]):
        return [f"ends with {replaced[-1]}"]
    return []


def chat_stream(x: Exchange, got: bytes) -> list[str]:
    """Compares event by event, except that the finishing chunk is last and has usage, and that chunks with usage alone
    are dropped."""
    theirs, ours = blocks_of((x.sse or "").encode()), blocks_of(got)
    answer = read_chat.stream(x.events)
    errors = [n for n, b in enumerate(theirs) if isinstance(d := data_of(b), dict) and d.get("error")]
    if errors:
        if data_of(ours[-1]) is None or set(data_of(ours[-1])) != {"error"} or b"[DONE]" in got:
            return [f"the error is sent as {ours[-1][:200]!r}"]
        theirs, ours = theirs[: errors[0]], ours[:-1]
        finishing = [b for b in theirs if finish_of(data_of(b))]
        kept = [b for b in theirs if not finishing or b is not finishing[-1]]
        return [] if ours == kept else [first_difference(b"\n".join(kept), b"\n".join(ours))]
    if answer.stops == {"none"}:
        return [] if set(data_of(ours[-1])) == {"error"} else [f"a stream without an end ends with {ours[-1][:100]!r}"]
    if ours[-1] != b"data: [DONE]":
        return [f"ends with {ours[-1][:200]!r}"]
    ours = ours[:-1]
    theirs = [b for b in theirs if data_of(b) != "[DONE]"]
    usage = None
    for block in theirs:
        event = data_of(block)
        usage = event.get("usage") or usage if isinstance(event, dict) else usage
    finishing = [b for b in theirs if finish_of(data_of(b))]
    if not finishing:
        return [] if theirs == ours else [first_difference(b"\n".join(theirs), b"\n".join(ours))]
    last = data_of(ours[-1])
    wanted = data_of(finishing[-1])
    if {k: v for k, v in last.items() if k != "usage"} != {k: v for k, v in wanted.items() if k != "usage"}:
        return [f"the finishing chunk is {last}, recorded as {wanted}"]
    if (usage and last.get("usage") != usage) or (not usage and not (last.get("usage") or {}).get("total_tokens")):
        return [f"usage {last.get('usage')}, recorded as {usage}"]
    kept = [b for b in theirs if b is not finishing[-1] and not only_usage(data_of(b))]
    return [] if kept == ours[:-1] else [first_difference(b"\n".join(kept), b"\n".join(ours[:-1]))]


def finish_of(event: Any) -> Any:
    return isinstance(event, dict) and any(c.get("finish_reason") for c in event.get("choices") or [])


def only_usage(event: Any) -> bool:
    """Whether a chunk has usage but nothing that a client would show."""
    if not isinstance(event, dict) or not event.get("usage") or finish_of(event):
        return False
    return not any(
        value for c in event.get("choices") or [] for name, value in (c.get("delta") or {}).items() if name != "role"
    )


def first_difference(wanted: bytes, got: bytes) -> str:
    at = next((n for n, (a, b) in enumerate(zip(wanted, got, strict=False)) if a != b), min(len(wanted), len(got)))
    return (
        f"differs at byte {at}: wanted {wanted[max(0, at - 80) : at + 160]!r}, got {got[max(0, at - 80) : at + 160]!r}"
    )


# ---- errors ---------------------------------------------------------------------------------------------------------
def error_misses(x: Exchange, reply: Any, player: Player) -> list[str]:
    """Compares with the error table of SPEC and CLIENTS 3b."""
    status = reply.status_code
    misses = []
    code = (
        (x.body.get("error") or {}).get("code")
        if isinstance(x.body, dict) and isinstance(x.body.get("error"), dict)
        else None
    )
    callers = (400 <= x.status < 500 and x.status not in OWN_KEY | {408, 409, 425, 429}) or code == "content_filter"
    if callers and code != "model_not_found":
        if not 400 <= status < 500 or status in OWN_KEY or (x.protocol == "chat" and status != 400):
            misses.append(f"a {x.status} became {status}")
        if error_message(x.body) not in reply.text and json.dumps(error_message(x.body))[1:-1] not in reply.text:
            misses.append(f"the provider's message is lost: {reply.text[:200]}")
    elif status not in (500, 529, 504):
        misses.append(f"a {x.status} became {status}")
    elif error_message(x.body) in reply.text:
        misses.append(f"the provider's own message is passed on: {reply.text[:200]}")
    if x.protocol == "chat":
        if not reply.headers["content-type"].startswith("text/plain"):
            misses.append(f"chat errors are plain text, this is {reply.headers['content-type']}")
    elif x.protocol == "responses":
        if callers and code != "model_not_found" and reply.json()["error"]["code"] != code:
            misses.append(f"the code {code} became {reply.json()['error']['code']}")
        if set(reply.json()["error"]) != {"message", "type", "param", "code"} or reply.json()["error"]["type"] in (
            None,
            "None",
        ):
            misses.append(f"shape {reply.text[:200]}")
    elif (
        reply.json().get("type") != "error"
        or set(reply.json()["error"]) != {"type", "message"}
        or "request_id" not in reply.json()
    ):
        misses.append(f"shape {reply.text[:200]}")
    wait = headers_wait(x)
    if status >= 500 and wait is not None and reply.headers.get("retry-after") != str(wait):
        misses.append(f"retry-after is {reply.headers.get('retry-after')}, the provider sent {wait}")
    return misses


def headers_wait(x: Exchange) -> int | None:
    from support.recorded import headers_of

    recorded = headers_of(x.id)
    if (value := recorded.get("retry-after-ms")) is not None:
        return max(1, round(float(value) / 1000))
    value = recorded.get("retry-after")
    return max(1, min(120, int(value))) if value is not None and value.isdecimal() else None


def error_message(body: Any) -> str:
    """The message of a recorded error."""
    if isinstance(body, str):
        return body
    error = body.get("error")
    if isinstance(error, dict):
        return str(error.get("message"))
    if isinstance(error, str):
        return error
    detail = body.get("detail")
    return str(body.get("message") or (detail[0]["msg"] if isinstance(detail, list) else detail))


# ---- the row --------------------------------------------------------------------------------------------------------
def row_misses(x: Exchange, row: dict[str, Any] | None) -> list[str]:
    if row is None:
        return ["no row"]
    failed = x.status >= 400 or (
        isinstance(x.body, dict) and x.body.get("error") and x.body.get("object") != "response"
    )
    if failed:
        wanted = {"cost": 0, "input_tokens": 0, "output_tokens": 0}
        return [f"row {name} is {row[name]}" for name, value in wanted.items() if row[name] != value]
    answer = READERS[x.protocol].stream(x.events) if x.stream else READERS[x.protocol].answer(x.body)
    misses = []
    if not any((answer.usage or {}).values()):  # zeros alone are no report
        if not row["estimated"]:
            misses.append("usage was not reported, but the row is not marked as estimated")
    else:
        total = raw_total(x)
        u = dict(answer.usage)
        outside = bool(u["reasoning"]) and total is not None and total == u["input"] + u["output"] + u["reasoning"]
        u["reasoning"] = u["reasoning"] if outside else min(u["reasoning"], u["output"])
        u["output"] -= 0 if outside else u["reasoning"]
        u["input"] -= u["cache_read"] + u["cache_write"]
        for name, value in u.items():
            column = {
                "input": "input_tokens",
                "output": "output_tokens",
                "cache_read": "cache_read_tokens",
                "cache_write": "cache_write_tokens",
                "reasoning": "reasoning_tokens",
            }[name]
            if row[column] != value:
                misses.append(f"row {column} is {row[column]}, recorded {value} ({answer.usage}, total {total})")
        if row["estimated"]:
            misses.append("the row is marked as estimated, but usage was reported")
    ended = answer.error is None and (not x.stream or answer.stops != {"none"})
    if (row["outcome"] == "ok") != ended and "error" not in answer.stops:
        misses.append(f"outcome {row['outcome']}, recorded {'an end' if ended else answer.error or 'no end'}")
    return misses


def raw_total(x: Exchange) -> int | None:
    """`total_tokens` as reported."""
    bodies = [e for _, e in x.events if isinstance(e, dict)] if x.stream else [x.body]
    found = None
    for body in bodies:
        usage = (
            body.get("usage")
            or (body.get("x_groq") or {}).get("usage")
            or (body.get("response") or {}).get("usage")
            or {}
        )
        found = usage.get("total_tokens") or found
    return found
