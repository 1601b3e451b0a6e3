"""`tollgate convert`: converts a request, an answer, a stream or an error with a mapping; `--explain` shows each step.

Exit codes: 0 converted · 1 refused, failed or unreadable, the reason on stderr · 2 the command line itself is wrong.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import orjson

from tollgate import mapping as engine
from tollgate import sse
from tollgate.cli.books import compiled, config_option, fail, json_text
from tollgate.cli.convert_images import convert_image
from tollgate.cli.convert_sent import SentRequest, sent_request
from tollgate.config.build import load_mappings
from tollgate.config.can_words import words_read
from tollgate.config.model import TEXT_FRAMINGS, Framing, Gateway
from tollgate.errors import TollgateError
from tollgate.mapping import CompiledMapping, Context, as_written, compile_mapping, event_and_name
from tollgate.mapping.explain import Explained, Stage, explain_stream, explain_whole
from tollgate.mapping.in_text import InText
from tollgate.mapping.plugins import load_plugins
from tollgate.mapping.provider.offer import Offer
from tollgate.mapping.tracing import TraceContext
from tollgate.runtime import Runtime
from tollgate.wording import did_you_mean


@dataclass(frozen=True, slots=True)
class Options:
    """The options that choose what to convert, and how."""

    path: Path | None
    source: str
    target: str | None
    what: str | None
    model: str | None
    provider: str | None
    can: tuple[str, ...]
    strict: bool


@dataclass(frozen=True, slots=True)
class Job:
    """What kind of document to convert (`request`, `response`, `stream` or `error`), from which format to which.
    `offer` adds a provider's edits and marks."""

    what: str
    source: CompiledMapping
    target: CompiledMapping
    offer: Offer | None
    context: TraceContext

    @property
    def marks(self) -> InText | None:
        """The provider's marks in the text of its answers, instead of the format's own."""
        return self.offer.in_text if self.offer and self.what in ("response", "stream") else None

    def print(self, text: str, *, err: bool = False) -> None:
        """Print without our secrets: a provider's edits may write them."""
        click.echo(self._redacted(text), err=err)

    def print_json(self, value: object) -> None:
        """Print as `books.print_json`, without our secrets."""
        click.echo(self._redacted(json_text(value)).encode())

    def _redacted(self, text: str) -> str:
        return self.offer.errors.redact(text) if self.offer else text


@click.command(
    help="""Convert a request, answer or stream from one protocol to another.

FILE holds the body (JSON), or for --stream the events (an event stream, a JSON array or JSON lines); - reads standard
input. A request goes from the client's protocol to the upstream's; an answer, a stream and an error come back, so for
them --from is the upstream's protocol and --to the client's.

--from images shows what an image model's file makes of an input, or with --answer of a provider's answer to the step
that --to names (submit, poll, fetch)."""
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--from",
    "source",
    metavar="PROTOCOL",
    required=True,
    help="What FILE is written in: the name of a mapping, such as chat or messages.",
)
@click.option("--to", "target", metavar="PROTOCOL", help="What to make of it.")
@click.option("--answer", "kinds", flag_value="response", multiple=True, help="FILE is a whole answer.")
@click.option("--stream", "kinds", flag_value="stream", multiple=True, help="FILE is a stream of events.")
@click.option("--error", "kinds", flag_value="error", multiple=True, help="FILE is an error body.")
@click.option("--model", help="A model of the configuration: its facts, abilities and the provider's edits apply.")
@click.option("--provider", help="Which provider's route of --model; default: the first that fits.")
@click.option(
    "--can", multiple=True, metavar="NAME[=VALUE]", help="An ability the target declares; may be given several times."
)
@click.option("--strict", is_flag=True, help="Refuse instead of losing anything.")
@click.option("--explain", is_flag=True, help="Show every step: YAML line, output path, value, and what nobody read.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document with the result and what was lost.")
@config_option
def command(file: str, kinds: tuple[str, ...], explain: bool, as_json: bool, **chosen: Any) -> None:
    if len(set(kinds)) > 1:
        raise click.UsageError("found more than one of --answer, --stream and --error, wanted what FILE is")
    options = Options(**chosen, what=next(iter(kinds), None))
    with click.open_file(file, "rb") as opened:
        raw = opened.read()
    if options.source == "images":
        if explain or options.strict or options.can or options.what in ("stream", "error"):
            raise click.UsageError("--from images takes none of --stream, --error, --can, --strict and --explain")
        convert_image(raw, file, options)
        return
    if options.provider is not None and options.model is None:
        raise click.UsageError("--provider chooses between the routes of --model, which is not given")
    job = _job(options)
    framing = (job.offer.inner or job.offer.framing) if job.offer is not None else None
    given = _edited(job, _read(raw, file, job.what, framing, job.source.stream_names))
    if explain:
        explained = _explained(job, given)
        if as_json:
            job.print_json(explained.plain())
        else:
            job.print(explained.text())
        sys.exit(1 if explained.error else 0)
    result = _converted(job, given)
    sent = _sent(job, given, result)
    if sent is not None:
        result = sent.body
    if as_json:
        job.print_json({"result": result, "lost": job.context.lost, **(sent.plain() if sent else {})})
        return
    _print(job, result)
    for words in [*(sent.lines() if sent else ()), *(f"lost: {each}" for each in job.context.lost)]:
        job.print(words, err=True)


