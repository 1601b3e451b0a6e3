"""Answers nested so deep that they can be read and not written again: a failure of the provider, never our own."""

from __future__ import annotations

import json

import pytest

from conformance.upstreams import ASKS, PATHS, events, provider, whole
from support.inprocess import SSE, inprocess, replying
from support.stores import available_to
from support.usage_files import rows
from tollgate.json_bounds import MAX_DEPTH

_DEEP = b"[" * (MAX_DEPTH + 60) + b"]" * (MAX_DEPTH + 60)


def _deepened(block: bytes) -> bytes:
    """The block with a deep list in place of the answer's id."""
    return block.replace(b'"c1"', _DEEP).replace(b'"msg_1"', _DEEP).replace(b'"resp_1"', _DEEP)


@pytest.mark.parametrize(
    ("spoken", "asked", "body"),
    [
        ("chat", "messages", {}),
        ("chat", "messages", {"stream": True}),
        ("messages", "chat", {"stream": True}),
        ("messages", "messages", {"stream": True}),
        ("responses", "responses", {"stream": True}),
        ("messages", "messages", {"edits": True}),
        ("messages", "messages", {"edits": True, "stream": True}),
    ],
    ids=[
        "whole",
        "stream",
        "stream of messages",
        "native stream",
        "native stream of responses",
        "edited whole",
        "edited stream",
    ],
)
async def test_a_too_deep_answer_is_a_failure_of_its_provider(tmp_path, caplog, spoken, asked, body):
    stream = body.get("stream", False)
    edits = "response: [{set: {x: 1}}]\nstream: [{set: {x: 1}}]" if body.get("edits") else ""
    deep = [_deepened(block) for block in (events(spoken) if stream else [json.dumps(whole(spoken)).encode()])]
    upstream = replying(headers=SSE if stream else None, blocks=deep)
    providers = {"acme": provider("app://acme/v1", spoken, more=edits)}
    async with inprocess(tmp_path, providers=providers, apps={"acme": upstream}) as here:
        reply = await here.post(PATHS[asked], {**ASKS[asked], "stream": stream})
        assert reply.status_code == 500 and "internal" not in reply.text
        [row] = await rows(here, tmp_path)
        assert (row["outcome"], row["cost"]) == ("upstream_error", 0)
        assert "nested too deeply" in caplog.text and not any(record.exc_info for record in caplog.records)
        assert await available_to(here.services.ledger, "default") == here.balance()
