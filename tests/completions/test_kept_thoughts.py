"""A chat client that drops reasoning, as most do, keeps it across tool calls."""

import json

import pytest

from completions.thinking import CONTENT, PROVIDER, upstream
from support.inprocess import inprocess, replying
from tollgate.mapping.seal import seal

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
USER = {"role": "user", "content": "?"}
ASK = {"model": "acme/one", "reasoning_effort": "medium", "tools": [TOOL], "messages": [USER]}
BARE = {
    "role": "assistant",
    "content": "Let me look.",
    "tool_calls": [
        {
            "id": "toolu_1",
            "type": "function",
            "function": {"name": "weather", "arguments": '{"days":2,"city":"Oslo"}'},
        }
    ],
}
RESULT = {"role": "tool", "tool_call_id": "toolu_1", "content": "rain"}


def last_sent(seen):
    """What the upstream was last sent: the assistant's turn, and its `thinking` option."""
    body = json.loads(seen[-1][3])
    return body["messages"][1]["content"], body.get("thinking")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_reasoning_that_a_chat_client_omits_is_restored_for_its_model(tmp_path, stream):
    seen = []
    async with inprocess(tmp_path, providers={"acme": PROVIDER}, apps={"acme": upstream(stream, seen)}) as here:
        first = await here.post("/v1/chat/completions", {**ASK, "stream": stream})
        assert first.status_code == 200
        again = {**ASK, "stream": stream, "messages": [USER, BARE, RESULT]}
        second = await here.post("/v1/chat/completions", again, x_tollgate_strict="true")
    assert second.status_code == 200 and "x-tollgate-dropped" not in second.headers
    content, thinking = last_sent(seen)
    assert content == CONTENT and thinking["type"] == "enabled"


GEMINI = """
provider: acme
speaks: {gemini: /generate}
url: app://acme
models:
  acme/one: {upstream: one, can: {signed_calls: true}, context: 9000, max_output: 4000, price: {prompt: "1", completion: "1", unit: 1000000, currency: USD}}
"""  # noqa: E501
CALL = {
    "functionCall": {"id": "toolu_1", "name": "weather", "args": {"city": "Oslo", "days": 2}},
    "thoughtSignature": "S",
}
CANDIDATE = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "Let me look."}, CALL]}, "finishReason": "STOP"}],
    "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
}


async def test_the_signature_of_a_call_is_restored(tmp_path):
    seen = []
    gemini = replying(body=json.dumps(CANDIDATE).encode(), seen=seen)
    async with inprocess(tmp_path, providers={"acme": GEMINI}, apps={"acme": gemini}) as here:
        first = await here.post("/v1/chat/completions", ASK)
        [call] = first.json()["choices"][0]["message"]["tool_calls"]
        bare = {**BARE, "tool_calls": [{**BARE["tool_calls"][0], "id": call["id"]}]}
        result = {**RESULT, "tool_call_id": call["id"]}
        await here.post("/v1/chat/completions", {**ASK, "messages": [USER, bare, result]})
    parts = json.loads(seen[-1][3])["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in parts if "functionCall" in part] == ["S"]


async def test_reasoning_that_a_chat_client_returns_beside_the_signature_of_a_call_is_gemini_s_own(tmp_path):
    """OpenRouter's provider for the AI SDK and openai-agents for JavaScript return the text without its origin."""
    thought = {"text": "I need the weather.", "thought": True}
    content = {"role": "model", "parts": [thought, CALL]}
    answer = {**CANDIDATE, "candidates": [{"content": content, "finishReason": "STOP"}]}
    seen = []
    gemini = replying(body=json.dumps(answer).encode(), seen=seen)
    async with inprocess(tmp_path, providers={"acme": GEMINI}, apps={"acme": gemini}) as here:
        message = (await here.post("/v1/chat/completions", ASK)).json()["choices"][0]["message"]
        names = ("role", "content", "tool_calls", "reasoning")
        encrypted = [part for part in message["reasoning_details"] if part["type"] == "reasoning.encrypted"]
        turn = {**{name: message[name] for name in names}, "reasoning_details": encrypted}
        again = {**ASK, "messages": [USER, turn, {**RESULT, "tool_call_id": message["tool_calls"][0]["id"]}]}
        second = await here.post("/v1/chat/completions", again, x_tollgate_strict="true")
    assert second.status_code == 200 and "x-tollgate-dropped" not in second.headers
    assert json.loads(seen[-1][3])["contents"][1]["parts"] == [thought, CALL]


@pytest.mark.parametrize(
    "change",
    [{"model": "acme/two"}, {"messages": [USER, {**BARE, "content": "Let me guess."}, RESULT]}],
    ids=["another model", "another text"],
)
async def test_reasoning_is_not_restored_for_another_model_or_text(tmp_path, change):
    seen = []
    async with inprocess(tmp_path, providers={"acme": PROVIDER}, apps={"acme": upstream(False, seen)}) as here:
        await here.post("/v1/chat/completions", ASK)
        again = {**ASK, "messages": [USER, BARE, RESULT], **change}
        second = await here.post("/v1/chat/completions", again)
    assert second.headers["x-tollgate-dropped"] == "thinking (not possible with an unsigned tool turn before)"
    content, thinking = last_sent(seen)
    assert [block["type"] for block in content] == ["text", "tool_use"] and thinking is None


async def test_reasoning_that_a_client_sends_back_is_used(tmp_path):
    seen = []
    own = {**BARE, "thinking_blocks": [{"type": "thinking", "thinking": "other", "signature": "OWN"}]}
    async with inprocess(tmp_path, providers={"acme": PROVIDER}, apps={"acme": upstream(False, seen)}) as here:
        await here.post("/v1/chat/completions", ASK)
        await here.post("/v1/chat/completions", {**ASK, "messages": [USER, own, RESULT]})
    assert last_sent(seen)[0][0] == {"type": "thinking", "thinking": "other", "signature": "OWN"}


async def test_reasoning_of_another_provider_does_not_prevent_the_restoration(tmp_path):
    """Reasoning sealed for another provider is not usable here; it is reported as dropped."""
    seen = []
    sealed = seal({"token": "ENC", "origin": "elsewhere", "id": "rs_1"})
    own = {**BARE, "thinking_blocks": [{"type": "thinking", "thinking": "x", "signature": sealed}]}
    async with inprocess(tmp_path, providers={"acme": PROVIDER}, apps={"acme": upstream(False, seen)}) as here:
        await here.post("/v1/chat/completions", ASK)
        second = await here.post("/v1/chat/completions", {**ASK, "messages": [USER, own, RESULT]})
    assert "thinking (not possible" in second.headers["x-tollgate-dropped"]
