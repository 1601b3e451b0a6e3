"""`tollgate convert`: what a mapping makes of a request, an answer, a stream or an error; with `--explain`,
step by step.

Exit codes: 0 converted · 1 refused, failed or unreadable, the reason on stderr · 2 the command line itself is wrong.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from tollgate.cli.books import compiled, config_option, fail, print_json
from tollgate.errors import TollgateError

if TYPE_CHECKING:
    from tollgate.config.model import Gateway
    from tollgate.mapping import Context, Mapping
    from tollgate.mapping.explain import Explained
    from tollgate.mapping.provider.offer import Offer
    from tollgate.mapping.tracing import TraceContext


@dataclass(frozen=True, slots=True)
class Job:
    """What to convert, from what to what. `client` speaks to us, `upstream` is behind us;
    `offer` adds a provider's edits."""

    what: str
    client: Mapping
    upstream: Mapping
    offer: Offer | None
    context: TraceContext


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
@click.option("--answer", "what", flag_value="response", help="FILE is a whole answer.")
@click.option("--stream", "what", flag_value="stream", help="FILE is a stream of events.")
@click.option("--error", "what", flag_value="error", help="FILE is an error body.")
@click.option("--model", help="A model of the configuration: its facts, abilities and the provider's edits apply.")
@click.option("--provider", help="Which provider's route of --model; default: the first that fits.")
@click.option(
    "--can", multiple=True, metavar="NAME[=VALUE]", help="An ability the target declares; may be given several times."
)
@click.option("--strict", is_flag=True, help="Refuse instead of losing anything.")
@click.option("--explain", is_flag=True, help="Show every step: YAML line, output path, value, and what nobody read.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document with the result and what was lost.")
@config_option
def command(
    file: str,
    source: str,
    target: str | None,
    what: str | None,
    model: str | None,
    provider: str | None,
    can: tuple[str, ...],
    strict: bool,
    explain: bool,
    as_json: bool,
    path: Path | None,
) -> None:
    with click.open_file(file, "rb") as opened:
        raw = opened.read()
    if source == "images":
        from tollgate.cli.convert_images import convert_image

        convert_image(raw, file, model, provider, target, what == "response", path)
        return
    if provider is not None and model is None:
        raise click.UsageError("--provider chooses between the routes of --model, which is not given")
    job = _job(path, source, target, what or "request", model, provider, can, strict)
    texts = job.offer is not None and (job.offer.inner or job.offer.framing) == "sse-text"
    given = _edited(job, _read(raw, file, job.what, texts=texts))
    if explain:
        explained = _explained(job, given)
        if as_json:
            print_json(explained.plain())
        else:
            click.echo(explained.text())
        sys.exit(1 if explained.error else 0)
    result = _converted(job, given)
    if as_json:
        print_json({"result": result, "lost": job.context.lost})
        return
    _print(job, result)
    for words in job.context.lost:
        click.echo(f"lost: {words}", err=True)


def _job(
    path: Path | None,
    source: str,
    target: str | None,
    what: str,
    model: str | None,
    provider: str | None,
    can: tuple[str, ...],
    strict: bool,
) -> Job:
    from tollgate.mapping.tracing import TraceContext

    gateway, mappings, offer = _parts(
        path, model, provider, target if what == "request" else source, {source, target}, read_all=bool(can)
    )
    if target is None:
        if offer is None or offer.mapping is None or what != "request":
            raise click.UsageError("--to says what to convert to")
        target = offer.mapping.name
    one, two = _known(mappings, source), _known(mappings, target)
    client, upstream = (one, two) if what == "request" else (two, one)
    facts = dict(offer.model_facts) if offer else {"upstream": model or "upstream-model"}
    asked = dict(_ability(entry) for entry in can)
    _warn_of_unread(gateway, asked)
    abilities = {**(offer.can if offer else {}), **asked}
    return Job(what, client, upstream, offer, TraceContext(facts, abilities, strict=strict))


def _parts(
    path: Path | None,
    model: str | None,
    provider: str | None,
    protocol: str | None,
    spoken: Container[str | None],
    *,
    read_all: bool,
) -> tuple[Gateway, dict[str, Mapping | None], Offer | None]:
    """The configuration, its mappings (compiled are those in `spoken`), and the offer of `--model` that speaks
    `protocol`. Providers are read only for a model, the texts of other mappings only for `read_all`."""
    if model is not None:
        return _parts_of_model(path, model, provider, protocol)
    from tollgate.config.build import load_mappings
    from tollgate.mapping import compile_mapping
    from tollgate.mapping.plugins import load_plugins

    gateway = load_mappings(path, environ=os.environ, needed=None if read_all else spoken)
    plugins = load_plugins(gateway.plugins)
    mappings = {
        name: compile_mapping(document, plugins=plugins) if name in spoken else None
        for name, document in gateway.mappings.items()
    }
    return gateway, mappings, None