def _job(options: Options) -> Job:
    source, target, what, offer = options.source, options.target, options.what or "request", None
    if options.model is None:
        gateway, mappings = _mappings(options.path, {source, target}, read_all=bool(options.can))
    else:
        runtime = compiled(options.path, everything=True)
        gateway, mappings = runtime.gateway, runtime.mappings
        protocol = target if what == "request" else source
        offer = _offer(runtime, options.model, options.provider, protocol=protocol)
    if target is None:
        if offer is None or what != "request":
            raise click.UsageError("--to says what to convert to")
        target = offer.mapping.name
    facts = dict(offer.model_facts) if offer else {"upstream": "upstream-model"}
    declared = dict(_ability(entry) for entry in options.can)
    _warn_of_unread(gateway, declared)
    context = TraceContext(facts, {**(offer.can if offer else {}), **declared}, strict=options.strict)
    return Job(what, _known(mappings, source), _known(mappings, target), offer, context)


def _mappings(
    path: Path | None, needed: Container[str | None], *, read_all: bool
) -> tuple[Gateway, Mapping[str, CompiledMapping | None]]:
    """The configuration without its providers, and its mappings by name: those that are `needed` are compiled, the
    others None. With `read_all` the gateway has the texts of the others too."""
    gateway = load_mappings(path, environ=os.environ, needed=None if read_all else needed)
    plugins = load_plugins(gateway.plugins)
    mappings = {
        name: compile_mapping(document, plugins=plugins) if name in needed else None
        for name, document in gateway.mappings.items()
    }
    return gateway, mappings


def _offer(runtime: Runtime, model: str, provider: str | None, *, protocol: str | None) -> Offer:
    """The model's offer that is tried first, of those at `provider` and through `protocol` where these are given. Ends
    the command where there is none."""
    by_model = [entry for each in runtime.providers.values() for entry in each.offers.items()]
    offers = [offer for _, found in by_model for offer in found if model in (offer.model.id, *offer.model.aliases)]
    if not offers:
        off = [each for each in runtime.gateway.providers.values() if each.off]
        theirs = [each for each in off if any(model in (one.id, *one.aliases) for one in each.models)]
        if theirs:
            why = ", ".join(f"{each.name} ({each.off})" for each in theirs)
            fail(f"{model} is offered only by providers that are off: {why}; to convert, any value will do")
        known = [name for name, _ in by_model]
        fail(f"no model {model} ({did_you_mean(model, known) or 'tollgate models --routes lists them'})")
    fitting = [
        offer for offer in offers if provider in (None, offer.provider) and protocol in (None, offer.mapping.name)
    ]
    if not fitting:
        wanted = f"{f' at {provider}' if provider else ''}{f' through {protocol}' if protocol else ''}"
        there = ", ".join(sorted({f"{offer.mapping.name} at {offer.provider}" for offer in offers}))
        fail(f"{model} is not served{wanted}, but through {there}")
    return min(fitting, key=lambda offer: offer.model.priority)


def _known(mappings: Mapping[str, CompiledMapping | None], name: str) -> CompiledMapping:
    found = mappings.get(name)
    if found is None:
        hint = did_you_mean(name, mappings) or f"there are {', '.join(sorted(mappings))}"
        raise click.UsageError(f"no mapping is called {name} ({hint})")
    return found


def _warn_of_unread(gateway: Gateway, abilities: Iterable[str]) -> None:
    known = words_read(gateway)
    for word in abilities:
        if word not in known:
            hint = did_you_mean(word, known)
            click.echo(f"--can {word}: no mapping reads it{f' ({hint})' if hint else ''}", err=True)


