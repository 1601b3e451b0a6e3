"""A provider whose models write their reasoning and calls into the text (`in_text:`), with clients of every format."""

import json

import pytest

from completions.invented import ASK
from completions.plain_chat import streamed
from support.inprocess import SSE, inprocess, replying
from support.usage_files import rows

PROVIDER = """
provider: acme
url: app://acme
speaks: {chat: /chat}
define:
  call($c): {$when: $c.name, kind: tool_call, name: $c.name, args: $c.arguments}
in_text:
  - {from: <think>, to: </think>, kind: reasoning, at: start}
  - {from: <tool_call>, to: </tool_call>, parts: "{{ call($ | parse_json) }}"}
models:
  acme/one: {upstream: up-1, price: {prompt: "0.001", completion: "0.002"}}
"""
TEXT = '<think>\nhm\n</think>\n\nNow:\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
WHOLE = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "up-1",
    "usage": USAGE,
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": TEXT}}],
}


def chunks(size):
    yield {"id": "c1", "model": "up-1", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
    for at in range(0, len(TEXT), size):
        yield {"id": "c1", "model": "up-1", "choices": [{"index": 0, "delta": {"content": TEXT[at : at + size]}}]}
    yield {"id": "c1", "model": "up-1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    yield {"id": "c1", "model": "up-1", "choices": [], "usage": USAGE}


def events(reply):
    return [
        json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: ") and line != "data: [DONE]"
    ]


async def test_reasoning_and_calls_in_the_text_of_a_whole_answer_become_parts(tmp_path):
    seen = []
    async with inprocess(
        tmp_path, providers={"acme": PROVIDER}, apps={"acme": replying(body=json.dumps(WHOLE).encode(), seen=seen)}
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "chat_template_kwargs": {"enable_thinking": True}})
        assert json.loads(seen[0][3])["chat_template_kwargs"] == {"enable_thinking": True}
        choice = reply.json()["choices"][0]
        assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] == "Now:"
        assert "hm" in (choice["message"].get("reasoning_content"), choice["message"].get("reasoning"))
        assert choice["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a":1}'}
        assert reply.json()["usage"]["total_tokens"] == 15
        message = (await here.post("/v1/messages", {**ASK, "max_tokens": 9})).json()
        assert [block["type"] for block in message["content"]] == ["thinking", "text", "tool_use"] and message[
            "stop_reason"
        ] == "tool_use"
        row = (await rows(here, tmp_path))[0]
    assert (row["outcome"], row["output_tokens"], row["estimated"]) == ("ok", 5, False)


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
async def test_reasoning_and_calls_in_the_text_of_a_stream_become_parts(tmp_path, size):
    app = replying(blocks=streamed(*chunks(size), b"[DONE]"), headers=SSE)
    async with inprocess(tmp_path, providers={"acme": PROVIDER}, apps={"acme": app}) as here:
        answered = events(await here.post("/v1/chat/completions", {**ASK, "stream": True}))
        deltas = [choice["delta"] for event in answered for choice in event["choices"]]
        assert "".join(delta.get("content") or "" for delta in deltas) == "Now:"
        assert "".join(delta.get("reasoning_content") or delta.get("reasoning") or "" for delta in deltas) == "hm"
        calls = [call for delta in deltas for call in delta.get("tool_calls") or []]
        assert (
            "".join(call["function"].get("arguments") or "" for call in calls) == '{"a":1}'
            and calls[0]["function"]["name"] == "f"
        )
        assert [
            choice["finish_reason"] for event in answered for choice in event["choices"] if choice.get("finish_reason")
        ] == ["tool_calls"]
        assert next(event["usage"] for event in answered if event.get("usage"))["total_tokens"] == 15
        kinds = [
            event["type"]
            for event in events(await here.post("/v1/responses", {"model": "acme/one", "input": "Hi", "stream": True}))
        ]
        assert kinds.count("response.output_item.done") == 3 and kinds[-1] == "response.completed"


async def test_more_than_one_choice_is_rejected(tmp_path):
    async with inprocess(
        tmp_path, providers={"acme": PROVIDER}, apps={"acme": replying(body=json.dumps(WHOLE).encode())}
    ) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "n": 2})
    assert reply.status_code == 400 and "n is greater than 1" in reply.text


async def test_a_stream_that_breaks_off_inside_a_call_delivers_its_text(tmp_path):
    cut = {"id": "c1", "choices": [{"index": 0, "delta": {"content": 'Hm <tool_call>{"na'}}]}
    blocks = streamed(*list(chunks(1000))[:1], cut)
    async with inprocess(
        tmp_path, providers={"acme": PROVIDER}, apps={"acme": replying(blocks=blocks, headers=SSE)}
    ) as here:
        answered = events(await here.post("/v1/chat/completions", {**ASK, "stream": True}))
        assert (
            "".join(choice["delta"].get("content") or "" for event in answered[:-1] for choice in event["choices"])
            == 'Hm <tool_call>{"na'
        )
        assert "error" in answered[-1]
        row = (await rows(here, tmp_path))[0]
    assert row["outcome"] != "ok" and row["output_tokens"] > 0


async def test_a_gathered_stream_with_calls_in_its_text_becomes_parts(tmp_path):
    provider = PROVIDER.replace("speaks:", "can: {whole: false}\nspeaks:")
    app = replying(blocks=streamed(*chunks(5), b"[DONE]"), headers=SSE)
    async with inprocess(tmp_path, providers={"acme": provider}, apps={"acme": app}) as here:
        message = (await here.post("/v1/chat/completions", ASK)).json()["choices"][0]["message"]
    assert message["content"] == "Now:" and message["tool_calls"][0]["function"]["name"] == "f"


KEPT = PROVIDER.replace("at: start}", "at: start, native: keep}").replace(
    'parse_json) }}"}', 'parse_json) }}", native: keep}'
)
"""A provider whose answers pass unchanged to clients of its own format."""


async def test_answers_to_clients_of_the_same_format_may_stay_unchanged(tmp_path):
    app = replying(body=json.dumps(WHOLE).encode())
    async with inprocess(tmp_path, providers={"acme": KEPT}, apps={"acme": app}) as here:
        native = await here.post("/v1/chat/completions", {**ASK, "n": 2})
        message = (await here.post("/v1/messages", {**ASK, "max_tokens": 9})).json()
    assert native.json()["choices"] == WHOLE["choices"]
    assert [block["type"] for block in message["content"]] == ["thinking", "text", "tool_use"]


async def test_streams_to_clients_of_the_same_format_may_stay_unchanged(tmp_path):
    app = replying(blocks=streamed(*chunks(7), b"[DONE]"), headers=SSE)
    async with inprocess(tmp_path, providers={"acme": KEPT}, apps={"acme": app}) as here:
        native = events(await here.post("/v1/chat/completions", {**ASK, "stream": True}))
        other = events(await here.post("/v1/responses", {"model": "acme/one", "input": "Hi", "stream": True}))
    assert "".join(c["delta"].get("content") or "" for event in native for c in event["choices"]) == TEXT
    assert [item["type"] for item in other[-1]["response"]["output"]] == ["reasoning", "message", "function_call"]


async def test_one_mark_that_converts_native_answers_is_enough(tmp_path):
    provider = PROVIDER.replace("at: start}", "at: start, native: keep}")
    app = replying(body=json.dumps(WHOLE).encode())
    async with inprocess(tmp_path, providers={"acme": provider}, apps={"acme": app}) as here:
        message = (await here.post("/v1/chat/completions", ASK)).json()["choices"][0]["message"]
    assert message["content"] == "Now:" and message["reasoning"] == "hm"
