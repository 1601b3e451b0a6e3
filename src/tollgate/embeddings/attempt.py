"""One attempt at one provider: sends the request in as many calls as its batch limit requires, and joins the answers.

A native answer with float arrays is kept as received; any other becomes a list of vectors as JSON text.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tollgate import tokens
from tollgate.completions.attempt import Attempt
from tollgate.completions.exchange import Exchange
from tollgate.completions.judging import MAX_ANSWER_BYTES, AttemptFailed
from tollgate.completions.native import native_body
from tollgate.completions.sending import context_of
from tollgate.embeddings.answer import Embedded, hub_of, input_tokens, parsed
from tollgate.embeddings.request import EmbeddingRequest, Item
from tollgate.embeddings.vectors import as_native, packed_vector, split_vectors, vector_text
from tollgate.errors import UpstreamError, UpstreamFailed
from tollgate.mapping import Context, request_from_hub, request_to_hub
from tollgate.mapping.provider.sends import Sent
from tollgate.process.concurrency import few_at_once
from tollgate.routing import Offer
from tollgate.upstream import Answer, call_to, error_body
from tollgate.wire import declared_length

AT_ONCE = 8
"""Concurrent calls for one request: enough to hide a provider's latency, too few to hit its rate limit."""
_SMALL = 128 * 1024


async def embed_through(exchange: Exchange, request: EmbeddingRequest, offer: Offer) -> Embedded:
    """Embed all inputs through one offer. Raises `AttemptFailed`, or `BadRequest` if the request cannot be
    converted."""
    if offer.protocol != "embeddings" or offer.request_edits is not None:
        exchange.attempt.context = context_of(exchange, offer, _Context)
    calls = _Calls(exchange, request, offer)
    exchange.attempt.count_part = calls.count_sent
    joined, *others = parts = await calls.parts()
    for part in parts:
        if not part.tokens:  # not reported by the provider (SPEC embeddings)
            part.tokens, part.estimated = await count_items(part.items, offer.model.encoding), True
    joined.model = next((part.model for part in parts if part.model), offer.model.upstream)
    for part in others:
        joined.vectors += part.vectors
        joined.tokens += part.tokens
        joined.estimated = joined.estimated or part.estimated
        joined.rest = {}
    return joined


class _Context(Context):
    """The context of a request in which the fields that are replaced here do not count as lost: the provider's model
    name is sent instead, and the encoding of vectors is done here."""

    __slots__ = ()

    def lose(self, words: str) -> None:
        if words not in ("model", "encoding_format"):
            super().lose(words)


class _Calls:
    """The calls of one request to one offer."""

    def __init__(self, exchange: Exchange, request: EmbeddingRequest, offer: Offer) -> None:
        self._exchange = exchange
        self._request = request
        self._offer = offer.for_request(exchange.body)
        self._sent: list[Item] = []
        """The inputs that were sent."""
        self._native = offer.protocol == "embeddings"
        self._parsing = asyncio.Lock()
        """Held while an answer is parsed: only one at a time, because numbers take more memory than all the texts."""

    async def parts(self) -> list[Embedded]:
        """The answers in the order of the inputs: one, or several if the provider accepts fewer inputs per call. Then
        a few calls run at a time, and the first failure cancels the others."""
        items = self._request.items
        most = self._offer.batch or len(items)
        if len(items) <= most:
            return [await self._part(items)]
        pieces = (items[at : at + most] for at in range(0, len(items), most))
        return await few_at_once(AT_ONCE, self._part, pieces)

    async def count_sent(self) -> None:
        """Note the usage of a client that left: the tokens, counted locally, of the inputs that were sent."""
        if self._sent:
            tokens = await count_items(self._sent, self._offer.model.encoding)
            self._exchange.note_usage({"input": tokens}, estimated=True)

    async def _part(self, items: list[Item]) -> Embedded:
        """One call with these inputs, all or some of the request's."""
        answer, blocks = await self._called(items, *_body(self._exchange, self._request, self._offer, items))
        kept = as_native(blocks) if self._may_pass(answer) else None
        if kept is not None:
            hub = hub_of(self._offer, {"usage": kept.usage}) if kept.usage else {}
            part = Embedded(items, tokens=input_tokens(hub.get("usage")))
            if items is not self._request.items:
                part.vectors = split_vectors(kept) or []
                if len(part.vectors) == len(items):
                    return part
            elif kept.lists() > len(items):  # `data` is one list and each vector is one: none is missing (SPEC)
                part.native = kept
                return part
        async with self._parsing:
            raw = b"".join(blocks)
            blocks.clear()
            written = packed_vector if self._request.packed else vector_text
            return await parsed(self._offer, Embedded(items), raw, answer, written)

    async def _called(self, items: list[Item], body: bytes, sent: Sent | None) -> tuple[Answer, list[bytes]]:
        """Make one call. Returns the answer, and its body in blocks as received."""
        exchange, offer = self._exchange, self._offer
        url = offer.url(False, exchange.inbound.query if self._native else "")
        method, headers = "POST", offer.headers(exchange.inbound.headers)
        if sent is not None:
            method, url, headers = sent.method, sent.full_url(url), sent.all_headers(headers)
        call = call_to(offer, method, url, headers, body)
        began = time.perf_counter()
        try:
            try:
                answer = await exchange.services.client.open(call)
            finally:
                if call.sent:
                    exchange.attempt.called = True
                    self._sent += items
            async with answer:
                exchange.first_byte(began)
                read = time.perf_counter()
                blocks = await _blocks(answer)
                exchange.upstream_ms += (time.perf_counter() - read) * 1000
        except UpstreamError as error:
            raise AttemptFailed(error) from None
        return answer, blocks

    def _may_pass(self, answer: Answer) -> bool:
        """Whether the answer may be passed to the client unchanged."""
        offer = self._offer
        return (
            self._native
            and not self._request.packed
            and answer.status == 200
            and offer.response_edits is None
            and offer.usage.read is None
        )


