"""A responses client may refer to earlier output items by id (the default without `store: false`), also if the answer
was converted."""

import json
import sys
import threading
from types import SimpleNamespace

import pytest

from completions.thinking import CONTENT, PROVIDER, upstream
from support.inprocess import SSE, inprocess, replying
from tollgate.completions import kept_items
from tollgate.completions.kept_items import put_in_items
from tollgate.completions.off_loop import is_long
from tollgate.completions.state_ids import referenced_ids
from tollgate.config.settings import Server
from tollgate.remembered.answer_items import AnswerItems
from tollgate.room import Room

TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}
USER = {"role": "user", "content": "?"}
ASK = {"model": "acme/one", "tools": [TOOL], "reasoning": {"effort": "medium"}, "input": [USER]}
CHAT = "provider: acme\nspeaks: chat\nurl: app://acme/chat\nmodels:\n  acme/one: {}\n"
RESULT = {"type": "function_call_output", "call_id": "toolu_1", "output": "rain"}


def output_items(reply, stream):
    """The output items of an answer."""
    if not stream:
        return reply.json()["output"]
    *_, last = (json.loads(line[5:]) for line in reply.text.splitlines() if line.startswith("data:"))
    return last["response"]["output"]


def references_to(items):
    """What the AI SDK sends back for these items: calls in full, everything else by id."""
    return [item if item["type"] == "function_call" else {"type": "item_reference", "id": item["id"]} for item in items]


def saying(texts, seen, *, id, stream=False):
    """An upstream that says these texts in turn, each under the same id, and lists the requests in `seen`."""

    async def app(method, url, headers, body):
        text = texts[len(seen) % len(texts)]
        seen.append(json.loads(body))
        answer = {"id": id, "choices": [{"index": 0, "finish_reason": "stop"}]}
        answer["choices"][0]["delta" if stream else "message"] = {"role": "assistant", "content": text}
        data = json.dumps(answer).encode()
        if stream:
            return await replying(blocks=[b"data: %b\n\ndata: [DONE]\n\n" % data], headers=SSE)(
                method, url, headers, body
            )
        return await replying(200, data)(method, url, headers, body)

    return app


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("streamed_only", [False, True], ids=["", "gathered"])
async def test_output_items_of_a_converted_answer_may_be_referenced(tmp_path, stream, streamed_only):
    provider = PROVIDER + "can: {whole: false}\n" if streamed_only else PROVIDER
    seen = []
    app = upstream(stream or streamed_only, seen)
    async with inprocess(tmp_path, providers={"acme": provider}, apps={"acme": app}) as here:
        first = await here.post("/v1/responses", {**ASK, "stream": stream})
        assert first.status_code == 200
        again = {**ASK, "stream": stream, "input": [USER, *references_to(output_items(first, stream)), RESULT]}
        second = await here.post("/v1/responses", again, x_tollgate_strict="true")
    assert second.status_code == 200, second.text
    assert json.loads(seen[-1][3])["messages"][1]["content"] == CONTENT


async def test_a_reference_never_gets_the_item_of_another_conversation(tmp_path):
    """The ids of items are derived from that of the answer, which a server may give out twice."""
    texts = ["a secret of the first", "something else"]
    seen = []
    app = saying(texts, seen, id="cmpl-1")
    async with inprocess(tmp_path, providers={"acme": CHAT}, apps={"acme": app}) as here:
        replies = [await here.post("/v1/responses", {"model": "acme/one", "input": "?"}) for _ in texts]
        first, second = (reply.json()["output"] for reply in replies)
        assert first[0]["id"] == second[0]["id"]
        again = {"model": "acme/one", "input": [USER, *references_to(first), USER]}
        reply = await here.post("/v1/responses", again)
    assert reply.status_code == 404 and len(seen) == 2, reply.text


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_items_of_a_server_with_a_thousand_ids_may_be_referenced(tmp_path, stream):
    texts, seen = ["one", "two"], []
    app = saying(texts, seen, id="chatcmpl-417", stream=stream)
    async with inprocess(tmp_path, providers={"acme": CHAT}, apps={"acme": app}) as here:
        ask = {"model": "acme/one", "stream": stream}
        replies = [await here.post("/v1/responses", {**ask, "input": "?"}) for _ in texts]
        first, second = (output_items(reply, stream) for reply in replies)
        assert first[0]["id"] != second[0]["id"]
        again = {**ask, "input": [USER, *references_to(first), USER]}
        assert (await here.post("/v1/responses", again)).status_code == 200
    assert seen[-1]["messages"][1]["content"] == "one"


