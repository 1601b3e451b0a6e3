"""The engine's names (`$model`, `$can`, `$request`, and those of streams): what they are, and where they can be
read.

Generated code reads them from its arguments: `D` is the document (`$`), `C` the `Context` of the conversion, `R` the
`Run` of a stream, `P` the `Part` that is sent, `V` the text that has just arrived.
"""

from __future__ import annotations

from collections.abc import Mapping

from tollgate.config.load import Mark, Node
from tollgate.mapping import hub
from tollgate.mapping.model_facts import MODEL_FIELDS
from tollgate.mapping.reads import Reads
from tollgate.mapping.scope import Field, Unit, Var

ENGINE: dict[str, Var] = {
    "model": Var("model", "C.model", present=True, kind="object", known=MODEL_FIELDS),
    "can": Var("can", "C.can", present=True, kind="object"),
    "request": Var("request", "C.request", known=hub.REQUEST_FIELDS),
    "asked": Var("asked", "C.asked"),
    "now": Var("now", "C.now", present=True),
    "nonce": Var("nonce", "C.nonce", present=True, kind="text"),
}
"""Readable everywhere, also in functions."""


def document_var(*reads: Reads) -> Var:
    """`$`, the document that a generated function is called with; what is read of it is recorded in `reads`."""
    return Var("", "D", reads)


OWN_RESPONSE = frozenset({"id", "model", "created", "parts", "stop", "stop_text", "usage", "error"})
"""Fields of a hub response that a stream manages itself; `start` may set the others."""
OWN_PART = frozenset({"id", "name", "text", "args", "token", "origin"})

RUN = Var(
    "run",
    "",
    present=True,
    fields={
        "id": Field("R.id", True, "text", "the answer's id: the upstream's, or one we made"),
        "model": Field("R.model", False, "text", "the upstream's name for the model"),
        "created": Field("R.created", True, "number", "Unix seconds: the upstream's, or now"),
        "stop": Field("R.stop", False, "text", "why it stopped, once it did"),
        "failed": Field("(R.error is not None)", True, "bool", "whether it was broken off; parts are closed then too"),
        "stop_text": Field("R.stop_text", False, "text", "the stop sequence that was met"),
        "usage": Field("R.usage", True, "object", "token counts so far", hub.USAGE_FIELDS),
        "estimate": Field(
            "C.estimate", False, "any", "token counts estimated before the upstream reports any", hub.USAGE_FIELDS
        ),
        **{
            key: Field(f"R.more.get({key!r})", False, "any", "as in the upstream's start")
            for key in sorted(hub.RESPONSE_FIELDS - OWN_RESPONSE)
        },
    },
)
PART = Var(
    "part",
    "P.whole()",
    present=True,
    fields={
        "index": Field("P.index", True, "number", "place among all parts, from 0"),
        "nth": Field("P.nth", True, "number", "place among parts of its kind, from 0"),
        "item": Field("P.item", False, "text", "the name made by `name:`"),
        "kind": Field("P.kind", True, "text", "text, reasoning, tool_call, ..."),
        "id": Field("P.id", False, "text", "the part's id, such as a tool call's"),
        "name": Field("P.name", False, "text", "the tool's name"),
        "text": Field("P.text", False, "text", "all of its text so far"),
        "told": Field("P.told", True, "bool", "whether some of its text was sent before"),
        "args": Field("P.text", False, "text", "all of a tool call's arguments so far, as JSON text"),
        "token": Field("P.token", False, "text", "opaque state that clients must send back"),
        "origin": Field("P.origin", False, "text", "who made the token"),
        **{key: Field(f"P.more.get({key!r})") for key in hub.PART_FIELDS if key not in OWN_PART},
    },
)
EVENT = Var("event", "R.event")
DELTA = Var("delta", "V", present=True)
HEADERS = Var("headers", "C.headers", present=True, kind="object")
FIELDS = Var("fields", "P.fresh", present=True, kind="object", known=frozenset(hub.PART_FIELDS) - OWN_PART)
SEQ = Var("seq", "R.seq", present=True)
WHOLE = Var("whole", "R.whole()", present=True, kind="object", known=hub.RESPONSE_FIELDS)
SEEN = Var("seen", "R.seen", present=True, kind="object")
ERROR = Var("error", "R.error", known=hub.ERROR_FIELDS)

CALLERS_SECRETS = frozenset(
    {"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"}
)
"""Headers that no file may read, because they hold the caller's secrets."""


def readable_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a request that `$headers` may read."""
    return {name: value for name, value in headers.items() if name not in CALLERS_SECRETS}


ABOUT: dict[str, str] = {
    "model": "the requested model: upstream, id, max_output, context, ...",
    "can": "what the target declares it accepts (`can:` of its provider file)",
    "request": "the hub request, also while its answer is converted",
    "asked": "the client's own request, in its own protocol, while its answer is made",
    "now": "the current time in Unix seconds",
    "nonce": "32 hexadecimal digits, new for each request; `$nonce | uuid` writes them as a UUID",
    "headers": "the client's headers by lower-case name, but those that hold its secrets (`request.base64_vectors`, "
    "`request.asked_model`; headers and `request:` edits of a provider file)",
    "run": "the stream: id, model, created, stop, stop_text, failed, usage",
    "part": "the part being sent: index, nth, item, kind, id, name, text, args, told, token, origin",
    "event": "the SSE event name, for formats that have it only there (stream.to_hub)",
    "delta": "the piece of text that just arrived",
    "fields": "fields that came with that piece besides its text: logprobs, annotations, ...",
    "seq": "how many events were sent before this one",
    "whole": "the answer so far, as a hub response; its parts have the `item` they were sent with, "
    "and those that an error cut off are `cut`",
    "seen": "how many parts of each kind have begun: $seen.tool_call",
    "error": "what went wrong: message, type, code, param",
}
RESERVED = frozenset(
    {"model", "can", "request", "run", "part", "delta", "seq", "whole", "seen", "error"}
    | {"nothing", "secret", "job", "vars", "old", "parent"}  # words, and names of provider files
)
"""Names with a meaning in the engine; no mapping may define them."""


def may_define(unit: Unit, name: str, visible: Mapping[str, Var], at: Node | Mark) -> bool:
    """Whether a mapping may define `$name`; mistakes in that name are noted.

    `visible` are the names that can be read there. A name of the engine that only few places have may be defined; it
    hides the engine's.
    """
    if name in RESERVED:
        unit.mistake(at, f"`${name}` is a name of the engine", "choose another name")
        return False
    if name in ABOUT and name in visible and not visible[name].own:
        unit.warn(at, f"`${name}` hides the engine's own ({ABOUT[name]})", "choose another name")
    return True
