"""Runs the examples in a provider file.

`of:` is request, response or stream (edits over `given`), answer (a whole answer, or a list of events, in the hub,
after its edits and `in_text`), errors (`given: {status, headers, body}`), usage, poll, discover, auth (what `adds`
makes of `given: {call, now}`) or images.... `with:` may name a `model` (canonical id, or facts for `$model`, of which
an `id` selects the policies), a `protocol` (an endpoint), `can`, `request`, `headers`, `inlined` (what is behind
URLs), for auth `secret`, for poll `http` and `vars`. A request example whose `given.model` is an upstream name is run
as that model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from functools import partial
from typing import Any

from tollgate.config.load import Problem
from tollgate.config.model import Model
from tollgate.errors import ConfigErrors
from tollgate.mapping.context import Context
from tollgate.mapping.convert import response_to_hub
from tollgate.mapping.edits import EditList
from tollgate.mapping.example import NONCE, NOW, Example, Form, checked, run_each
from tollgate.mapping.failures import clean
from tollgate.mapping.images import IMAGE_EXAMPLES, IMAGE_EXAMPLES_BRING, image_example
from tollgate.mapping.model_facts import facts_of
from tollgate.mapping.provider.compile import CompiledProvider
from tollgate.mapping.provider.endpoint import CompiledEndpoint
from tollgate.mapping.provider.polling import JobAnswer
from tollgate.mapping.provider.scopes import KINDS
from tollgate.mapping.streams.whole import as_written, event_and_name, hub_of_stream
from tollgate.wording import did_you_mean

_BRING = ("model", "protocol", "can", "request", "headers", "inlined")
_FORM = Form(
    ("name", "of", "given", "expect", "refused", "lost", "with", "model", "about"),
    (*KINDS, "answer", "errors", "usage", "poll", "discover", "auth", *IMAGE_EXAMPLES),
    _BRING,
    {
        "poll": (*_BRING, "http", "vars", "last"),
        "auth": (*_BRING, "secret"),
        **dict.fromkeys(IMAGE_EXAMPLES, IMAGE_EXAMPLES_BRING),
    },
    bare=IMAGE_EXAMPLES,
    scalars=("model", "protocol", "last"),
)
_VERDICT = {"verdict": "kind", "as": "status"}
"""Names in the file for fields of a verdict."""


def run_provider_examples(compiled: CompiledProvider) -> list[Problem]:
    """Run every example of a provider file; each one that fails is a problem that shows the actual result."""
    provider = compiled.config
    make = partial(_made, compiled)
    return run_each(provider.document, provider.examples, _FORM, lambda example: checked(example, make))


def _made(compiled: CompiledProvider, example: Example) -> Any:
    if example.of in IMAGE_EXAMPLES:
        return image_example(example, compiled.images)
    return _comparable(example.of, _got(compiled, example), example.fields.get("expect"))


def _got(compiled: CompiledProvider, example: Example) -> Any:
    named = example.brought.get("protocol")
    if named and named not in compiled.endpoints:
        raise LookupError(f"this provider does not speak `{named}` (it speaks {', '.join(compiled.endpoints)})")
    endpoint = compiled.endpoints.get(named or next(iter(compiled.endpoints), ""))
    return _MAKERS.get(example.of, _edited_or_read)(compiled, endpoint, example)


def _judged(compiled: CompiledProvider, endpoint: CompiledEndpoint | None, example: Example) -> dict[str, Any] | None:
    rules, given = endpoint.errors if endpoint else compiled.errors, example.given
    if not isinstance(given, dict) or not {"status", "headers", "body"} & given.keys():
        given = {"body": given}  # a 200, or an event of a stream
    verdict = rules.judge(given.get("status", 200), _headers(given), given.get("body"), chunk=bool(given.get("chunk")))
    return asdict(verdict) if verdict is not None else None


def _usage(compiled: CompiledProvider, endpoint: CompiledEndpoint | None, example: Example) -> Any:
    if endpoint is None or endpoint.usage.template is None:
        raise LookupError("this provider has no `usage.read`")
    return endpoint.usage.template(example.given, answer_headers=_headers(example.brought))


def _polled(compiled: CompiledProvider, endpoint: CompiledEndpoint | None, example: Example) -> Any:
    if endpoint is None or endpoint.polling is None:
        raise LookupError("this endpoint has no `poll`")
    more = example.brought
    http = more.get("http") or {"status": 200, "headers": {}}
    _, facts = _model(compiled, endpoint, example)
    return endpoint.polling.describe(JobAnswer(example.given, http), facts, more.get("vars"), more.get("last"))


def _authorised(compiled: CompiledProvider, endpoint: CompiledEndpoint | None, example: Example) -> Any:
    """What a signature adds to the given call, or the request for a token."""
    given, secrets = example.given if isinstance(example.given, dict) else {}, example.brought.get("secret")
    now = given.get("now") or NOW
    if compiled.signing is not None:
        return compiled.signing.adds(given.get("call") or {}, now, secrets)
    if compiled.token_request is None:
        raise LookupError("this provider has no `auth: {kind: signed}`, and no words of its own for a token's request")
    request = compiled.token_request(now, given.get("nonce") or NONCE, secrets)
    return {name: value for name, value in request.items() if value}


def _discovered(
    compiled: CompiledProvider, endpoint: CompiledEndpoint | None, example: Example
) -> list[dict[str, Any]]:
    if compiled.discovery is None:
        raise LookupError("this provider has no `discover`, or its address is incomplete")
    models, problems = compiled.discovery.read(example.given)
    if problems:
        raise ConfigErrors(problems)
    return [_model_fields(model) for model in models]


def _edited_or_read(compiled: CompiledProvider, endpoint: CompiledEndpoint | None, example: Example) -> Any:
    """A document after its edits, or the result of reading an answer."""
    context, more, config = example.context, example.brought, endpoint.config if endpoint else None
    model, context.model = _model(compiled, endpoint, example)
    context.can = {**compiled.scopes.can(config, model), **(more.get("can") or {})}
    context.request = more.get("request")
    context.inlined = more.get("inlined") or {}
    context.set_headers(_headers(more))
    if example.of == "answer":
        return _answer(compiled, endpoint, model, example.given, context)
    edits = compiled.scopes.edits(example.of, config, model)
    if endpoint is not None and example.of == "request":
        edits = endpoint.sparing(edits)
    return example.given if edits is None else edits(example.given, context)


def _answer(
    compiled: CompiledProvider, endpoint: CompiledEndpoint | None, model: Model | None, given: Any, context: Context
) -> dict[str, Any]:
    """An upstream's answer in the hub, before it is converted to a client's format."""
    if endpoint is None or endpoint.mapping is None:
        raise LookupError("this provider speaks no format with a mapping")
    config, mapping = endpoint.config, endpoint.mapping
    marks = compiled.scopes.in_text(config, model)
    edits = compiled.scopes.edits("stream" if isinstance(given, list) else "response", config, model)
    if not isinstance(given, list):
        return response_to_hub(mapping, given if edits is None else edits(given, context), context, marks)
    events = given if edits is None else [_edited(edits, event, context) for event in given]
    with clean((mapping.file,), request=False):
        return hub_of_stream(mapping, events, context, marks)


def _edited(edits: EditList, written: Any, context: Context) -> Any:
    event, name = event_and_name(written)
    return as_written(edits(event, context), name)


def _model(
    compiled: CompiledProvider, endpoint: CompiledEndpoint | None, example: Example
) -> tuple[Model | None, dict[str, Any]]:
    """The model that an example is run as, and what `$model` reads: that model's facts, or those in the example."""
    models, given = compiled.config.models, example.given
    named = example.brought.get("model", example.fields.get("model"))
    found: Model | None = None
    if isinstance(named, str):
        found = next((model for model in models if model.id == named), None)
        if found is None:
            raise LookupError(
                f"no model `{named}` in this file {did_you_mean(named, [model.id for model in models])}".rstrip()
            )
    elif named is None and example.of == "request" and isinstance(given, dict):
        found = next((model for model in models if given.get("model") in (model.upstream, model.id)), None)
    if found is None:
        facts = named if isinstance(named, dict) else {}
        return _not_in_the_file(compiled, facts) if "id" in facts else None, facts
    return found, facts_of(found, compiled.config.name, endpoint.config.mapping if endpoint else "")


