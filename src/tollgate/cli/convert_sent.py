"""How `tollgate convert` shows a request that is more than a POST of its body (`prepare:`, `send:` of an endpoint)."""

from __future__ import annotations

from typing import Any, NamedTuple, TypedDict

from tollgate.mapping.provider.offer import Offer


class Call(TypedDict):
    """A call before the request; its answer gives a value of the request."""

    call: str
    body: Any


class SentRequest(NamedTuple):
    """The body of a request (None: no body), and what is sent besides it."""

    body: Any
    before: list[Call]
    call: str
    headers: dict[str, str]

    def plain(self) -> dict[str, Any]:
        """All but the body, as plain values for scripts."""
        return {"before": self.before, "call": self.call, "headers": self.headers}

    def lines(self) -> list[str]:
        """All but the body, as text for people."""
        return [
            *(f"before: {each['call']}" for each in self.before),
            f"call: {self.call}",
            *(f"header: {name}: {value}" for name, value in self.headers.items()),
        ]


def sent_request(offer: Offer, document: Any, *, stream: bool) -> SentRequest:
    """What is sent for a finished request. Nothing is called: values that a call gives stay as they are. The headers
    are those of `send:`. Raises `UnfitRequest` if a part cannot be computed."""
    before: list[Call] = []
    for prepare in offer.prepares:
        for holder, key in prepare.places(document):
            method, url, body = prepare.call(document, holder[key], offer.model_facts)
            before.append(Call(call=f"{method} {url}", body=body))
    address = offer.url(stream)
    if offer.sends is None:
        return SentRequest(document, before, f"POST {address}", {})
    sent = offer.sends.of(document, offer.model_facts, stream=stream)
    return SentRequest(sent.body, before, f"{sent.method} {sent.full_url(address)}", dict(sent.headers))