def _ability(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    if not value:
        return name, True
    try:
        return name, orjson.loads(value)
    except orjson.JSONDecodeError:
        return name, value


def _read(raw: bytes, name: str, what: str, framing: Framing | None, dataless: frozenset[str]) -> Any:
    """The content of the file `name`: the events of a stream, or one JSON object (for an answer also a list). Ends the
    command when it is something else. `framing`: that of the stream, where it is known; `dataless`: the names of events
    that may have no data."""
    try:
        if what == "stream":
            return _events(raw, framing, dataless) or fail(
                f"{name}: found no events, wanted an event stream, a JSON array or JSON lines"
            )
        given = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        fail(f"{name}: found no JSON: {error}")
    if not isinstance(given, (dict, list) if what == "response" else dict):
        wanted = {"request": "a request", "response": "an answer", "error": "an error"}[what]
        fail(f"{name}: found JSON that is no object, wanted the body of {wanted}")
    return given


def _events(raw: bytes, framing: Framing | None, dataless: frozenset[str]) -> list[Any]:
    """An event stream, a JSON array, JSON lines or plain text -> events, each with its name where the stream gives
    one."""
    if framing in ("lines", "text"):
        text = raw.decode("utf-8", "replace")
        return [line for line in text.splitlines() if line] if framing == "lines" else [text]
    texts = framing in TEXT_FRAMINGS
    stripped = raw.strip()
    if stripped.startswith(b"[") and not texts:
        return orjson.loads(stripped)  # type: ignore[no-any-return]
    if stripped.startswith(b"{") and not texts:
        return [orjson.loads(line) for line in stripped.splitlines() if line.strip()]
    decoder = sse.Decoder()
    found = [*decoder.feed(raw), *decoder.finish()]
    return [_event(event.name, event.data, texts=texts) for event in found if event.data or event.name in dataless]


def _event(name: str | None, data: bytes, *, texts: bool) -> Any:
    if data == b"[DONE]":
        return "[DONE]"
    event = data.decode("utf-8", "replace") if texts else orjson.loads(data or b"{}")
    return as_written(event, name)


def _converted(job: Job, given: Any) -> Any:
    source, target, offer, context = job.source, job.target, job.offer, job.context
    if job.what == "request":
        made = engine.convert_request(source, target, given, context).body
        return offer.request_edits(made, context) if offer and offer.request_edits else made
    if job.what == "error":
        return engine.convert_error(source, target, given)
    if job.what == "response" and source.hub and "response.to_hub" in source.sections:
        # The client's answer to an embeddings request is not written by a mapping: what was read is shown.
        context.lenient = True
        with source.clean_answer:
            return source.sections["response.to_hub"](given, context) or {}
    if job.what == "response":
        return engine.convert_response(source, target, given, context, job.marks).body
    converter = engine.StreamConverter(source, target, context, in_text=job.marks)
    sent = [out for event in given for out in converter.feed(*engine.event_and_name(event))]
    sent += converter.finish()
    if converter.failure is not None:
        raise converter.failure
    return [{"event": name, "data": data} if name else {"data": data} for name, data in sent]


def _sent(job: Job, given: Any, made: Any) -> SentRequest | None:
    """How a request is sent, where that is more than a POST of the converted body; else None."""
    if job.what != "request" or job.offer is None or not job.offer.shaped:
        return None
    return sent_request(job.offer, made, stream=given.get("stream") is True)


def _edited(job: Job, given: Any) -> Any:
    """An upstream's answer or events after the edits of its provider; anything else is as it was."""
    offer = job.offer
    if job.what == "stream" and offer and (offer.stream_edits or offer.unwrap):
        return [_edited_event(offer, job.context, event) for event in given]
    if job.what == "response" and offer and offer.response_edits:
        return offer.response_edits(given, job.context)
    return given


def _edited_event(offer: Offer, context: Context, written: Any) -> Any:
    event, name = event_and_name(written)
    if offer.unwrap is not None:
        event = offer.unwrap(event)
    if offer.stream_edits is not None and isinstance(event, dict):
        event = offer.stream_edits(event, context)
    return as_written(event, name)


def _explained(job: Job, given: Any) -> Explained:
    offer, context = job.offer, job.context
    if job.what == "stream":
        return explain_stream(job.source, job.target, given, context, job.marks)
    explained = explain_whole(job.what, job.source, job.target, given, context, job.marks)
    if job.what == "request" and offer and not explained.error:
        try:
            if offer.request_edits:
                explained.result = offer.request_edits(explained.result, context)
                explained.stages.append(Stage(f"edits of {offer.provider}", "providers", said=[explained.result]))
            sent = _sent(job, given, explained.result)
            if sent is not None:
                explained.result = sent.body
                said = [*sent.lines(), sent.body]
                explained.stages.append(Stage(f"sent to {offer.provider}", "providers", said=said))
        except TollgateError as error:
            explained.error = str(error)
        explained.lost = list(context.lost)
    return explained


def _print(job: Job, result: Any) -> None:
    if job.what != "stream":
        job.print_json(result)
        return
    for out in result:
        if "event" in out:
            job.print(f"event: {out['event']}")
        data = out["data"]
        job.print(f"data: {data if isinstance(data, str) else orjson.dumps(data).decode()}\n")
