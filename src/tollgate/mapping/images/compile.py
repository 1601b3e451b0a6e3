"""Compiles a provider's `images:` block and its image models into offers. All mistakes in them are found here, at
start."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from tollgate.config.fields import Fields
from tollgate.config.image_schema import GIVE_UP, IMAGE_STEPS, UPLOAD_STEPS
from tollgate.config.load import Map, Scalar, lookup
from tollgate.config.settings import Timeouts
from tollgate.mapping.http_calls import EVERY, HTTP, CallPieces, CallRead
from tollgate.mapping.images.offer import ImageOffer, Step
from tollgate.mapping.images.price_reading import read_price
from tollgate.mapping.images.schema import InputSchema
from tollgate.mapping.mentions import mentions

if TYPE_CHECKING:
    from tollgate.config.authorisation import Authorisation
    from tollgate.config.model import Model, Provider, StepEncoding, StepFraming
    from tollgate.mapping.provider.errors import ErrorRules
    from tollgate.mapping.provider.pieces import Pieces
    from tollgate.wire import GenerationStatus


_OF_THE_JOB = ("id", "status", "images", "error", "uuid")
"""Facts about the state or the identity of a job."""
_OF_THE_MODEL = frozenset({"id", "upstream", "name"})
"""The fields of `$model`."""
_OF_A_CALL = frozenset({"input", "model"})
"""The fields of `$` before there is an answer."""
_READ_BY = {name: IMAGE_STEPS[:place] for place, name in enumerate(IMAGE_STEPS)} | {"poll": IMAGE_STEPS[:4]}
"""The steps whose results each step reads as `$job`; a poll also reads those of the polls before it."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a provider's image calls share with its other calls: error rules, headers with secrets, timeouts,
    authorisation, and the query parameters for a model with these facts."""

    errors: ErrorRules
    headers: Callable[[], dict[str, str]]
    timeouts: Timeouts
    auth: Authorisation | None
    query: Callable[[Mapping[str, Any]], Mapping[str, str]]


def compile_images(pieces: Pieces, around: Surroundings) -> list[ImageOffer]:
    """The offers of a provider's image models; empty if it has none. Mistakes are noted in `pieces`."""
    provider = pieces.provider
    if provider.images is None:
        return []
    job_vars = None if provider.lacks_variables else frozenset(provider.variables)
    names = {"$": None, "input": None, "job": None, "model": _OF_THE_MODEL, "vars": job_vars, "http": HTTP}
    job_pieces = CallPieces(pieces, {**names, "job": _job_facts(provider, IMAGE_STEPS)})
    step_pieces = {}
    for name in IMAGE_STEPS:
        read = {**names, "job": _job_facts(provider, _READ_BY[name])}
        call = {"$": _OF_A_CALL, **{key: known for key, known in read.items() if key not in ("$", "http")}}
        step_pieces[name] = StepPieces(job_pieces.reading(call), job_pieces.reading(read))
    shared = Steps(step_pieces, provider.images)
    offers = [
        _offer(job_pieces, step_pieces, pieces, model, shared, around)
        for model in provider.models
        if model.type == "image"
    ]
    return [offer for offer in offers if offer is not None]


@dataclass(frozen=True, slots=True)
class StepPieces:
    """What compiles the templates of one step: those of its call, and its `result`, which also reads the answer."""

    call: CallPieces
    result: CallPieces


def _job_facts(provider: Provider, steps: Sequence[str]) -> frozenset[str] | None:
    """The fields that the results of these steps of a provider have, with those of its models' own steps: these are the
    fields of `$job`. None if they are not known, or if a step was removed as wrong."""
    names = {"uuid", "images"}
    for holder in (provider.images, *(model.image for model in provider.models)):
        if holder is None:
            continue
        for name in steps:
            step = holder.get(name)
            if holder.incomplete or isinstance(step, Map) and step.incomplete:
                return None
            result = lookup(step, "result")
            if isinstance(result, Map) and not any(key.startswith("$") for key in result.entries.keys() - {"$let"}):
                names |= result.entries.keys()
            elif result is not None:
                return None
    return frozenset(names)


