"""The request for a token: `form`, `body` and `headers` of a file's `auth:`, computed again for every request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tollgate.errors import UpstreamFailed
from tollgate.mapping.context import Context
from tollgate.mapping.failures import MappingFailure
from tollgate.mapping.mentions import mentions
from tollgate.mapping.pieces import Template
from tollgate.mapping.provider.pieces import Pieces

PARTS = ("form", "body", "headers")
"""Options of `auth:` that are parts of the request for a token."""


@dataclass(frozen=True, slots=True, eq=False)
class TokenRequest:
    """The compiled parts, with what they read besides the time and nonce."""

    _parts: Mapping[str, Template]
    _variables: Mapping[str, Any]
    _secrets: Mapping[str, str | None]
    fresh: bool
    """Whether any of them reads the time or a nonce, so that every request is different."""

    def __call__(self, now: int, nonce: str, secrets: Mapping[str, str | None] | None = None) -> dict[str, Any]:
        """The parts, by name, of a request made at this time with this nonce; an absent one is None.

        An example has `secrets` of its own. Raises `UpstreamFailed` if a part cannot be computed.
        """
        values: dict[str, Any] = {
            "vars": self._variables,
            "secret": secrets or self._secrets,
            "now": now,
            "nonce": nonce,
        }
        context = Context(now=now)
        context.nonce = nonce
        made = {}
        for name, template in self._parts.items():
            try:
                made[name] = template(None, context, **values)
            except MappingFailure as failure:
                raise UpstreamFailed(f"auth.{name}: {failure}") from None
        return made


def compile_token_request(pieces: Pieces) -> TokenRequest | None:
    """The parts that the provider's file sets for its token requests; None if it sets none. Mistakes are noted in
    `pieces`."""
    nodes = {name: node for name in PARTS if (node := pieces.provider.auth.options.get(name)) is not None}
    names = pieces.names("vars", "secret", "now", "nonce")
    parts = {name: template for name, node in nodes.items() if (template := pieces.template(node, names)) is not None}
    fresh = any(mentions(node, name, pieces.functions) for node in nodes.values() for name in ("now", "nonce"))
    if not parts:
        return None
    return TokenRequest(parts, pieces.variables, pieces.secrets, fresh)
