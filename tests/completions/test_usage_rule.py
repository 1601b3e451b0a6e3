"""A provider's own `usage:` template determines what every native answer is billed, whole and streamed."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from conformance.upstreams import ASKS, PATHS, events, provider, whole
from support.inprocess import SSE, inprocess, replying
from support.usage_files import rows

RULE = {
    "chat": 'usage: {read: {input: 70, output: "{{ $.usage.completion_tokens }}"}}',
    "messages": 'usage: {read: {$when: $.usage, input: 70, output: "{{ $.usage.output_tokens }}"}}',
    "responses": 'usage: {read: {$let: {u: "{{ $.usage or $.response.usage }}"}, $when: $u, input: 70, output: "{{ '
    '$u.output_tokens }}"}}',
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("protocol", PATHS)
async def test_the_template_determines_the_billed_usage(tmp_path, protocol, streamed):
    app = (
        replying(blocks=events(protocol, "hi"), headers=SSE)
        if streamed
        else replying(body=json.dumps(whole(protocol, "hi")).encode())
    )
    async with inprocess(
        tmp_path, providers={"acme": provider("app://acme/v1", protocol, more=RULE[protocol])}, apps={"acme": app}
    ) as here:
        assert (await here.post(PATHS[protocol], {**ASKS[protocol], "stream": streamed})).status_code == 200
        (row,) = await rows(here, tmp_path)
    assert (row["outcome"], row["input_tokens"], row["output_tokens"], row["estimated"]) == ("ok", 70, 5, False)


OWN_FIELDS = """
provider: acme
url: app://acme/v1
speaks:
  chat:
    path: /chat/completions
    usage:
      excludes: [cache_read]
      read: {input: $.meter.fresh, cache_read: $.meter.hit, output: "{{ $.meter.out | number }}"}
models: {acme/chat: {price: {prompt: "1", completion: "2", input_cache_read: "0.1", unit: 1000000}}}
"""
USED = {"prompt_tokens": 170, "completion_tokens": 5, "total_tokens": 175}


def answer_chunk(delta: dict, finish: str | None = None, **more) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "c", "choices": [choice], **more}).encode() + b"\n\n"


@pytest.mark.parametrize("streamed", [False, True])
async def test_usage_in_fields_of_its_own_reaches_the_row_and_the_client(tmp_path, streamed):
    choice = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    body = {"id": "c", "object": "chat.completion", "choices": [choice]}
    blocks = [
        answer_chunk({"role": "assistant"}, meter={"fresh": 70}),
        answer_chunk({"content": "hi"}) + answer_chunk({}, "stop", meter={"hit": 100, "out": "5"}),
        b"data: [DONE]\n\n",
    ]
    app = (
        replying(blocks=blocks, headers=SSE)
        if streamed
        else replying(body=json.dumps({**body, "meter": {"fresh": 70, "hit": 100, "out": "5"}}).encode())
    )
    async with inprocess(tmp_path, providers={"acme": OWN_FIELDS}, apps={"acme": app}) as here:
        request = {"model": "acme/chat", "messages": [{"role": "user", "content": "Hello"}], "stream": streamed}
        reply = await here.post("/v1/chat/completions", request)
        (row,) = await rows(here, tmp_path)
    reported = json.loads(reply.text.split("data: ")[-2] if streamed else reply.text)["usage"]
    assert {name: reported[name] for name in USED} == USED
    counted = [row[name] for name in ("input_tokens", "cache_read_tokens", "output_tokens", "estimated")]
    assert counted == [70, 100, 5, False]


@pytest.mark.parametrize("protocol", PATHS)
async def test_the_template_may_read_any_event_of_a_stream(tmp_path, protocol):
    """Also one that says nothing of the answer's end, and would else pass unparsed."""
    rule = 'usage: {read: {input: 70, cache_read: $.meter.hit, output: "{{ 5 if $.usage or $.response.usage }}"}}'
    first, *others = events(protocol, "hi")
    meter = {"type": "meter", "choices": [], "meter": {"hit": 30}}
    app = replying(blocks=[first, b"data: " + json.dumps(meter).encode() + b"\n\n", *others], headers=SSE)
    async with inprocess(
        tmp_path, providers={"acme": provider("app://acme/v1", protocol, more=rule)}, apps={"acme": app}
    ) as here:
        assert (await here.post(PATHS[protocol], {**ASKS[protocol], "stream": True})).status_code == 200
        (row,) = await rows(here, tmp_path)
    counted = [row[name] for name in ("input_tokens", "cache_read_tokens", "output_tokens", "estimated")]
    assert counted == [40, 30, 5, False]


