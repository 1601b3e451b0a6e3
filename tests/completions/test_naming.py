"""The model name in an answer: Claude Code only sends a thinking block back if the answer names the model it
requested."""

import json

import pytest

from support.inprocess import inprocess, replying

AGENT = "claude-cli/2.1.197 (external, cli)"
ROUTES = {"native": "messages", "converted": "chat"}


def provider(speaks: str, can: str = "{}") -> str:
    return f"""provider: near
url: app://sandbox/v1
speaks: {{{speaks}: {"/messages" if speaks == "messages" else "/chat/completions"}}}
can: {can}
models:
  near/fast: {{upstream: reasoner, aliases: [quick], price: {{prompt: "1", completion: "1", unit: 1000000}}}}
"""


def request(**more) -> dict:
    return {"model": "quick", "max_tokens": 900, "messages": [{"role": "user", "content": "hi"}], **more}


def models(text: str) -> list[str]:
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    return [event["message"]["model"] for event in events if event["type"] == "message_start"]


@pytest.mark.parametrize("speaks", ROUTES.values(), ids=ROUTES)
@pytest.mark.parametrize("can", ["{}", "{whole: false}"], ids=["", "gathered"])
async def test_claude_code_receives_the_name_it_requested(tmp_path, speaks, can):
    async with inprocess(tmp_path, providers={"near": provider(speaks, can)}) as here:
        whole = await here.post("/v1/messages", request(), user_agent=AGENT)
        streamed = await here.post("/v1/messages", request(stream=True), user_agent=AGENT)
    assert whole.json()["model"] == "quick" and models(streamed.text) == ["quick"]
    assert whole.json()["content"][0]["type"] == "thinking" and "signature_delta" in streamed.text


@pytest.mark.parametrize("speaks", ROUTES.values(), ids=ROUTES)
async def test_other_clients_receive_the_providers_name_of_the_model(tmp_path, speaks):
    async with inprocess(tmp_path, providers={"near": provider(speaks)}) as here:
        whole = await here.post("/v1/messages", request())
        streamed = await here.post("/v1/messages", request(stream=True), user_agent="Anthropic/JS 0.94.0")
    assert whole.json()["model"] == "reasoner" and models(streamed.text) == ["reasoner"]


async def test_a_stream_that_already_has_the_requested_name_passes_byte_for_byte(tmp_path):
    """Only the first event is rewritten, and only if its name differs."""
    events = [
        (
            b'event: message_start\ndata: {"type":"message_start", '
            b'"message":{"id":"m","model":"near-1","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}\n\n'
        ),
        (
            b'event: content_block_start\ndata: {"type":"content_block_start" '
            b',"index":0,"content_block":{"type":"text","text":"\\u00fc model"}}\n\n'
        ),
        (
            b"event: message_delta\ndata: "
            b'{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2 }}\n\n'
        ),
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    ]
    app = replying(blocks=events, headers={"content-type": "text/event-stream"})
    text = provider("messages").replace("app://sandbox", "app://near").replace("[quick]", "[quick, near-1]")
    async with inprocess(tmp_path, providers={"near": text}, apps={"near": app}) as here:
        same = await here.post("/v1/messages", request(stream=True) | {"model": "near-1"}, user_agent=AGENT)
        other = await here.post("/v1/messages", request(stream=True), user_agent=AGENT)
    assert same.content == b"".join(events)
    assert other.content.endswith(b"".join(events[1:])) and models(other.text) == ["quick"]
