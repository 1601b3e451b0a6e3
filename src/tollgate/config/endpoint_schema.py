"""The parts of a provider file's schema about endpoints: `speaks`, one endpoint, and polling for its answer
(`poll`)."""

from __future__ import annotations

from typing import get_args

from tollgate.config import image_schema
from tollgate.config.model import BodyEncoding, Framing, InnerFraming
from tollgate.config.schema import (
    PROTOCOL_NAME,
    Schema,
    address,
    can,
    condition,
    edits,
    headers,
    in_text,
    integer,
    listed,
    made,
    one_or_many,
    parameters,
    record,
    table,
    template,
    text,
)

POLL_BODIES = {"call": "body", "fetch": "fetch_body", "stream": "stream_body", "cancel": "cancel_body"}
"""The calls of `poll`, each a method and an address, or a path that is appended to the provider's `url`; and the key
of the body of each."""

POLL_WANTED = {
    "while": "An expression over the latest answer (`$`, `$http`): true as long as it is unfinished.",
    "call": "Method and address of asking again, as `GET https://api.example/v1/jobs/{{ $.id }}`.",
}
"""The keys that `poll` requires; `stream` alone is also enough."""

_NAME = {"pattern": PROTOCOL_NAME, "wanted": "a protocol name such as chat"}


def speaks() -> Schema:
    """One protocol by its name, or several, each with its path or with its whole endpoint."""
    return {
        "description": "The protocols, each with its path.",
        "wanted": "a protocol name, or a map of protocol to path",
        "anyOf": [
            text("The one protocol; `url` is its complete address.", **_NAME),
            table(
                "Protocol to path, or to everything its endpoint says.",
                {
                    "description": "A path appended to `url`, or a map.",
                    "wanted": "a path starting with /, or a map",
                    "anyOf": [
                        text("A path appended to `url`."),
                        {"$ref": "#/$defs/endpoint"},
                    ],
                },
                minProperties=1,
                propertyNames=_NAME,
            ),
        ],
    }


def endpoint() -> Schema:
    return record(
        "One protocol's endpoint.",
        {
            "path": text(
                "Appended to the provider's `url`.",
                pattern="^/",
                wanted="a path starting with / (an address of its own is `url:`)",
            ),
            "models": one_or_many(
                text("A glob over canonical or upstream ids.", minLength=1),
                "Only these models are served here; with a ! in front: all but these.",
            ),
            "url": address("The complete address instead of `url` and `path`."),
            "stream_url": address("The address of streamed calls when it differs; a path is appended to `url`."),
            "mapping": text(
                "The mapping file when it is not the protocol's own.",
                pattern=PROTOCOL_NAME,
                wanted="the name of a mapping",
            ),
            "framing": text(
                "How events are cut out of a stream. The events of `sse-text`, `lines` and `text` are plain text; "
                "those of `text` are the pieces of the body as they arrive. `length-prefixed`: each event follows its "
                "length in four bytes; `enveloped`: a byte of flags and such a length.",
                enum=list(get_args(Framing)),
                default="sse",
            ),
            "inner": text(
                "How events are cut out of what the frames carry, where that is a stream of its own, cut anywhere.",
                enum=list(get_args(InnerFraming)),
            ),
            "inner_of": text(
                "An expression over a frame's event: the piece of the inner stream in it. Without it, the frame's data "
                "is the piece."
            ),
            "unwrap": text("An expression: the event inside a frame."),
            "headers": headers("Headers of this endpoint."),
            "query": parameters("Query parameters of this endpoint."),
            **edits("this endpoint"),
            "can": can(),
            "in_text": in_text(),
            "usage": {"$ref": "#/$defs/usage"},
            "errors": {"$ref": "#/$defs/errors"},
            "batch": integer("Embeddings: most inputs in one call.", minimum=1, maximum=100_000),
            "encoding": text("How requests are written.", enum=list(get_args(BodyEncoding)), default="json"),
            "prepare": listed("Calls before a request, such as uploads whose ids it refers to.", _prepare()),
            "send": _send(),
            "poll": _poll(),
            "count_tokens": address("Where tokens are counted: a path or an address."),
        },
    )


def _prepare() -> Schema:
    return record(
        "A call for the value at each place of the finished request; what it returns takes that place.",
        {
            "at": text(
                "The places: a path of fields, [*] and `..`, as `$.messages[*].picture`.",
                pattern=r"^\$",
                wanted="a path of fields, [*] and .. ($.messages[*].picture, or $..upload)",
            ),
            "call": template(
                "Method and address, or path. It and `body` read the value at the place (`$old`) and the request (`$`)."
            ),
            "encoding": text("How the body is written.", enum=list(get_args(BodyEncoding)), default="json"),
            "body": template("The body of the call."),
            "value": template("What takes the place, read from the call's answer (`$`, `$http`)."),
        },
        required=["at", "call", "value"],
    )


def _send() -> Schema:
    return record(
        "What of the finished request (`$`, after all edits) stands outside its body.",
        {
            "method": text("The method.", enum=["GET", "POST", "PUT", "PATCH"], default="POST"),
            "path": text("Appended to the address; holes are escaped.", pattern="^/", wanted="a path starting with /"),
            "query": parameters("Query parameters."),
            "headers": headers("Headers."),
            "body": template("What is sent as the body, instead of the whole request."),
        },
    )


def _poll() -> Schema:
    return record(
        "Asking again for an answer that is not there at once. In the addresses `$` is the first answer, and `$http` "
        "its `status` and `headers`.",
        {
            "while": condition(POLL_WANTED["while"]),
            "call": template(POLL_WANTED["call"]),
            "fetch": template(
                "Method and address of the answer, where that which ends the waiting (here `$last`) does not hold it."
            ),
            "stream": template(
                "Method and address of the stream, where the first answer only says where that is; without `while` and "
                "`call` whole answers are put together from it."
            ),
            "keep": made(
                "Fields made of the answer that ends the waiting (`$`, `$http`) and of the first one (`$first`), which "
                "the fetched answer lacks, or without `fetch` the last one."
            ),
            "cancel": template("Method and address that end the job, when nobody waits for it any more."),
            **{
                key: template(f"The JSON body of `{call}`, a template that reads what its address reads.")
                for call, key in POLL_BODIES.items()
            },
            "hosts": image_schema.hosts(),
            "every": image_schema.pauses(),
        },
    )