def _parts_of_model(
    path: Path | None, model: str, provider: str | None, protocol: str | None
) -> tuple[Gateway, dict[str, Mapping | None], Offer]:
    """As `_parts`, with everything compiled; ends the command where no offer of the model fits."""
    from tollgate.wording import did_you_mean

    runtime = compiled(path, everything=True)
    every = [
        offer
        for each in runtime.providers.values()
        for offers in each.offers.values()
        for offer in offers
        if offer.mapping is not None and model in (offer.model.id, *offer.model.aliases)
    ]
    if not every:
        offered = [name for each in runtime.providers.values() for name in each.offers]
        fail(f"no model {model} ({did_you_mean(model, offered) or 'tollgate models --routes lists them'})")
    fitting = [
        offer for offer in every if provider in (None, offer.provider) and protocol in (None, offer.mapping.name)
    ]
    if not fitting:
        wanted = f"{f' at {provider}' if provider else ''}{f' through {protocol}' if protocol else ''}"
        there = ", ".join(sorted({f"{offer.mapping.name} at {offer.provider}" for offer in every}))
        fail(f"{model} is not served{wanted}, but through {there}")
    return runtime.gateway, dict(runtime.mappings), min(fitting, key=lambda offer: offer.model.priority)


def _known(mappings: dict[str, Mapping | None], name: str) -> Mapping:
    from tollgate.wording import did_you_mean

    found = mappings.get(name)
    if found is None:
        hint = did_you_mean(name, mappings) or f"there are {', '.join(sorted(mappings))}"
        raise click.UsageError(f"no mapping is called {name} ({hint})")
    return found


def _warn_of_unread(gateway: Gateway, abilities: Iterable[str]) -> None:
    from tollgate.config.can_words import words_read
    from tollgate.wording import did_you_mean

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


def _read(raw: bytes, name: str, what: str, *, texts: bool = False) -> Any:
    """What the file `name` holds: the events of a stream, the object or the list that an answer is, else one JSON
    object; ends the command when it is something else."""
    try:
        given = orjson.loads(raw) if what != "stream" else _events(raw, texts=texts)
    except orjson.JSONDecodeError as error:
        fail(f"{name}: found no JSON: {error}")
    if what != "stream" and not isinstance(given, (dict, list) if what == "response" else dict):
        fail(
            f"{name}: found JSON that is no object, wanted the body of "
            f"{'a request' if what == 'request' else 'an answer' if what == 'response' else 'an error'}"
        )
    return given


def _events(raw: bytes, *, texts: bool = False) -> list[Any]:
    """An event stream, a JSON array, or JSON lines -> events, each with its name where the stream gives one."""
    from tollgate import sse

    stripped = raw.strip()
    if stripped.startswith(b"[") and not texts:
        return orjson.loads(stripped)  # type: ignore[no-any-return]
    if stripped.startswith(b"{") and not texts:
        return [orjson.loads(line) for line in stripped.splitlines() if line.strip()]
    decoder = sse.Decoder()
    found = [*decoder.feed(raw), *decoder.finish()]
    return [_event(event.name, event.data, texts=texts) for event in found if event.data]


def _event(name: str | None, data: bytes, *, texts: bool) -> Any:
    from tollgate.mapping import as_written

    if data == b"[DONE]":
        return "[DONE]"
    event = data.decode("utf-8", "replace") if texts else orjson.loads(data)
    return as_written(event, name)


def _converted(job: Job, given: Any) -> Any:
    from tollgate import mapping as engine

    offer, context = job.offer, job.context
    marks = offer.in_text if offer else None
    if job.what == "request":
        made = engine.convert_request(job.client, job.upstream, given, context).body
        return offer.request_edits(made, context) if offer and offer.request_edits else made
    if job.what == "error":
        return engine.convert_error(job.upstream, job.client, given)
    if job.what == "response":
        return engine.convert_response(job.upstream, job.client, given, context, marks).body
    converter = engine.StreamConverter(job.upstream, job.client, context, in_text=marks)
    said = [out for event in given for out in converter.feed(*engine.event_and_name(event))]
    said += converter.finish()
    if converter.failure is not None:
        raise converter.failure
    return [{"event": name, "data": data} if name else {"data": data} for name, data in said]


def _edited(job: Job, given: Any) -> Any:
    """What the upstream said, as the edits of its provider leave it."""
    offer = job.offer
    if job.what == "stream" and offer and (offer.stream_edits or offer.unwrap):
        return [_edited_event(offer, job.context, event) for event in given]
    if job.what == "response" and offer and offer.response_edits:
        return offer.response_edits(given, job.context)
    return given


def _edited_event(offer: Offer, context: Context, written: Any) -> Any:
    from tollgate.mapping import as_written, event_and_name

    event, name = event_and_name(written)
    if offer.unwrap is not None:
        event = offer.unwrap(event)
    if offer.stream_edits is not None and isinstance(event, dict):
        event = offer.stream_edits(event, context)
    return as_written(event, name)


def _explained(job: Job, given: Any) -> Explained:
    from tollgate.mapping import explain

    offer, context = job.offer, job.context
    marks = offer.in_text if offer else None
    if job.what == "request":
        explained = explain.explain_whole(job.what, job.client, job.upstream, given, context)
        if offer and offer.request_edits and not explained.error:
            try:
                explained.result = offer.request_edits(explained.result, context)
            except TollgateError as error:
                explained.error = str(error)
            explained.lost = list(context.lost)
            explained.stages.append(explain.Stage(f"edits of {offer.provider}", "providers", said=[explained.result]))
        return explained
    if job.what == "stream":
        return explain.explain_stream(job.upstream, job.client, given, context, marks)
    in_text = marks if job.what == "response" else None
    return explain.explain_whole(job.what, job.upstream, job.client, given, context, in_text)


def _print(job: Job, result: Any) -> None:
    if job.what != "stream":
        print_json(result)
        return
    for out in result:
        if "event" in out:
            click.echo(f"event: {out['event']}")
        data = out["data"]
        click.echo(f"data: {data if isinstance(data, str) else orjson.dumps(data).decode()}\n")