async def _blocks(answer: Answer) -> list[bytes]:
    """The body in blocks as received, because joining a large one would take its memory twice."""
    if not 200 <= answer.status < 300:
        return [await error_body(answer)]
    length = declared_length(answer.headers)
    if length is not None and length < _SMALL:
        return [await answer.read(_SMALL)]
    blocks, size = [], 0
    async for block in answer.chunks():
        blocks.append(block)
        size += len(block)
        if size > MAX_ANSWER_BYTES:
            raise UpstreamFailed(f"the answer exceeds {MAX_ANSWER_BYTES} bytes", upstream_status=answer.status)
    return blocks


def _body(exchange: Exchange, request: EmbeddingRequest, offer: Offer, items: list[Item]) -> tuple[bytes, Sent | None]:
    """The body to send: the client's bytes if the formats are the same and nothing is edited or split, else a converted
    document. Also returns the parts of the request outside its body."""
    native, edits, attempt = offer.protocol == "embeddings", offer.request_edits, exchange.attempt
    may_pass = native and items is request.items and offer.encoding == "json" and offer.sends is None
    if edits is not None or not may_pass:
        document = _native(request, offer, items) if native else _converted(exchange, request, offer, items)
        edited = document
        if edits is not None:
            assert attempt.context is not None
            edited = edits(document, attempt.context)
        _note_terms(attempt, offer, edited)
        if edited is not document or not may_pass:
            return offer.request_parts(edited, stream=False)
    else:
        _note_terms(attempt, offer, request.body)
    return native_body(exchange.inbound.body, request.body, offer.model.upstream, ask_usage=False), None


def _note_terms(attempt: Attempt, offer: Offer, document: Any) -> None:
    """Note what of the finished request its price may depend on: the service tier, and words."""
    attempt.tier_sent = isinstance(document, dict) and document.get("service_tier") is not None
    attempt.words = offer.usage.words_of(document)


def _native(request: EmbeddingRequest, offer: Offer, items: list[Item]) -> dict[str, Any]:
    """The client's own document, with these inputs and the provider's name of the model."""
    return {**request.native(items), "model": offer.model.upstream}


def _converted(exchange: Exchange, request: EmbeddingRequest, offer: Offer, items: list[Item]) -> Any:
    """A document for the provider, in its own format. Raises `Refused`."""
    context = exchange.attempt.context
    assert context is not None
    hub = request_to_hub(exchange.client_format, {**request.body, "input": items}, context)
    hub["inputs"] = items
    return request_from_hub(offer.mapping, hub, context)


async def count_items(items: list[Item], encoding: str | None) -> int:
    """The tokens of inputs: texts are counted locally, and each token id is one token."""
    texts = [item for item in items if isinstance(item, str)]
    given = sum(len(item) for item in items if not isinstance(item, str))
    return given + await tokens.count(texts, encoding)
