"""`tollgate convert`: converts a request, an answer, a stream or an error with a mapping; `--explain` shows each step.

Exit codes: 0 converted · 1 refused, failed or unreadable, the reason on stderr · 2 the command line itself is wrong.
"""

from __future__ import annotations

import sys
from typing import Any

import click
import orjson

from tollgate import mapping as engine
from tollgate.cli.books import config_option
from tollgate.cli.convert_file import read_file
from tollgate.cli.convert_images import convert_image
from tollgate.cli.convert_job import Job, Options, job_of
from tollgate.cli.convert_sent import SentRequest, sent_request
from tollgate.errors import TollgateError
from tollgate.mapping import Context, as_written, event_and_name
from tollgate.mapping.explain import Explained, Stage, explain_stream, explain_whole
from tollgate.mapping.provider.offer import Offer


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
    job = job_of(options)
    framing = (job.offer.inner or job.offer.framing) if job.offer is not None else None
    given = _edited(job, read_file(raw, file, job.what, framing, job.source.stream_names))
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
