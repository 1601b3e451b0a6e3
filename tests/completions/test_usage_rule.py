"""A provider's own `usage:` template is what every native answer is billed by, whole and streamed."""

from __future__ import annotations

import json

import pytest

from conformance.upstreams import ASKS, PATHS, events, provider, whole
from support.inprocess import inprocess, replying
from support.usage_files import rows

from .test_pipeline import SSE

RULE = {
    "chat": "usage: {read: {input: 70, output: \"{{ $.usage.completion_tokens }}\"}}",
    "messages": "usage: {read: {$when: $.usage, input: 70, output: \"{{ $.usage.output_tokens }}\"}}",
    "responses": "usage: {read: {$let: {u: \"{{ $.usage or $.response.usage }}\"}, $when: $u, input: 70, output: \"{{ $u.output_tokens }}\"}}",
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("protocol", PATHS)
async def test_the_template_decides(tmp_path, protocol, streamed):
    app = replying(blocks=events(protocol, "hi"), headers=SSE) if streamed else replying(body=json.dumps(whole(protocol, "hi")).encode())
    async with inprocess(tmp_path, providers={"acme": provider("app://acme/v1", protocol, more=RULE[protocol])}, apps={"acme": app}) as here:
        assert (await here.post(PATHS[protocol], {**ASKS[protocol], "stream": streamed})).status_code == 200
        (row,) = await rows(here, tmp_path)
    assert (row["outcome"], row["input_tokens"], row["output_tokens"], row["estimated"]) == ("ok", 70, 5, False)