@pytest.mark.parametrize("client", PATHS)
async def test_the_template_may_add_up_the_usage_of_several_events(tmp_path, client):
    output = "{{ [$before.output, $.usage.completion_tokens] | total }}"
    rule = f'usage: {{read: {{$when: $.usage, input: 70, output: "{output}"}}}}'
    used = answer_chunk({"content": "well, "}, usage={"prompt_tokens": 10, "completion_tokens": 3})
    app = replying(blocks=[used, *events("chat", "hi")], headers=SSE)
    async with inprocess(
        tmp_path, providers={"acme": provider("app://acme/v1", "chat", more=rule)}, apps={"acme": app}
    ) as here:
        assert (await here.post(PATHS[client], {**ASKS[client], "stream": True})).status_code == 200
        (row,) = await rows(here, tmp_path)
    assert (row["input_tokens"], row["output_tokens"], row["estimated"]) == (70, 8, False)


HEADERS = {"content-type": "application/json", "x-in": "70"}


@pytest.mark.parametrize("protocol", PATHS)
async def test_the_template_may_read_the_headers_of_a_whole_answer(tmp_path, protocol):
    rule = "usage: {read: {input: \"{{ $answer_headers['x-in'] | number }}\", output: 5}}"
    app = replying(body=json.dumps(whole(protocol, "hi")).encode(), headers=HEADERS)
    async with inprocess(
        tmp_path, providers={"acme": provider("app://acme/v1", protocol, more=rule)}, apps={"acme": app}
    ) as here:
        assert (await here.post(PATHS[protocol], ASKS[protocol])).status_code == 200
        (row,) = await rows(here, tmp_path)
    assert (row["input_tokens"], row["output_tokens"], row["estimated"]) == (70, 5, False)


