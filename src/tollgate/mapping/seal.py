"""Sealed tokens: a foreign provider's opaque reasoning token, wrapped so that it can travel in another protocol's slot.

`tg1.` and base64url of a JSON list [origin, token, id], or [origin, token, id, text] where the token signs a text that
a client might leave behind. The prefix is versioned. Nothing in an unsealed token is trusted: it came from a client, so
only these texts are taken out, and a mapping uses the token only towards the origin that minted it.

There are agents that take signatures for bytes in base64: what is none, as this, they send back in base64.
"""

from __future__ import annotations

import base64

import orjson

from tollgate.mapping.values import Object, Text

PREFIX = "tg1."
IN_BASE64 = "dGcxL"
"""How the prefix begins in base64."""
_MAX_NAME = 256
"""Longest origin or id; tokens themselves may be long."""


def seal(part: Object, text: Text = None) -> str | None:
    """A part's token, origin and id as one opaque text for another protocol's slot, with a text that the token signs if
    one is given; absent when it has no token."""
    if type(part) is not dict:
        return None
    token, origin, name = part.get("token"), part.get("origin"), part.get("id")
    if type(token) is not str or not token:
        return None
    content = [origin if type(origin) is str else None, token, name if type(name) is str else None]
    if type(text) is str and text:
        content.append(text)
    try:
        packed = orjson.dumps(content)
    except TypeError:  # lone surrogates: not text that any JSON body can carry
        return None
    return PREFIX + base64.urlsafe_b64encode(packed).decode("ascii").rstrip("=")


def unseal(text: Text) -> dict[str, object] | None:
    """A sealed token as `token`, `origin`, `id` and `text`; absent for any other text."""
    if type(text) is not str:
        return None
    try:
        if text.startswith(IN_BASE64):
            text = base64.b64decode(text, validate=True).decode("ascii")
        if not text.startswith(PREFIX):
            return None
        packed = text[len(PREFIX) :]
        content = orjson.loads(base64.b64decode(packed + "=" * (-len(packed) % 4), altchars=b"-_", validate=True))
    except ValueError:
        return None
    if type(content) is not list or len(content) not in (3, 4):
        return None
    origin, token, name, *text = content
    if type(token) is not str or not token:
        return None
    opened: dict[str, object] = {"token": token}
    if type(origin) is str and len(origin) <= _MAX_NAME:
        opened["origin"] = origin
    if type(name) is str and len(name) <= _MAX_NAME:
        opened["id"] = name
    if text and type(text[0]) is str:
        opened["text"] = text[0]
    return opened
