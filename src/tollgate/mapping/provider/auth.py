"""How calls to a provider are authorised beyond plain headers: checks the `auth:` of its file and fills it in."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tollgate.config.authorisation import AUTH_EITHER, AUTH_INSTEAD, AUTH_OPTIONS, TOKEN_READS, Authorisation
from tollgate.config.load import Node, Scalar, find, plain
from tollgate.config.model import Provider
from tollgate.mapping.context import new_nonce
from tollgate.mapping.provider.error_reading import HEADERS
from tollgate.mapping.provider.pieces import Pieces, Read, total
from tollgate.mapping.provider.signing import Signing
from tollgate.mapping.provider.token_request import PARTS, TokenRequest
from tollgate.mapping.scalars import is_literal
from tollgate.mapping.values import texts_of
from tollgate.wire import HEADER_NAME
from tollgate.wording import nearest_or_all, nearest_word


def compile_auth(
    pieces: Pieces, provider: Provider, signing: Signing | None, token_request: TokenRequest | None
) -> Authorisation | None:
    """The authorisation with its values filled in; None if there is none, or while the provider is off. `signing` is
    the compiled template of a provider of kind `signed`, `token_request` the one for token requests of other kinds.

    Mistakes in its options are noted in `pieces`.
    """
    auth = provider.auth
    kind = find(provider.document.root, ["auth", "kind"])
    known = isinstance(kind, Scalar) and kind.value in AUTH_OPTIONS
    if not known and (auth.options or isinstance(kind, Scalar)):
        return None  # which options there are, and what they may read, depends on the kind; that is reported
    _check_options(pieces, provider)
    _check_values(pieces, auth.options)
    if auth.kind == "signed":
        return Authorisation("signed", adds=signing.adds) if signing is not None and not provider.off else None
    templates = {
        name: pieces.template(
            node, pieces.names(*(("$", HEADERS, "now") if name in TOKEN_READS else ("vars", "secret")))
        )
        for name, node in auth.options.items()
        if name not in PARTS
    }
    reads = {
        name: _at_once(total(template)) for name in TOKEN_READS if (template := templates.pop(name, None)) is not None
    }
    if auth.kind == "none" or provider.off:
        return None
    values = {
        name: template(vars=pieces.variables, secret=pieces.secrets)
        for name, template in templates.items()
        if template is not None
    }
    for name, value in values.items():
        if isinstance(value, (list, dict)):
            found = "a list" if isinstance(value, list) else "a map"
            pieces.mistake(auth.options[name], f"found {found}, wanted text", f"auth.{name}")
    # as written: providers that read the response differently do not share a token
    values |= {name: str(plain(auth.options[name])) for name in reads}
    made = Authorisation(auth.kind, texts_of(values), reads=reads)
    if token_request is None:
        return made
    # the time and nonce are not part of the key: the token is the same whatever they are
    fixed = _with_parts(made, token_request(0, ""))
    if not token_request.fresh:
        return fixed
    return replace(fixed, anew=lambda: _with_parts(made, token_request(int(time.time()), new_nonce())))


def _at_once(read: Read) -> Read:
    """A reader of an answer that has just come: it knows the time."""
    return lambda body, **names: read(body, now=int(time.time()), **names)


def _with_parts(auth: Authorisation, parts: Mapping[str, Any]) -> Authorisation:
    """`auth` with the parts of its token request."""
    return replace(
        auth,
        form=texts_of(parts["form"]) if "form" in parts else None,
        body=json.dumps(parts["body"]) if "body" in parts else None,
        headers=texts_of(parts.get("headers")),
    )


def _check_options(pieces: Pieces, provider: Provider) -> None:
    """Note options that this kind of authorisation does not have, that exclude each other, or that it needs and
    lacks."""
    auth = provider.auth
    needed, optional = AUTH_OPTIONS[auth.kind]
    known = (*needed, *optional)
    for name, node in auth.options.items():
        if name not in known:
            pieces.mistake(
                node,
                f"`{auth.kind}` has no option `{name}`",
                "auth",
                nearest_or_all(name, known),
            )
    for name, others in AUTH_INSTEAD.items():
        for other in others if name in auth.options and name in known else ():
            if other in auth.options:
                pieces.mistake(
                    auth.options[other],
                    f"`{other}` has no effect beside `{name}`",
                    "auth",
                    f"write it into `{name}`" if name in ("form", "body") else "leave one of them out",
                )
    method = auth.options.get("method")
    if isinstance(method, Scalar) and method.value == "GET" and "body" in auth.options and "method" in known:
        hint = "write its fields into `form`: they are sent in the query"
        pieces.mistake(auth.options["body"], "a GET has no `body`", "auth", hint)
    spared = AUTH_INSTEAD["form"] if {"form", "body"} & auth.options.keys() else ()
    given = {name for name, node in auth.options.items() if not isinstance(node, Scalar) or node.value is not None}
    misspelt = {nearest_word(name, known) for name in auth.options if name not in known}
    missing = [name for name in needed if name not in {*given, *spared, *misspelt}]
    either = AUTH_EITHER.get(auth.kind, ())
    if either and given.isdisjoint(either):
        missing.append(" or ".join(either))
    if missing:
        pieces.mistake(find(provider.document.root, ["auth"]), f"`{auth.kind}` needs {', '.join(missing)}", "auth")


def _check_values(pieces: Pieces, options: Mapping[str, Node]) -> None:
    """Note options whose value cannot be right."""
    header = options.get("header")
    if isinstance(header, Scalar) and is_literal(header) and not HEADER_NAME.fullmatch(str(header.value)):
        pieces.mistake(header, f'found "{header.text}", wanted the name of a header', "auth.header")
    lives = options.get("expires_in")
    if isinstance(lives, Scalar) and isinstance(lives.value, str) and is_literal(lives):
        hint = f"such as $.{lives.text.lstrip('.')}"
        pieces.mistake(lives, f'found "{lives.text}", wanted where the seconds are', "auth.expires_in", hint)
