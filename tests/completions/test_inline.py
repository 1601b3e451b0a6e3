"""Bytes of URLs for upstreams that cannot fetch: requested by the mapping, fetched once, rejected if they may not be
fetched."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from mapping.support import document
from support.inprocess import inprocess, replying
from tollgate.completions.inline import AT_ONCE, with_bytes
from tollgate.config.settings import Fetch
from tollgate.errors import BadRequest
from tollgate.mapping import CompiledMapping, Context, Refused, compile_mapping, request_from_hub

MAPPING = compile_mapping(
    document("""
mapping: bytes
request:
  from_hub:
    files:
      - $each: $t in $.turns
        $value:
          - $each: $p in $t.parts
            $let: {bytes: "{{ $p.url | inline if $p.url }}"}
            $when: $bytes
            data: $bytes.data
            mime: $bytes.mime
            $else: {$refuse: [{when: true, say: no bytes}]}
""")
)

COLLECTING = compile_mapping(
    document("""
mapping: collecting
request:
  from_hub:
    files:
      - $each: $t in $.turns
        $value:
          - $each: $p in $t.parts
            data: "{{ $p.url | inline if $p.url }}"
""")
)
"""Requests the bytes of all URLs at once."""


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    requested: list[str] = []

    async def fetch(url: str, settings: Fetch) -> tuple[str, bytes]:
        requested.append(url)
        if "private" in url:
            raise BadRequest("this address may not be fetched")
        return "image/png", b"hi"

    monkeypatch.setattr("tollgate.completions.inline.fetch_inline", fetch)
    return requested


def hub(*urls: Any) -> dict[str, Any]:
    return {
        "turns": [
            {"role": "user", "parts": [{"kind": "image", "url": url} if url else {"kind": "image"} for url in urls]}
        ]
    }


async def converted(mapping: CompiledMapping, hub: dict[str, Any], context: Context, settings: Fetch) -> Any:
    return await with_bytes(lambda: request_from_hub(mapping, hub, context), context, settings)


async def test_a_url_requested_by_the_mapping_is_fetched_once(fetched: list[str]) -> None:
    context = Context()
    made = await converted(MAPPING, hub("https://a/x.png", "https://a/x.png", "https://b/y.png"), context, Fetch())
    assert made == {"files": [{"data": "aGk=", "mime": "image/png"}] * 3}
    assert fetched == ["https://a/x.png", "https://b/y.png"] and context.lost == ["turns[].role"]


async def test_a_url_that_may_not_be_fetched_is_rejected(fetched: list[str]) -> None:
    with pytest.raises(BadRequest, match="may not be fetched"):
        await converted(MAPPING, hub("https://private/x.png"), Context(), Fetch())


async def test_too_many_urls_are_rejected_before_any_is_fetched(fetched: list[str]) -> None:
    many = hub(*(f"https://a/{number}.png" for number in range(50_000)))
    context = Context()
    with pytest.raises(BadRequest, match="more than 16 URLs"):
        await converted(COLLECTING, many, context, Fetch())
    assert fetched == [] and len(context.wanted) == 100


async def test_a_rejection_by_the_mapping_stands_if_no_bytes_are_wanted(fetched: list[str]) -> None:
    with pytest.raises(Refused, match="no bytes"):
        await converted(MAPPING, hub(None), Context(), Fetch())
    assert fetched == []


async def test_downloads_share_one_size_limit_and_run_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    running = most = started = 0

    async def fetch(url: str, settings: Fetch) -> tuple[str, bytes]:
        nonlocal running, most, started
        started += 1
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return "image/png", b"x" * 40

    monkeypatch.setattr("tollgate.completions.inline.fetch_inline", fetch)
    with pytest.raises(BadRequest, match="more than 100 bytes together"):
        await converted(
            COLLECTING, hub(*(f"https://a/{number}.png" for number in range(16))), Context(), Fetch(max_bytes=100)
        )
    assert most == AT_ONCE and started <= 2 * AT_ONCE, "the others were never started"
    context = Context()
    await converted(MAPPING, hub("https://a/1.png", "https://a/2.png"), context, Fetch(max_bytes=100))
    assert list(context.inlined) == ["https://a/1.png", "https://a/2.png"]
    with pytest.raises(BadRequest, match="more than 100 bytes together"):
        await converted(MAPPING, hub("https://a/3.png"), context, Fetch(max_bytes=100))


async def test_edits_may_want_bytes_of_native_and_converted_requests(fetched: list[str], tmp_path: Path) -> None:
    config = """