class Steps:
    """The compiled calls of a provider, or of one model with calls of its own."""

    def __init__(self, pieces: Mapping[str, StepPieces], node: Map, path: str = "images") -> None:
        self.node = node
        self.steps: dict[str, Step | None] = {
            name: _step(pieces[name], name, child, f"{path}.{name}")
            if isinstance(child := node.get(name), Map)
            else None
            for name in IMAGE_STEPS
        }
        at = Fields(node)
        self.words = {
            word: cast("GenerationStatus", ours.value)
            for word, ours in at.nodes("statuses").items()
            if isinstance(ours, Scalar)
        }
        poll = Fields(at.get("poll"))
        self.every = poll.numbers("every", EVERY)
        self.give_up = poll.number("give_up", at.number("give_up", GIVE_UP))

    def with_own(self, pieces: Mapping[str, StepPieces], own: Map | None, path: str) -> Steps:
        """These steps, with a model's own keys in place of the provider's."""
        changed = {name: child for name in IMAGE_STEPS if own is not None and isinstance(child := own.get(name), Map)}
        if not changed:
            return self
        entries = dict(self.node.entries)
        for name, child in changed.items():
            base = entries.get(name)
            if isinstance(base, Map):
                whole = {**base.entries, **child.entries}
                entries[name] = Map(
                    whole, {**base.keys, **child.keys}, child.mark, incomplete=base.incomplete or child.incomplete
                )
            elif "call" in child.entries:
                entries[name] = child
            elif not self.node.incomplete:
                message = f"found what differs from `images.{name}`, but this provider has no such step"
                pieces[name].call.mistake(child, message, f"{path}.{name}", "a step of the model's own needs a `call`")
        return Steps(pieces, Map(entries, self.node.keys, self.node.mark), path)


def _step(of_step: StepPieces, name: str, node: Map, path: str) -> Step | None:
    pieces, at = of_step.call, Fields(node)
    if node.incomplete and "call" not in node.entries:
        return None  # it was removed as wrong, and reported
    called = pieces.call(node.get("call"), node.get("hosts"), f"{path}.call", incomplete=node.incomplete)
    written = node.get("result")
    answer = of_step.result
    result = _facts(answer, node, f"{path}.result") if name in UPLOAD_STEPS else answer.template(written, answer=True)
    body = pieces.template(node.get("body"))
    headers = {key.lower(): pieces.template(value, secret=True) for key, value in at.nodes("headers").items()}
    if called is None or result is None:
        return None
    method, url, hosts = called
    if body is not None and method == "GET":
        pieces.mistake(node.entries["body"], "a GET has no body", f"{path}.body", "write POST")
    return Step(
        name,  # type: ignore[arg-type]
        method,
        url,
        result,
        {key: read for key, read in headers.items() if read is not None},
        body,
        cast("StepEncoding", at.text("encoding", "json")),
        hosts,
        cast("StepFraming | None", at.text("framing", None)),
        frozenset(at.integers("answers")),
        at.boolean("auth", True),
        pieces.condition(node.get("when")),
    )


def _facts(pieces: CallPieces, node: Map, path: str) -> CallRead:
    """The `result` of a call before `submit`, which is optional: what later steps read as `$job.<name>`. Notes a
    mistake if it reads what does not exist yet."""
    result = node.get("result")
    for key, mark in result.keys.items() if isinstance(result, Map) else ():
        if key in _OF_THE_JOB:
            pieces.mistake(
                mark,
                f"`{key}` is set by `submit` and later steps: there is no job yet",
                path,
                "another name, such as `picture`, read as $job.picture",
            )
    return pieces.template(result, answer=True) or (lambda values: None)


def _offer(
    job_pieces: CallPieces,
    step_pieces: Mapping[str, StepPieces],
    pieces: Pieces,
    model: Model,
    shared: Steps,
    around: Surroundings,
) -> ImageOffer | None:
    provider, path = pieces.provider, f"models.{model.id}"
    steps = shared.with_own(step_pieces, model.image, path)
    price = read_price(job_pieces, model.image, path, model)
    submit = steps.steps["submit"]
    if submit is None or price is None:
        return None
    poll_node = steps.node.get("poll")
    facts = {"id": model.id, "upstream": model.upstream, "name": model.name}
    return ImageOffer(
        provider=provider.name,
        model=model,
        facts=facts,
        schema=InputSchema(model.input_schema or {"type": "object"}),
        price=price,
        submit=submit,
        poll=steps.steps["poll"],
        fetch=steps.steps["fetch"],
        before=tuple(step for name in UPLOAD_STEPS if (step := steps.steps[name]) is not None),
        words=steps.words,
        needs_id=isinstance(poll_node, Map) and _reads_id(poll_node),
        every=steps.every,
        give_up=steps.give_up,
        headers=around.headers,
        query=around.query(facts),
        variables=pieces.variables,
        errors=around.errors,
        auth=around.auth,
        timeouts=replace(around.timeouts, **model.timeouts),
        connection=provider.connection,
    )


def _reads_id(poll: Map) -> bool:
    """Whether the call of a poll step needs the provider's id of the job."""
    return any(mentions(node, "job.id") for name in ("call", "headers", "body") if (node := poll.get(name)))