def _not_in_the_file(compiled: CompiledProvider, facts: Mapping[str, Any]) -> Model:
    """A model as `discover` might list it: the policies of its id apply."""
    name = str(facts["id"])
    return Model(name, compiled.config.name, facts.get("upstream") or name, compiled.config.document.root.mark)


def _headers(given: Mapping[str, Any]) -> dict[str, str]:
    return {str(name).lower(): str(value) for name, value in (given.get("headers") or {}).items()}


def _comparable(of: str, got: Any, wanted: Any) -> Any:
    """Of verdicts, answers and models only the fields that the example has are compared."""
    if of == "errors" and isinstance(got, dict) and isinstance(wanted, dict):
        return {name: got.get(_VERDICT.get(name, name)) for name in wanted}
    if of in ("answer", "poll") and isinstance(got, dict) and isinstance(wanted, dict):
        return {name: got.get(name) for name in wanted}
    if of == "discover" and isinstance(got, list) and isinstance(wanted, list) and len(got) == len(wanted):
        return [
            {name: _plainly(model.get(name)) for name in want} if isinstance(want, dict) else model
            for model, want in zip(got, wanted, strict=True)
        ]
    return got


def _model_fields(model: Model) -> dict[str, Any]:
    price = model.price
    return {
        **{field.name: getattr(model, field.name) for field in fields(model)},
        "price": {**price.written, "unit": price.unit, "currency": price.currency} if price is not None else None,
        "modalities": {"input": list(model.input_modalities), "output": list(model.output_modalities)},
    }


def _plainly(value: Any) -> Any:
    return [_plainly(item) for item in value] if isinstance(value, (tuple, list)) else value


_MAKERS: Mapping[str, Callable[[CompiledProvider, CompiledEndpoint | None, Example], Any]] = {
    "errors": _judged,
    "usage": _usage,
    "poll": _polled,
    "auth": _authorised,
    "discover": _discovered,
}
"""By `of`; all others are `_edited_or_read`."""
