"""Bytes behind URLs, for upstreams that cannot fetch: asked for by the mapping, fetched once, refused when they may not be."""

from __future__ import annotations

from typing import Any

import pytest

from mapping.support import document
from tollgate.completions.inline import request_with_bytes
from tollgate.config.model import Fetch
from tollgate.errors import BadRequest
from tollgate.mapping import Context, Refused, compile_mapping

MAPPING = compile_mapping(document("""
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
"""))


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []

    async def fetch(url: str, settings: Fetch) -> tuple[str, bytes]:
        asked.append(url)
        if "private" in url:
            raise BadRequest("this address may not be fetched")
        return "image/png", b"hi"

    monkeypatch.setattr("tollgate.completions.inline.fetch_inline", fetch)
    return asked


def hub(*urls: Any) -> dict[str, Any]:
    return {"turns": [{"role": "user", "parts": [{"kind": "image", "url": url} if url else {"kind": "image"} for url in urls]}]}


async def test_a_url_the_mapping_asks_for_is_fetched_once(fetched: list[str]) -> None:
    context = Context()
    made = await request_with_bytes(MAPPING, hub("https://a/x.png", "https://a/x.png", "https://b/y.png"), context, Fetch())
    assert made == {"files": [{"data": "aGk=", "mime": "image/png"}] * 3}
    assert fetched == ["https://a/x.png", "https://b/y.png"] and context.lost == ["turns[].role"]


async def test_a_url_that_may_not_be_fetched_is_refused(fetched: list[str]) -> None:
    with pytest.raises(BadRequest, match="may not be fetched"):
        await request_with_bytes(MAPPING, hub("https://private/x.png"), Context(), Fetch())


async def test_a_refusal_that_no_bytes_can_help_stands(fetched: list[str]) -> None:
    with pytest.raises(Refused, match="no bytes"):
        await request_with_bytes(MAPPING, hub(None), Context(), Fetch())
    assert fetched == []
