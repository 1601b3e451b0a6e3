"""A provider's own `usage:` template is what every native answer is billed by, whole and streamed."""

from __future__ import annotations

import json

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
async def test_the_template_decides(tmp_path, protocol, streamed):
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


HEADERS = {"content-type": "application/json", "x-in": "70"}


@pytest.mark.parametrize("protocol", PATHS)
async def test_it_may_read_the_headers_of_a_whole_answer(tmp_path, protocol):
    rule = "usage: {read: {input: \"{{ $answer_headers['x-in'] | number }}\", output: 5}}"
    app = replying(body=json.dumps(whole(protocol, "hi")).encode(), headers=HEADERS)
    async with inprocess(
        tmp_path, providers={"acme": provider("app://acme/v1", protocol, more=rule)}, apps={"acme": app}
    ) as here:
        assert (await here.post(PATHS[protocol], ASKS[protocol])).status_code == 200
        (row,) = await rows(here, tmp_path)
    assert (row["input_tokens"], row["output_tokens"], row["estimated"]) == (70, 5, False)


VECTORS = """
provider: acme
url: app://acme
speaks: {cohere-embeddings: {path: /embed, usage: {read: {input: "{{ $answer_headers['x-in'] | number }}"}}}}
models: {acme/embed: {upstream: e, price: {prompt: "0.001"}}}
"""


@pytest.mark.parametrize("told", [True, False])
async def test_vectors_whose_tokens_a_header_tells_are_not_estimated(tmp_path, told):
    headers = HEADERS if told else {"content-type": "application/json"}
    app = replying(body=b'{"id": "x", "embeddings": {"float": [[0.5]]}}', headers=headers)
    async with inprocess(tmp_path, providers={"acme": VECTORS}, apps={"acme": app}) as here:
        answer = (await here.post("/v1/embeddings", {"model": "acme/embed", "input": "Hello"})).json()
        (row,) = await rows(here, tmp_path)
    assert row["estimated"] is not told and (answer["usage"]["prompt_tokens"] == 70) is told