async def test_an_output_item_is_available_to_its_account_only(tmp_path):
    async with inprocess(tmp_path, providers={"acme": PROVIDER}, apps={"acme": upstream(False, [])}) as here:
        first = await here.post("/v1/responses", ASK)
        again = {**ASK, "input": [USER, *references_to(output_items(first, False)), RESULT]}
        key = await here.key_of_another_account()
        assert (await here.post("/v1/responses", again, key=key)).status_code == 404
        assert (await here.post("/v1/responses", again)).status_code == 200


async def test_an_output_item_with_store_false_is_not_remembered(tmp_path):
    async with inprocess(tmp_path, providers={"acme": PROVIDER}, apps={"acme": upstream(False, [])}) as here:
        first = await here.post("/v1/responses", {**ASK, "store": False})
        again = {**ASK, "input": [USER, *references_to(output_items(first, False)), RESULT]}
        assert (await here.post("/v1/responses", again)).status_code == 404


async def test_a_referenced_item_counts_towards_the_prompt(tmp_path):
    """A provider that reports no usage is paid an estimate of everything it was sent."""
    text = "word " * 200
    answer = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "one",
        "stop_reason": "end_turn",
        "content": [{"type": "text", "text": text}],
        "stop_sequence": None,
    }
    app = replying(body=json.dumps(answer).encode())
    ask = {"model": "acme/one", "input": [USER]}
    async with inprocess(tmp_path, providers={"acme": PROVIDER}, apps={"acme": app}) as here:
        first = await here.post("/v1/responses", ask)
        again = await here.post(
            "/v1/responses", {**ask, "input": [USER, *references_to(output_items(first, False)), USER]}
        )
    assert again.json()["usage"]["input_tokens"] > first.json()["usage"]["input_tokens"] + 150


async def test_a_native_provider_receives_the_item_in_place_of_its_reference(tmp_path):
    """The conversation continues at a provider that did not produce the item."""
    async with inprocess(tmp_path, providers={"acme": PROVIDER}, apps={"acme": upstream(False, [])}) as here:
        first = await here.post("/v1/responses", {**ASK, "reasoning": None})
        again = {
            "model": "sandbox/echo",
            "tools": [TOOL],
            "input": [USER, *references_to(output_items(first, False)), RESULT],
        }
        second = await here.post("/v1/responses", again)
    assert second.status_code == 200, second.text
    assert "rain" in json.dumps(second.json()["output"])


async def test_an_item_can_be_referenced_only_once_per_request(tmp_path):
    """Otherwise a small request could expand to any size."""
    async with inprocess(tmp_path, providers={"acme": PROVIDER}, apps={"acme": upstream(False, [])}) as here:
        first = await here.post("/v1/responses", ASK)
        twice = references_to(output_items(first, False)) * 2
        assert (await here.post("/v1/responses", {**ASK, "input": [USER, *twice, RESULT]})).status_code == 404


