"""Tool loops of several rounds across formats: an agent of one API with a provider of another."""

import json

import anthropic
import openai
import pytest

from e2e.agents import AGENTS, three_rounds
from support import sdks
from support.inprocess import inprocess
from tollgate.sandbox import app as sandbox

FORMATS = ("chat", "responses", "messages")
CROSS = [(client, upstream) for client in FORMATS for upstream in FORMATS]
IDS = [f"{client} agent, {upstream} provider" for client, upstream in CROSS]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("client", "upstream"), CROSS, ids=IDS)
async def test_a_tool_loop_runs_across_formats(running, client, upstream, stream):
    if client == "messages":
        sdk = anthropic.AsyncAnthropic(base_url=running.base, api_key=running.key, max_retries=0)
    else:
        sdk = openai.AsyncOpenAI(base_url=running.url, api_key=running.key, max_retries=0)
    async with sdk:
        await three_rounds(
            AGENTS[client](sdk, f"only-{upstream}/reasoner", stream), readable=readable(client, upstream)
        )


def readable(client, upstream):
    """A responses provider returns readable reasoning only on request, and only a responses client requests it."""
    return upstream != "responses" or client == "responses"


SPIED = """
provider: spied
speaks: {{{speaks}: {path}}}
url: app://spied/v1
can: {{reasoning: true, encrypted_reasoning: true}}
models:
  spied/reasoner:
    upstream: reasoner
    context: 131072
    max_output: 32000
    price: {{prompt: "0.10", completion: "0.40", unit: 1000000, currency: USD}}
"""
PATHS = {"chat": "/chat/completions", "responses": "/responses", "messages": "/messages"}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("client", "upstream"),
    [(c, u) for c, u in CROSS if u != "chat"],
    ids=[i for i, (_, u) in zip(IDS, CROSS, strict=True) if u != "chat"],
)
async def test_signed_reasoning_is_returned_to_the_provider_that_signed_it(tmp_path, client, upstream, stream):
    """The sandbox rejects signatures of others; this test checks that all of them are returned."""
    seen = []

    async def spied(method, path, headers, body):
        seen.append(json.loads(body))
        return await sandbox(method, path, headers, body)

    async with inprocess(
        tmp_path, providers={"spied": SPIED.format(speaks=upstream, path=PATHS[upstream])}, apps={"spied": spied}
    ) as app:
        agent = AGENTS[client](sdks.client_of(app, client), "spied/reasoner", stream)
        await three_rounds(agent, readable=readable(client, upstream))
    last = seen[-1]
    if upstream == "messages":
        turns = [turn["content"] for turn in last["messages"] if turn["role"] == "assistant"]
        signed = [block for turn in turns for block in turn if block["type"] == "thinking"]
        assert len(turns) == 5 and len(signed) == 5 and all(block["signature"] for block in signed)
        assert all(turn[0]["type"] == "thinking" for turn in turns), "thinking comes first in its turn"
    else:
        sealed = [item for item in last["input"] if item.get("type") == "reasoning"]
        assert len(sealed) == 5 and all(item["encrypted_content"] for item in sealed)
