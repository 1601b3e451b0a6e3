"""A signature defined by a provider file: `adds` of `auth: {kind: signed}`, a template over the call to be sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tollgate.config.authorisation import CALL_ADDITIONS, CALL_FIELDS
from tollgate.config.load import Map
from tollgate.config.model import Provider
from tollgate.errors import UpstreamFailed
from tollgate.mapping.failures import MappingFailure
from tollgate.mapping.pieces import Template
from tollgate.mapping.provider.pieces import Pieces
from tollgate.mapping.values import texts_of
from tollgate.wording import nearest_or_all


@dataclass(frozen=True, slots=True, eq=False)
class Signing:
    """The compiled template, with what it reads besides the call."""

    _template: Template
    _variables: Mapping[str, Any]
    _secrets: Mapping[str, str | None]

    def adds(
        self, call: Mapping[str, object], now: int, secrets: Mapping[str, str | None] | None = None
    ) -> dict[str, dict[str, str]]:
        """The `headers` and `query` of a call (`CALL_FIELDS`) sent at this time; absent ones are left out.

        An example has `secrets` of its own. Raises `UpstreamFailed` if the template cannot be computed.
        """
        try:
            made = self._template(call=call, now=now, vars=self._variables, secret=secrets or self._secrets)
        except MappingFailure as failure:
            raise UpstreamFailed(f"auth.adds: {failure}") from None
        return {
            part: texts_of(added)
            for part, added in (made.items() if isinstance(made, dict) else ())
            if isinstance(added, dict)
        }


def compile_signing(pieces: Pieces, provider: Provider) -> Signing | None:
    """The signature of a provider of kind `signed`; None if it has none, or with its mistakes noted in `pieces`."""
    node = provider.auth.options.get("adds") if provider.auth.kind == "signed" else None
    if node is None:
        return None
    if not isinstance(node, Map):
        hint = "what a call gets, such as {headers: {x-signature: ...}}"
        pieces.mistake(node, "`adds` is no object", "auth.adds", hint)
        return None
    for key, mark in node.keys.items():
        if not key.startswith("$") and key not in CALL_ADDITIONS:
            hint = nearest_or_all(key, CALL_ADDITIONS)
            pieces.mistake(mark, f"`{key}` cannot be added to a call", "auth.adds", hint)
    template = pieces.template(node, {"call": frozenset(CALL_FIELDS), **pieces.names("now", "vars", "secret")})
    return Signing(template, pieces.variables, pieces.secrets) if template is not None else None
