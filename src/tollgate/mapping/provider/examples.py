"""The examples inside a provider file, run: they are the tests of the file,
and documentation that cannot be out of date.

`of:` is request, response or stream (edits over `given`), answer (what a whole answer, or a list of events, is in the
hub, its edits and `in_text` applied), errors (`given: {status, headers, body}`), usage, poll, discover, auth (what
`adds` makes of `given: {call, now}`) or images.... `with:` may name a `model` (canonical id, or facts for `$model`), a
`protocol` (an endpoint), `can`, `request`, `headers`, for auth `secret`, for poll `http` and `vars`. A request example
whose `given.model` is an upstream name is run as that model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from tollgate.config.load import Map, Node, Problem, plain
from tollgate.config.model import Model
from tollgate.errors import ConfigErrors, TollgateError
from tollgate.mapping.context import Context
from tollgate.mapping.convert import response_to_hub
from tollgate.mapping.edits import EditList
from tollgate.mapping.examples import NONCE, NOW, RUN_ID
from tollgate.mapping.failures import Refused, clean
from tollgate.mapping.images import is_image_example, run_examples
from tollgate.mapping.provider.compile import KINDS, CompiledProvider, Spoken
from tollgate.mapping.provider.model_facts import facts_of
from tollgate.mapping.provider.polling import Told
from tollgate.mapping.streaming import as_written, event_and_name, hub_of_stream
from tollgate.wording import clipped, nearest

KINDS_OF_EXAMPLE = (*KINDS, "answer", "errors", "usage", "poll", "discover", "auth")
_KEYS = ("name", "of", "given", "expect", "refused", "lost", "with", "model", "about")
_WITH = ("model", "protocol", "can", "request", "headers")
_WITH_OF = {"poll": (*_WITH, "http", "vars", "last"), "auth": (*_WITH, "secret")}
"""What examples of these kinds may bring; the others, `_WITH`."""
_VERDICT = {"verdict": "kind", "as": "status"}
"""Names of the file for fields of a verdict."""


def run_provider_examples(compiled: CompiledProvider) -> list[Problem]:
    """Run every example of a provider file; each one that does not hold is a problem showing what came out instead."""
    provider = compiled.config
    problems: list[Problem] = []
    for place, node in enumerate(provider.examples.items if provider.examples else ()):
        if isinstance(node, Map):
            problems.extend(_run(compiled, node, f"examples[{place}]"))
    if provider.images is not None:
        problems.extend(run_examples(provider, compiled.images))
    return problems


def _run(compiled: CompiledProvider, node: Map, path: str) -> list[Problem]:
    document = compiled.config.document
    problems = [document.problem(mark, f"unknown key `{key}`", path=path, hint=nearest(key, _KEYS))
                for key, mark in node.keys.items() if key not in _KEYS]
    of_node = node.get("of")
    of = plain(of_node) if of_node is not None else None
    if is_image_example(of):
        return problems
    more, known = node.get("with"), _WITH_OF.get(str(of), _WITH)
    for key, mark in more.keys.items() if isinstance(more, Map) else ():
        if key not in known:
            hint = nearest(key, known) or f"one of {', '.join(known)}"
            problems.append(document.problem(mark, f"unknown key `{key}`", path=f"{path}.with", hint=hint))
    if of not in KINDS_OF_EXAMPLE:
        kinds = ", ".join((*KINDS_OF_EXAMPLE, "images.submit.body, ..."))
        return [
            *problems,
            document.problem(
                of_node or node,
                f"an example is `of` one of {kinds}",
                path=path,
                hint=nearest(str(of), KINDS_OF_EXAMPLE),
            ),
        ]
    if "given" not in node.entries or not {"expect", "refused"} & node.entries.keys():
        return [*problems, document.problem(node, "an example has `given`, and `expect` or `refused`", path=path)]
    example: dict[str, Any] = plain(node, floats=True)  # type: ignore[assignment]
    name = f"example `{example.get('name') or of}`"
    context = Context(run_id=RUN_ID, now=NOW)
    context.nonce = NONCE
    at: Node = node.get("expect") or node.get("refused") or node
    try:
        got = _got(compiled, str(of), example, context)
    except LookupError as error:
        return [*problems, document.problem(node.get("with") or node, f"{name}: {error.args[0]}", path=path)]
    except Refused as refused:
        if example.get("refused") in (refused.message, True):
            return problems
        return [*problems, document.problem(at, f"{name} was refused: {refused.message}", path=path)]
    except (TollgateError, ConfigErrors) as error:
        return [*problems, document.problem(at, f"{name} failed: {error}", path=path)]
    if "refused" in example:
        return [*problems, document.problem(at, f"{name} was not refused; it gave {_shown(got)}", path=path)]
    wanted = example["expect"]
    if not _same(of, got, wanted):
        problems.append(
            document.problem(at, f"{name} differs\n{_difference(wanted, _comparable(of, got, wanted))}", path=path)
        )
    if "lost" in example and context.lost != example["lost"]:
        problems.append(document.problem(node.get("lost") or node, f"{name}: lost {context.lost}", path=path))
    return problems


def _got(compiled: CompiledProvider, of: str, example: Mapping[str, Any], context: Context) -> Any:
    more = example.get("with") or {}
    given = example["given"]
    endpoint = more.get("protocol") or next(iter(compiled.spoken), "")
    if more.get("protocol") and endpoint not in compiled.spoken:
        raise LookupError(f"this provider does not speak `{endpoint}` (it speaks {', '.join(compiled.spoken)})")
    spoken = compiled.spoken.get(endpoint)
    if of == "errors":
        return _judged(spoken.errors if spoken else compiled.errors, given)
    if of == "usage":
        if spoken is None or spoken.read_usage is None:
            raise LookupError("this provider has no `usage.read`")
        headers = {str(name).lower(): str(value) for name, value in (more.get("headers") or {}).items()}
        return spoken.read_usage(given, answer_headers=headers)
    if of == "poll":
        if spoken is None or spoken.polling is None:
            raise LookupError("this endpoint has no `poll`")
        http = more.get("http") or {"status": 200, "headers": {}}
        model = _model(compiled, more.get("model", example.get("model")), given, of)
        named = facts_of(model, compiled.name, spoken.endpoint.mapping) if model is not None else more.get("model")
        return spoken.polling.describe(Told(given, http), named or {}, more.get("vars"), more.get("last"))
    if of == "auth":
        return _authorised(compiled, given if isinstance(given, dict) else {}, more.get("secret"))
    if of == "discover":
        if compiled.discovery is None:
            raise LookupError("this provider has no `discover`, or its address is incomplete")
        models, problems = compiled.discovery.read(given)
        if problems:
            raise ConfigErrors(problems)
        return [_model_facts(model) for model in models]
    model = _model(compiled, more.get("model", example.get("model")), given, of)
    facts = (
        facts_of(model, compiled.name, spoken.endpoint.mapping if spoken else "")
        if model is not None
        else more.get("model") or {}
    )
    context.model, context.can, context.request = (
        facts,
        {**compiled.can(spoken.endpoint if spoken else None, model), **(more.get("can") or {})},
        more.get("request"),
    )
    context.hear({str(name).lower(): str(value) for name, value in (more.get("headers") or {}).items()})
    if of == "answer":
        return _answer(compiled, spoken, model, given, context)
    edits = compiled.edits(of, endpoint, model)
    return given if edits is None else edits(given, context)


def _authorised(compiled: CompiledProvider, given: Mapping[str, Any], secrets: Mapping[str, str] | None) -> Any:
    """What a signature adds to the given call, or what a token is asked for with."""
    now = given.get("now") or NOW
    if compiled.signing is not None:
        return compiled.signing.adds(given.get("call") or {}, now, secrets)
    if compiled.token_request is None:
        raise LookupError("this provider has no `auth: {kind: signed}`, and no words of its own for a token's request")
    asked = compiled.token_request(now, given.get("nonce") or NONCE, secrets)
    return {name: value for name, value in asked.items() if value}


def _answer(
    compiled: CompiledProvider, spoken: Spoken | None, model: Model | None, given: Any, context: Context
) -> dict[str, Any]:
    """What an upstream's answer comes to in the hub, before a client's format is made of it."""
    if spoken is None or spoken.mapping is None:
        raise LookupError("this provider speaks no format with a mapping")
    endpoint, mapping = spoken.endpoint, spoken.mapping
    marks = compiled.in_text(endpoint, model)
    edits = compiled.edits("stream" if isinstance(given, list) else "response", endpoint.protocol, model)
    if not isinstance(given, list):
        return response_to_hub(mapping, given if edits is None else edits(given, context), context, marks)
    events = given if edits is None else [_edited(edits, event, context) for event in given]
    with clean((mapping.file,), request=False):
        return hub_of_stream(mapping, events, context, marks)


def _edited(edits: EditList, written: Any, context: Context) -> Any:
    event, name = event_and_name(written)
    return as_written(edits(event, context), name)


def _model(compiled: CompiledProvider, named: Any, given: Any, of: str) -> Model | None:
    models = compiled.config.models
    if isinstance(named, str):
        found = next((model for model in models if model.id == named), None)
        if found is None:
            raise LookupError(
                f"no model `{named}` in this file {nearest(named, [model.id for model in models])}".rstrip()
            )
        return found
    if named is None and of == "request" and isinstance(given, dict):
        return next((model for model in models if given.get("model") in (model.upstream, model.id)), None)
    return None


def _judged(rules: Any, given: Any) -> dict[str, Any] | None:
    if not isinstance(given, dict) or not {"status", "headers", "body"} & given.keys():
        given = {"body": given}  # a 200, or an event of a stream
    headers = {str(name).lower(): str(value) for name, value in (given.get("headers") or {}).items()}
    verdict = rules.judge(given.get("status", 200), headers, given.get("body"), chunk=bool(given.get("chunk")))
    return asdict(verdict) if verdict is not None else None


def _comparable(of: Any, got: Any, wanted: Any) -> Any:
    """For verdicts, answers and models only what the example speaks of is compared."""
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


def _model_facts(model: Model) -> dict[str, Any]:
    price = model.price
    return {
        **{field.name: getattr(model, field.name) for field in fields(model)},
        "price": {**price.written, "unit": price.unit, "currency": price.currency} if price is not None else None,
        "modalities": {"input": list(model.input_modalities), "output": list(model.output_modalities)},
    }


def _plainly(value: Any) -> Any:
    return [_plainly(item) for item in value] if isinstance(value, (tuple, list)) else value


def _same(of: Any, got: Any, wanted: Any) -> bool:
    return bool(_comparable(of, got, wanted) == wanted)


def _shown(value: Any) -> str:
    return clipped(json.dumps(value, ensure_ascii=False, default=str, sort_keys=True), 400)


def _difference(wanted: Any, got: Any) -> str:
    """Lines that differ: `-` is what the example expects, `+` what came out."""
    before, after = (
        json.dumps(value, indent=1, ensure_ascii=False, default=str, sort_keys=True).splitlines()
        for value in (wanted, got)
    )
    missing = [f"      - {line.strip()}" for line in before if line not in after]
    extra = [f"      + {line.strip()}" for line in after if line not in before]
    return "\n".join([*missing[:12], *extra[:12]]) or f"      + {_shown(got)}"