@pytest.mark.parametrize("item", [{"type": "item_reference"}, {"type": "item_reference", "id": 5}, None, 5], ids=repr)
async def test_an_invalid_reference_is_a_400_with_or_without_valid_ones(tmp_path, item):
    async with inprocess(tmp_path, providers={"acme": PROVIDER}, apps={"acme": upstream(False, [])}) as here:
        alone = await here.post("/v1/responses", {**ASK, "input": [USER, item]})
        first = await here.post("/v1/responses", ASK)
        among_others = await here.post(
            "/v1/responses", {**ASK, "input": [USER, item, *references_to(output_items(first, False)), RESULT]}
        )
    assert alone.status_code == among_others.status_code == 400


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("streamed_only", [False, True], ids=["", "gathered"])
async def test_a_converted_answer_may_be_continued_by_its_id(tmp_path, stream, streamed_only):
    """Only the result of the call is sent then, as clients do with a provider that stores responses."""
    provider = PROVIDER + "can: {whole: false}\n" if streamed_only else PROVIDER
    seen = []
    app = upstream(stream or streamed_only, seen)
    async with inprocess(tmp_path, providers={"acme": provider}, apps={"acme": app}) as here:
        first = await here.post("/v1/responses", {**ASK, "stream": stream, "input": "?"})
        again = {**ASK, "stream": stream, "previous_response_id": "m", "input": [RESULT]}
        second = await here.post("/v1/responses", again, x_tollgate_strict="true")
    assert first.status_code == second.status_code == 200, second.text
    assert first.text.count('"previous_response_id":null') == (3 if stream else 1)
    assert second.text.count('"previous_response_id":"m"') == (3 if stream else 1)
    user, assistant, result = json.loads(seen[-1][3])["messages"]
    assert user["content"] == [{"type": "text", "text": "?"}]
    assert assistant["content"] == CONTENT
    assert result["content"][0]["tool_use_id"] == "toolu_1"


async def test_a_tool_result_sent_twice_is_used_once(tmp_path):
    """Semantic Kernel sends all results of a tool loop with each step."""
    seen = []
    ask = {**ASK, "previous_response_id": "m", "input": [RESULT]}
    async with inprocess(tmp_path, providers={"acme": PROVIDER}, apps={"acme": upstream(False, seen)}) as here:
        here.services.answer_items.keep_conversation(
            "default", "m", [USER, {"type": "function_call", "call_id": "toolu_1", "name": "weather"}, RESULT], 100
        )
        again = await here.post("/v1/responses", {**ask, "input": [RESULT, {"role": "user", "content": "and?"}]})
    assert again.status_code == 200
    assert json.dumps(json.loads(seen[-1][3])).count('"tool_result"') == 1