def without_usage(value):
    """A JSON value without its members named `usage`."""
    if isinstance(value, dict):
        return {name: without_usage(each) for name, each in value.items() if name != "usage"}
    return [without_usage(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("protocol", ["messages", "responses"])
async def test_usage_that_only_the_template_finds_reaches_the_client(tmp_path, protocol, streamed):
    """As in chat; official clients fail on a `message_delta` without usage."""
    rule = "usage: {read: {input: \"{{ $answer_headers['x-in'] | number }}\", output: 5}}"
    sent = [json.loads(event.partition(b"data: ")[2]) for event in events(protocol, "hi")]
    blocks = [b"data: " + json.dumps(without_usage(event)).encode() + b"\n\n" for event in sent]
    body = json.dumps(without_usage(whole(protocol, "hi"))).encode()
    app = replying(blocks=blocks, headers={**SSE, "x-in": "70"}) if streamed else replying(body=body, headers=HEADERS)
    text = provider("app://acme/v1", protocol, more=rule)
    async with inprocess(tmp_path, providers={"acme": text}, apps={"acme": app}) as here:
        reply = await here.post(PATHS[protocol], {**ASKS[protocol], "stream": streamed})
    last = (
        reply.json()
        if not streamed
        else json.loads(reply.text.split("data: ")[-2 if protocol == "messages" else -1].split("\n")[0])
    )
    usage = last.get("response", last)["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (70, 5)


@pytest.mark.parametrize("can", ["{}", "{whole: false}"], ids=["streamed", "gathered"])
@pytest.mark.parametrize("client", PATHS)
@pytest.mark.parametrize("protocol", PATHS)
async def test_the_template_may_combine_the_headers_of_a_stream_with_its_events(tmp_path, protocol, client, can):
    """The headers are available with every event: values of earlier events are kept."""
    header, output = "{{ $answer_headers['x-in'] | number }}", "{{ 5 if $.usage or $.response.usage }}"
    rule = f'usage: {{read: {{input: "{header}", output: "{output}"}}}}\ncan: {can}'
    app = replying(blocks=[*events(protocol, "hi"), b": bye\n\n"], headers={**SSE, "x-in": "70"})
    text = provider("app://acme/v1", protocol, more=rule)
    async with inprocess(tmp_path, providers={"acme": text}, apps={"acme": app}) as here:
        reply = await here.post(PATHS[client], {**ASKS[client], "stream": can == "{}"})
        assert reply.status_code == 200, reply.text
        (row,) = await rows(here, tmp_path)
    assert (row["input_tokens"], row["output_tokens"], row["estimated"]) == (70, 5, False)


VECTORS = """
provider: acme
url: app://acme
speaks: {cohere-embeddings: {path: /embed, usage: {read: {input: "{{ $answer_headers['x-in'] | number }}"}}}}
models: {acme/embed: {upstream: e, price: {prompt: "0.001"}}}
"""


@pytest.mark.parametrize("reported", [True, False])
async def test_embeddings_whose_tokens_are_in_a_header_are_not_estimated(tmp_path, reported):
    headers = HEADERS if reported else {"content-type": "application/json"}
    app = replying(body=b'{"id": "x", "embeddings": {"float": [[0.5]]}}', headers=headers)
    async with inprocess(tmp_path, providers={"acme": VECTORS}, apps={"acme": app}) as here:
        answer = (await here.post("/v1/embeddings", {"model": "acme/embed", "input": "Hello"})).json()
        (row,) = await rows(here, tmp_path)
    assert row["estimated"] is not reported and (answer["usage"]["prompt_tokens"] == 70) is reported


SEARCHES = """
provider: acme
url: app://acme/v1
speaks:
  chat:
    path: /chat/completions
    usage:
      when: "$.tools[?(@.type == 'acme_search')]"
      read:
        $let:
          ran:
            - {$each: "$t in $.choices[*].message.ran[*]", $value: 1}
            - {$each: "$t in $.choices[*].delta.ran[*]", $value: 1}
        input: $.usage.prompt_tokens
        output: $.usage.completion_tokens
        searches: {$when: $ran, $value: "{{ [$before.searches, ($ran | total)] | total }}"}
models: {acme/chat: {price: {prompt: "1", completion: "2", web_search: "0.01", unit: 1000000}}}
"""


@pytest.mark.parametrize(("tool", "searches"), [("acme_search", 3), ("acme_code", 0)])
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_rule_for_some_requests_adds_up_what_events_report(tmp_path, streamed, tool, searches):
    choice = {"index": 0, "message": {"role": "assistant", "content": "hi", "ran": [1, 2, 3]}, "finish_reason": "stop"}
    body = {"id": "c", "object": "chat.completion", "choices": [choice], "usage": USED}
    blocks = [
        answer_chunk({"role": "assistant", "ran": [1]}),
        answer_chunk({"content": "hi", "ran": [2, 3]}),
        answer_chunk({}, "stop", usage=USED),
        b"data: [DONE]\\n\\n",
    ]
    app = replying(blocks=blocks, headers=SSE) if streamed else replying(body=json.dumps(body).encode())
    asked = {"model": "acme/chat", "stream": streamed, "tools": [{"type": tool}], "messages": ASKS["chat"]["messages"]}
    async with inprocess(tmp_path, providers={"acme": SEARCHES}, apps={"acme": app}) as here:
        assert (await here.post(PATHS["chat"], asked)).status_code == 200
        (row,) = await rows(here, tmp_path)
    assert (row["input_tokens"], row["output_tokens"], row["searches"], row["estimated"]) == (170, 5, searches, False)
    assert row["cost"] == Decimal("0.00018") + searches * Decimal("0.01")
