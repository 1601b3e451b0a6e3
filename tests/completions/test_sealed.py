"""A conversation that moves from a converted model to a native one drops foreign reasoning and reports it."""

import base64
import json

from support.inprocess import inprocess, replying
from tollgate.completions.sealed import holds_sealed, without_sealed
from tollgate.mapping import Context
from tollgate.mapping.seal import seal, unseal

SEALED = seal({"token": "ENC", "origin": "elsewhere", "id": "rs_1"})
NATIVE = """
provider: acme
speaks: {messages: /messages}
url: app://acme
models:
  acme/one: {upstream: up, context: 1000, max_output: 100, price: {prompt: "1", completion: "1", unit: 1000000, currency: USD}}
"""  # noqa: E501
ANSWER = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "up",
    "content": [{"type": "text", "text": "hi"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


async def test_a_foreign_thinking_block_does_not_reach_a_native_provider(tmp_path):
    seen = []
    turns = [
        {"role": "user", "content": "a"},
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "hm", "signature": SEALED}, {"type": "text", "text": "b"}],
        },
        {"role": "assistant", "content": [{"type": "redacted_thinking", "data": SEALED}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "own", "signature": "SIG"}]},
        {"role": "user", "content": "c"},
    ]
    async with inprocess(
        tmp_path, providers={"acme": NATIVE}, apps={"acme": replying(body=json.dumps(ANSWER).encode(), seen=seen)}
    ) as here:
        reply = await here.post("/v1/messages", {"model": "acme/one", "max_tokens": 5, "messages": turns})
    assert reply.status_code == 200 and reply.headers["x-tollgate-dropped"] == "reasoning of another provider"
    sent = json.loads(seen[0][3])["messages"]
    assert sent == [turns[0], {"role": "assistant", "content": [{"type": "text", "text": "b"}]}, turns[3], turns[4]]


def test_a_foreign_reasoning_item_is_dropped_and_the_rest_is_kept():
    items = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": SEALED},
        {"type": "reasoning", "encrypted_content": "OWN"},
        {"role": "user", "content": "say tg1. twice"},
    ]
    context = Context()
    body = {"model": "m", "input": items}
    assert without_sealed("responses", body, context) == {"model": "m", "input": items[1:]}
    assert body["input"] is items and context.lost == ["reasoning of another provider"]


def test_sealed_signatures_do_not_reach_a_native_chat_provider():
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    signed = [{**call, "extra_content": {"google": {"thought_signature": each}}} for each in (SEALED, "OWN")]
    details = [{"type": "reasoning.encrypted", "data": each, "format": "google-gemini-v1"} for each in (SEALED, "OWN")]
    user = {"role": "user", "content": "say tg1. twice"}
    body = {"model": "m", "messages": [user, {"role": "assistant", "reasoning_details": details, "tool_calls": signed}]}
    context = Context()
    assert without_sealed("chat", body, context)["messages"] == [
        user,
        {"role": "assistant", "reasoning_details": details[1:], "tool_calls": [call, signed[1]]},
    ]
    assert context.lost == ["reasoning of another provider", "signature of another provider"]


def test_a_seal_that_a_client_encoded_in_base64_again_is_recognised():
    for text in ("ENC", "ENCO", "ENCOD"):
        part = {"token": text, "origin": "elsewhere", "id": "rs_1"}
        again = base64.b64encode(seal(part).encode()).decode()
        assert unseal(again) == part
        assert holds_sealed(json.dumps({"signature": again}))
    assert unseal(again[:-5]) is None and unseal("dGcxL") is None and unseal("dGcxLg=\u00e9") is None