def answering_with_ids(*ids):
    """An upstream whose answers have these ids in order, and number their text."""
    left, seen = list(ids), []

    async def app(method, path, headers, body):
        seen.append(json.loads(body)["messages"])
        block = {"type": "text", "text": f"answer {len(seen)}"}
        answer = {"id": left.pop(0), "type": "message", "role": "assistant", "model": "one", "content": [block]}
        whole = {**answer, "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1}}
        return await replying(body=json.dumps(whole).encode())(method, path, headers, body)

    return app, seen


async def test_an_answer_id_refers_to_the_whole_conversation_before_it(tmp_path):
    app, seen = answering_with_ids("m1", "m2", "m3", "m4")
    ask = {"model": "acme/one", "instructions": "be brief"}
    async with inprocess(tmp_path, providers={"acme": PROVIDER}, apps={"acme": app}) as here:
        await here.post("/v1/responses", {**ask, "input": "one"})
        await here.post("/v1/responses", {**ask, "input": "two", "previous_response_id": "m1"})
        await here.post("/v1/responses", {**ask, "input": "three", "previous_response_id": "m2"})
        await here.post("/v1/responses", {**ask, "input": "other", "previous_response_id": "m1"})
        elsewhere = {"model": "sandbox/echo", "input": "more", "previous_response_id": "m2"}
        assert (await here.post("/v1/responses", elsewhere)).status_code == 200
    texts = [[message["content"][0]["text"] for message in messages] for messages in seen]
    assert texts[2] == ["one", "answer 1", "two", "answer 2", "three"]
    assert texts[3] == ["one", "answer 1", "other"]


@pytest.mark.parametrize("why", ["account", "store", "unknown", "twice"])
async def test_an_answer_that_is_not_remembered_cannot_be_continued(tmp_path, why):
    """Of another account, with `store: false`, unknown, or with an id that two answers share."""
    app, _ = answering_with_ids("m1", "m1" if why == "twice" else "m2")
    ask = {"model": "acme/one", "input": "?"}
    async with inprocess(tmp_path, providers={"acme": PROVIDER}, apps={"acme": app}) as here:
        await here.post("/v1/responses", {**ask, "store": False} if why == "store" else ask)
        if why == "twice":
            await here.post("/v1/responses", ask)
        key = await here.key_of_another_account()
        again = {**ask, "previous_response_id": "m9" if why == "unknown" else "m1"}
        refused = await here.post("/v1/responses", again, key=key if why == "account" else None)
    assert refused.status_code == 404
    assert refused.json()["error"]["code"] == "previous_response_not_found"
    assert "set `store` to false and send the whole conversation" in refused.json()["error"]["message"]


async def test_inserted_items_take_room_as_received_bytes_do():
    room, items = Room(10**9), AnswerItems()
    items.keep("alice", [{"id": "msg_1", "text": "x" * 1000}])
    inbound = SimpleNamespace(
        dialect="responses", body=b"{}", place=room.place(), key=SimpleNamespace(account_id="alice")
    )
    request = {"input": [{"type": "item_reference", "id": "msg_1"}]}
    runtime = SimpleNamespace(current=SimpleNamespace(gateway=SimpleNamespace(server=Server())))
    services = SimpleNamespace(answer_items=items, runtime=runtime)
    expanded = await put_in_items(services, inbound, request, referenced_ids("responses", request, json.dumps(request)))
    assert expanded == json.loads(inbound.body) != request
    assert inbound.place.bytes == room.held == len(inbound.body) > 1000


async def test_a_long_history_is_inserted_off_the_event_loop(tmp_path, monkeypatch):
    """Even if the client's own request is short."""
    monkeypatch.setattr(sys.modules[is_long.__module__], "_LARGE_READ", 2_000)
    put_in, threads = kept_items._with_items, []
    monkeypatch.setattr(
        kept_items, "_with_items", lambda *args: threads.append(threading.current_thread()) or put_in(*args)
    )
    app, seen = answering_with_ids("m1", "m2", "m3")
    async with inprocess(tmp_path, providers={"acme": PROVIDER}, apps={"acme": app}) as here:
        for previous, text in ((None, "short"), ("m1", "long " * 1_000), ("m2", "short")):
            ask = {"model": "acme/one", "input": text, "previous_response_id": previous}
            assert (await here.post("/v1/responses", ask)).status_code == 200
    assert len(seen[-1]) == 5
    assert [thread is threading.main_thread() for thread in threads] == [False, False]


@pytest.mark.parametrize(
    ("limits", "item", "message"),
    [
        ("max_values: 1000", {"role": "user", "content": ["a"] * 1_000}, "more than 1000 values"),
        ("max_nesting: 10", {"type": "unknown", "extra": [[[[[[[[[0]]]]]]]]]}, "nested more than 10 levels"),
    ],
)
async def test_an_inserted_history_counts_towards_the_request_limits(tmp_path, limits, item, message):
    settings = f"server: {{{limits}}}\n"
    app = upstream(False, [])
    async with inprocess(tmp_path, providers={"acme": PROVIDER}, apps={"acme": app}, settings=settings) as here:
        here.services.answer_items.keep_conversation("default", "m", [item], 100)
        refused = await here.post("/v1/responses", {**ASK, "previous_response_id": "m", "input": "and?"})
    assert refused.status_code == 400 and message in refused.text