provider: acme
speaks: chat
url: app://acme/chat
request:
  - set: {"$.messages[*].content[*].image_url.url": "{{ 'data:image/png;base64,' ~ ($old | inline).data }}"}
models:
  acme/one: {price: {prompt: "0", completion: "0", unit: 1, currency: USD}}
"""
    seen: list[Any] = []
    answer = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}'
    apps = {"acme": replying(body=answer, seen=seen)}
    async with inprocess(tmp_path, providers={"acme": config}, apps=apps) as here:
        for path, image in (
            ("chat/completions", {"type": "image_url", "image_url": {"url": "https://a/x.png"}}),
            ("messages", {"type": "image", "source": {"type": "url", "url": "https://a/x.png"}}),
        ):
            body = {"model": "acme/one", "max_tokens": 9, "messages": [{"role": "user", "content": [image]}]}
            assert (await here.post(f"/v1/{path}", body)).status_code == 200
        image = {"type": "image_url", "image_url": {"url": "https://private/x.png"}}
        refused = await here.post(
            "/v1/chat/completions", {"model": "acme/one", "messages": [{"role": "user", "content": [image]}]}
        )
    urls = [json.loads(call[3])["messages"][0]["content"][0]["image_url"]["url"] for call in seen]
    assert urls == ["data:image/png;base64,aGk="] * 2
    assert fetched == ["https://a/x.png", "https://a/x.png", "https://private/x.png"]
    assert refused.status_code == 400 and "may not be fetched" in refused.text


@pytest.mark.parametrize("path", ["chat/completions", "messages"], ids=["native", "converted"])
async def test_what_edits_say_without_the_bytes_is_forgotten(fetched: list[str], tmp_path: Path, path: str) -> None:
    config = """
provider: acme
speaks: chat
url: app://acme/chat
request:
  - set: {"$.messages[*].content[*].image_url.url": "{{ 'data:image/png;base64,' ~ ($old | inline).data }}"}
  - drop: [temperature]
    when: not ($.messages[0].content[0].image_url.url | starts('data:'))
  - refuse: no picture
    when: not ($.messages[0].content[0].image_url.url | starts('data:')) and $.top_p
models:
  acme/one: {price: {prompt: "0", completion: "0", unit: 1, currency: USD}}
"""
    image: dict[str, Any] = {"type": "image", "source": {"type": "url", "url": "https://a/x.png"}}
    if path != "messages":
        image = {"type": "image_url", "image_url": {"url": "https://a/x.png"}}
    body = {
        "model": "acme/one",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": [image]}],
        "temperature": 0.5,
    }
    seen: list[Any] = []
    answer = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}'
    async with inprocess(tmp_path, providers={"acme": config}, apps={"acme": replying(body=answer, seen=seen)}) as here:
        answers = [await here.post(f"/v1/{path}", {**body, **more}) for more in ({}, {"top_p": 1})]
    assert [reply.status_code for reply in answers] == [200, 200], [reply.text for reply in answers]
    assert [json.loads(call[3])["temperature"] for call in seen] == [0.5, 0.5]
    assert not any("x-tollgate-dropped" in reply.headers for reply in answers)


async def test_the_next_route_needs_no_second_download(fetched: list[str], tmp_path: Path) -> None:
    config = """
provider: {name}
speaks: chat
url: app://{name}/chat
request:
  - set: {{"$.messages[*].content[*].image_url.url": "{{{{ 'data:image/png;base64,' ~ ($old | inline).data }}}}"}}
models:
  acme/one: {{priority: {priority}, price: {{prompt: "0", completion: "0", unit: 1, currency: USD}}}}
"""
    seen: list[Any] = []
    answer = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}'
    apps = {"down": replying(503, b"{}", seen=seen), "acme": replying(body=answer, seen=seen)}
    configs = {name: config.format(name=name, priority=n) for n, name in enumerate(apps)}
    image = {"type": "image_url", "image_url": {"url": "https://a/x.png"}}
    async with inprocess(tmp_path, providers=configs, apps=apps) as here:
        body = {"model": "acme/one", "messages": [{"role": "user", "content": [image]}]}
        assert (await here.post("/v1/chat/completions", body)).status_code == 200
    urls = [json.loads(call[3])["messages"][0]["content"][0]["image_url"]["url"] for call in seen]
    assert urls == ["data:image/png;base64,aGk="] * 2
    assert fetched == ["https://a/x.png"]
