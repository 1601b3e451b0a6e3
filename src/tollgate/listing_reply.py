"""The reply with a catalog: gzipped if the client accepts that, 304 if the client already has this version."""

from __future__ import annotations

from collections.abc import Mapping

from tollgate.catalog import Listing
from tollgate.services import Headers, Reply

_LISTING_HEADERS: Headers = [
    (b"cache-control", b"private, max-age=60"),
    (b"vary", b"authorization, x-api-key, accept-encoding"),
]


def listing_reply(headers: Mapping[str, str], listing: Listing) -> Reply:
    """The reply to a request with these headers."""
    packed = _takes_gzip(headers.get("accept-encoding", ""))
    about: Headers = [(b"etag", listing.packed_etag if packed else listing.etag), *_LISTING_HEADERS]
    if _matches(headers.get("if-none-match", ""), listing.etag, listing.packed_etag):
        return Reply(304, about)
    if packed:
        return Reply(200, [*about, (b"content-encoding", b"gzip")], listing.packed)
    return Reply(200, about, listing.body)


def _matches(if_none_match: str, *tags: bytes) -> bool:
    """Whether `If-None-Match` matches one of these tags (RFC 9110, 13.1.2). The comparison is weak, because proxies
    that compress answers (nginx) add `W/`; `*` matches any tag."""
    given = (tag.strip().removeprefix("W/").encode() for tag in if_none_match.split(","))
    return if_none_match.strip() == "*" or any(tag in tags for tag in given)


def _takes_gzip(accepted: str) -> bool:
    """Whether `Accept-Encoding` lists gzip with a weight above 0 (RFC 9110, 12.5.3)."""
    for each in accepted.split(","):
        coding, _, weight = each.partition(";")
        if coding.strip().lower() == "gzip":
            return weight.replace(" ", "").lower() not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
