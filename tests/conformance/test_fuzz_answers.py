"""Damaged answers of upstreams, whole and streamed, in every pair of formats: a valid answer or the dialect's error,
never an internal error.

`fuzzing.py` has the settings of a longer run.
"""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import pytest

from conformance.fuzzing import ROUNDS, SEED, judge_stream
from conformance.upstreams import ASKS, PATHS, events, provider, whole
from support.inprocess import inprocess
from support.mutate import mutated
from support.stores import available_to
from support.usage_files import rows_by_id
from support.waiting import SECONDS

FORMATS = ("chat", "responses", "messages")


def rich(protocol: str) -> dict[str, Any]:
    """A whole answer with reasoning, a tool call and every count."""
    body = whole(protocol)
    if protocol == "chat":
        message = body["choices"][0]["message"]
        message |= {
            "reasoning": "hm",
            "reasoning_content": "hm",
            "refusal": None,
            "annotations": [
                {
                    "type": "url_citation",
                    "url_citation": {"url": "https://e.org", "title": "t", "start_index": 0, "end_index": 2},
                }
            ],
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}],
        }
        body["choices"][0]["logprobs"] = {
            "content": [{"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": []}]
        }
        body["usage"] |= {
            "prompt_tokens_details": {"cached_tokens": 3},
            "completion_tokens_details": {"reasoning_tokens": 2},
        }
    elif protocol == "messages":
        body["content"] = [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "redacted_thinking", "data": "x"},
            *body["content"],
            {"type": "server_tool_use", "id": "st_1", "name": "web_search", "input": {"query": "q"}},
            {
                "type": "web_search_tool_result",
                "tool_use_id": "st_1",
                "content": [{"type": "web_search_result", "url": "https://e.org", "title": "t"}],
            },
            {"type": "tool_use", "id": "tu_1", "name": "f", "input": {"a": 1}},
        ]
        body["usage"] |= {
            "cache_read_input_tokens": 3,
            "cache_creation_input_tokens": 2,
            "cache_creation": {"ephemeral_5m_input_tokens": 1, "ephemeral_1h_input_tokens": 1},
            "server_tool_use": {"web_search_requests": 1},
        }
    else:
        body["output"] = [
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "hm"}],
                "encrypted_content": "e",
            },
            *body["output"],
            {
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {"type": "search", "query": "q"},
            },
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "c1",
                "name": "f",
                "arguments": '{"a": 1}',
                "status": "completed",
            },
        ]
        body["usage"]["input_tokens_details"] |= {"cached_tokens": 3}
    return body


def broken_events(protocol: str, rng: random.Random) -> list[bytes]:
    """The events of a stream, some of them damaged, missing, doubled or swapped."""
    found: list[bytes] = []
    for block in events(protocol):
        head, _, data = block.partition(b"data: ")
        chance = rng.random()
        if chance < 0.25 and data.startswith(b"{"):
            block = head + b"data: " + mutated(json.loads(data), rng).replace(b"\n", b" ") + b"\n\n"
        elif chance < 0.32:
            continue
        elif chance < 0.38:
            found.append(block)
        elif chance < 0.42:
            block = rng.choice(
                (
                    b"data: \n\n",
                    b"event: x\n\n",
                    b"data: [1, 2]\n\n",
                    b'data: "text"\n\n',
                    b"\xff\xfe\n\n",
                    b"data: {}\n\n",
                    b": comment\n\n",
                    b"data: null\n\n",
                )
            )
        found.append(block)
    if rng.random() < 0.1:
        at = rng.randrange(len(found) + 1)
        error = rng.choice((None, 5, "boom", {}, {"message": None}, {"message": "boom"}))
        found[at:at] = [b'event: error\ndata: {"type": "error", "error": ' + json.dumps(error).encode() + b"}\n\n"]
    return found


@pytest.mark.parametrize("upstream", FORMATS)
@pytest.mark.parametrize("client", FORMATS)
async def test_a_damaged_answer_is_a_provider_failure_or_a_valid_answer(tmp_path, caplog, client, upstream):
    rng = random.Random(f"{SEED} {client} {upstream}")
    blocks: list[bytes] = []
    kind = ""

    async def app(method: str, path: str, headers: Any, body: bytes) -> Any:
        async def chunks() -> Any:
            for block in blocks:
                yield block

        return 200, {"content-type": kind}, chunks()

    problems: list[str] = []
    async with inprocess(
        tmp_path,
        providers={"acme": provider("app://acme/v1", upstream)},
        apps={"acme": app},
        settings="retry: {cooldown_failures: 1000}\n",
    ) as here:
        await here.services.ledger.grant("default", Decimal(10**9))
        for _ in range(ROUNDS):
            stream = rng.random() < 0.6
            blocks[:] = broken_events(upstream, rng) if stream else [mutated(rich(upstream), rng)]
            kind = "text/event-stream" if stream else "application/json"
            caplog.clear()
            reply = await here.post(PATHS[client], {**ASKS[client], "stream": stream})
            problem = judge(client, reply, stream, native=client == upstream)
            broken = [record for record in caplog.records if record.exc_info]
            if problem or broken:
                problems.append(
                    f"{problem} {[record.exc_text or record.exc_info for record in broken]} "
                    f"{b''.join(blocks)[:1500]!r} -> {reply.status_code} {reply.text[-500:]}"
                )
        await here.services.settlements.drain(SECONDS)
        assert not problems, f"{len(problems)} problems\n" + "\n\n".join(problems[:6])
        assert await available_to(here.services.ledger, "default") == here.balance()
        rows = list((await rows_by_id(here, tmp_path)).values())
        assert len(rows) == ROUNDS and all(0 <= row["cost"] < 10**6 for row in rows)


def judge(client: str, reply: Any, stream: bool, *, native: bool = False) -> str | None:
    """The fault of a reply, or None. On a native route the events of a stream pass unchanged, damaged ones too."""
    if "internal server error" in reply.text:
        return "an internal error"
    if reply.status_code != 200:
        return None if 400 <= reply.status_code < 600 and reply.text else "no error"
    if stream and not native:
        return judge_stream(client, reply.text)
    if stream:
        end = next(line for line in reversed(reply.text.splitlines()) if line)
        return (
            None
            if reply.headers["content-type"].startswith("text/event-stream")
            and end.startswith(("data: ", ":", "event: "))
            else f"ends with {end!r}"
        )
    reply.json()
    return None
