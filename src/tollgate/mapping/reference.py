"""The reference page (docs/mapping-reference.md), made from the tables the compiler itself uses.

A test holds it to what is written there, so it cannot say something the compiler does not do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tollgate.mapping import hub
from tollgate.mapping.directives import DIRECTIVES
from tollgate.mapping.edits.reading import BESIDE, VERBS
from tollgate.mapping.examples import KEYS as EXAMPLE_KEYS
from tollgate.mapping.examples import SECTIONS as EXAMPLE_SECTIONS
from tollgate.mapping.examples import WITH
from tollgate.mapping.filter_table import FILTERS, TESTS
from tollgate.mapping.in_text_scan import TOLD_AS
from tollgate.mapping.names import ABOUT, PART, RUN
from tollgate.mapping.reply_headers import FACTS
from tollgate.mapping.reply_headers import KINDS as LIMIT_KINDS
from tollgate.mapping.streams.from_hub import MOMENTS, STEPS
from tollgate.mapping.streams.to_hub import OPERATIONS

_INTRO = """\
# The mapping language: reference

Generated from the compiler's own tables (`tollgate.mapping.reference`); a test keeps this page true. What crosses
between formats is in `conversion.md`.

Four sentences explain it:

1. A mapping is the output document, written out. Plain YAML is literal.
2. A string that starts with `$` is a path into the data: `$` is the document, `$name` something named by `$each`,
   `$let`, a function or the engine. A literal that starts with a dollar is written `$$`.
3. `{{ ... }}` computes over the same names; alone it keeps the type of its result, beside text it makes text. Places
   that take an expression (`$when`, `$match`, after `in`) are written without the braces.
4. A key that starts with `$` tells the engine what to do with the node it stands in. They act in this order: `$each`,
   `$let`, `$when`, `$refuse`, then the rest.

**Absent.** A path that leads nowhere, or to null, gives *absent*: a field is left out, a list item too, a text with
an absent hole as a whole, arithmetic with it is absent. `==`, `<` and `in` with absent are false, also where both sides
are absent; `!=` is the opposite of `==` (`$.a == none` asks whether it is absent, as `is absent` does). An object or
list that ends up empty is left out, unless it is written empty (`{}`, `[]`); a written `null` is sent as null;
`$nothing` leaves out. Nulls inside something that is copied whole are not looked at.

**Lists.** A written list inside a list contributes its items. A null in a list that `$each` walks over is no item. In
braces an absent member of a list or an object is null: `"{{ [$.a, $.b] }}"` keeps its places.

**Functions.** `define: {name($a, $b): value}`; called in an expression, `{{ name($x) }}`. A function sees its
parameters and the engine's values. It may call itself on parts of its data.
"""


_PATHS = """\
| Path | Reads |
|---|---|
| `$.a.b` | a field of a field |
| `$.a[0]`, `$.a[-1]` | an item from the front or the back |
| `$x['a-b']` | a field whose name is no word |
| `$.a[*].k` | the field of every item: a list; `[*]` of an object is all of its values |
| `$.a[1:3]` | some items: a list; of a text, some characters |
| `$.a[?(@.k == 'v')].n` | of the items for which it holds: a list; `?(@.k)`: where it is present; `&` joins two |
| `$.a..k` | the field wherever it stands below: a list |

A path that gives a list gives absent when it finds nothing, and leaves out nulls. `{{ $x[$key] }}` reads a computed key
or place, `{{ $x[$from:$to] }}` a computed part; an end that is no whole number is open.
"""

_EXPRESSIONS = """\
Paths, numbers, `'text'`, `true`, `false`, `none`, `[a, b]`, `{'k': v}`, `f($x)`, `value | filter`, `value is test`,
`== != < <= > >=`, `in`, `not in`, `and`, `or`, `not`, `+ - * / // %`, `~` (together as text), `a if condition else
b`. Truth is the same everywhere: absent, false, `''`, `[]` and `{}` are false, 0 is true. Values of two kinds are never
equal (true is not 1, `'1'` is not 1), and neither is less. `+` also joins two texts or two lists; a division by 0 is
absent; other arithmetic with what is no number is an error (400 in a request).
"""

_HUB_INTRO = """\
What `to_hub` makes and `from_hub` reads. Nothing in it is null, lists are lists. `check` warns of names it does not
have.
"""

_HUB_NOTES = """\
`args` of a call is JSON text. A result has a `name` only where its client tells one: by its `id` the call's is found
(`lookup`). `usage.input` counts all of the prompt, cached tokens too, `output` all of the answer,
reasoning too. System text is in `system`, tool results are parts of a user's turn. A part of an answer with nothing
but its kind, or beside it an empty text, is no part, and an answer in which the mapping finds neither parts, usage nor
`stop` is none: another route is tried.
"""

_STREAMS_IN = """\
Rules are `always:` with a list of operations, and/or `$match:` with cases that are lists or further choices. Each
operation may stand under `$each`, `$let` and `$when`. An event no case is for is counted and named in the loss
report; `[]` is the case that needs nothing. An answer is whole when a rule said `stop`, or the stream ended with
[DONE]; one that just ends counts as broken off. A mapping without `stream.to_hub` is that of an upstream that does
not stream: it is asked for whole answers, and streaming clients are told these as events. One without
`response.to_hub` is that of an upstream that does nothing else: the others get the stream put together.
"""

_PARTS_IN = """\
One part is open at a time. A delta for another part closes the open one when that is certainly over (its upstream
said so, or its arguments are whole JSON); otherwise the other part is held back. Tool calls are told apart by `key`
and `id`: a new id with a name under a used key is a new call, neither continues the last one.
"""

_EDITS = """\
What a provider file says under `request:`, `response:` and `stream:`: how a complete document of a format is changed,
a request after it was made, an answer or a stream event before it is read. They run top to bottom, those of the
provider before those of the endpoint, of policies and of the model; what none of them mentions stays. A path is a
bare key of the top level, or begins with `$.`.
"""

_EDIT_NOTES = """\
Values are templates over the document as it is at that moment (`$`), `$old` (what stands in the place), `$parent`
(the object it stands in), `$model`, `$can`, `$vars`, and in a request `$headers`. `set` and `default` make the
objects on the way to a field, not the items of a list. What a `drop`, a `keep` or `values: $nothing` takes out of a
request is in the loss list, if it is not empty, unless an edit before has put what it read there elsewhere.
"""

_PLUGINS = """\
What no filter does can be a function of your own: `plugins: [acme_filters]` in gateway.yaml names Python modules that
the gateway's Python can import (installed beside it, or in a folder that `PYTHONPATH` names). Each public function of
such a module is a filter of its name, with what stands in its brackets as further arguments: `{{ $.text |
upside_down('!') }}` calls `upside_down(value, '!')`. Absent in gives absent out without a call, and `None` from it is
absent. It sees nothing of the request but its value, and gives the same for the same: examples run twice. One that
raises fails the conversion it was used in, and is named there. It runs on the path of every request: nothing in it may
wait. A module is imported once, when a configuration first names it; for a newer version the gateway is started anew.
One whose import takes 5 seconds is named in the log, and after 60 it counts as one that cannot be imported.
"""

_LOSS = """\
What a request holds and no line reads is named to the caller, at every depth. Empty values are not named.

- **What may go unread without a word** stands in the mapping file, because nothing changes without it:
  `request: {harmless: {to_hub: ['input[].id'], from_hub: ['format.name']}}` lists places of the request, and of the
  hub. `{min_p: 0}` is a place with the one value for which this is so.
- **Items.** A field is read when a line reads it in any item of a list. What a condition, a place in the list or
  `last` leaves aside is not noticed: say it by an `$else` with `$lost` (or `$refuse`).
- **A condition only looks.** A text, a number or a boolean that it looks at counts as read, since it had its effect.
  An object or a list does not, whatever filters and functions look into it; but texts of a list do in which a field
  is looked for (`$p.key in $f.schema.required`).
- **A name of `$let`** for a part of the data, for a list of parts or for a choice between them reads what those who
  use the name read. A name for a computed value reads all that the value was computed from, if it is used for more
  than to look at it.
- **Computed keys.** `$x[$n]` reads one item where `$n` is certainly a number (the second name of `$each`, `$i + 1`);
  any other computed key reads all of `$x`.

What `$lost` says in words is not named once more by its place. The words speak for

- what their holes read; a hole that reads `type` or `kind` speaks for the whole object that has it;
- what the condition they stand under looks at first, the object that a `$match` or `==` chose by, and the item of an
  `$each`; but not under the `$else` of another condition, or as one field of what is made.

What stands beside that is named by itself.
"""

_SERVICE_TIER = """\
`request: {service_tier: $.service_tier}` is where a request of this format says its service tier. A tier that is not
in what was sent to a provider makes nothing cheaper or dearer.
"""

_TOOL_NAME = """\
Where a format takes no such names as a client's tools have, `request.from_hub` writes others. `request: {tool_name: "{{
$ | short(64) }}"}` says which, of the tool's own name (`$`): a call in an answer, whole or streamed, comes back under
its own, also where a stream tells the name in pieces.
"""

_BASE64_VECTORS = """\
Clients of `/v1/embeddings` get arrays of numbers, whatever `encoding_format` they name. `request: {base64_vectors:
condition}` in their format's file (`hub: embeddings`) says when the vectors of an answer are base64 of float32
instead, for clients that can read nothing else. The condition sees the request (`$`) and the client's headers by
lower-case name (`$headers`): `base64_vectors: "$.encoding_format == 'base64' and $headers['user-agent'] == 'old'"`
"""

_ASKED_MODEL = """\
An answer names its model as the provider does. `request: {asked_model: condition}` in `mappings/messages.yaml` says
which clients get the name they asked for instead, an alias or a canonical id, whole and streamed, converted or not.
The condition sees the request (`$`) and the client's headers by lower-case name (`$headers`); `asked_model: true`
holds for everybody. Only formats whose streams name the model once, in their first event, may say it.
"""


_TOO_LONG = """\
Agents shorten a conversation when they are told that it does not fit the model, which chat and responses clients know
by a code and messages clients by a message's first words; most providers say it in words of their own, and in nothing
else. `error: {too_long: [prompt is too long, maximum context length]}` lists such words of the providers that speak
this format, in any case of letters: a refusal (400, 413, 422) whose message holds one of them has the code
`context_length_exceeded`. A provider's own `errors:` can give the code where no words tell.
"""

_SPENT = """\
That our money at a provider is used up often comes as a 429, like a rate limit, but waiting does not help. `error:
{spent: [project_spend_limit_exceeded]}` lists the codes or types by which providers that speak this format say so:
another route is asked, and the operator warned. `insufficient_quota` and `billing_error` mean it everywhere.
"""

_UNREADABLE = """\
A conversation of the responses format carries reasoning that only the service which encrypted it can read; another
refuses it, and a client would send it again for ever. `error: {unreadable: [invalid_encrypted_content]}` lists codes,
or words of a message, by which providers that speak this format say so: the request is sent once more without it.
"""

_OPENING = """\
Some streams begin with events that say no more than that an answer will come, and their providers tell there that they
are overloaded. `stream: {opening: condition}` says of an event (`$`) that it is such a one:
`$.type in ['begun', 'ping']`. While another route could answer, those before the first other event wait for it, so that
a failure behind them goes to that route. The last route's pass as they come, and its failure is told behind them.
"""

_IN_TEXT = f"""\
Models that are served bare write their thoughts and their calls into the text. `in_text:`, a list of marks in a
mapping file (for all that speak the format) or in a provider file (for the provider, an endpoint, a policy or a
model; the nearest scope's list alone holds, `[]` is none), says what stands between two marks. It is looked for in
every text of an answer, whole or streamed, however the stream is cut.

```yaml
define:
  call($c): {{$when: $c.name, kind: tool_call, name: $c.name, args: $c.arguments}}
in_text:
  - {{from: <think>, to: </think>, kind: reasoning, at: start}}
  - {{from: <tool_call>, to: </tool_call>, parts: "{{{{ call($ | parse_json) }}}}"}}
```

| Key | Says |
|---|---|
| `from` | the text that begins it |
| `to` | the text that ends it; without it, it goes to the end of the text |
| `kind` | {", ".join(f"`{kind}`" for kind in TOLD_AS)}: what stands between is that, and is told as it comes |
| `parts` | instead of `kind`: a template over what stands between (`$`, a text) that makes a part or a list of parts, once all of it is there |
| `at` | `anywhere`; `start`: only where no other text came before; `inside`: the answer begins inside it, whether `from` is written or not |
| `unclosed` | beside `parts`, where `to` never comes: `part`, as if it had come, or `text`, it was text after all; what has a `kind` stays what it was told as |

The first word of each is what holds when nothing is said. What a template makes no part of stays the text it was,
marks and all (a call needs a `name`). Blanks beside a mark belong to the mark. Where a provider has marks, its
answers are made anew also for clients of its own format, so that they hold what the hub carries; requests pass as
they came, but for `n` above 1, which is refused.
"""  # noqa: E501


def page() -> str:
    """The whole page."""
    filters = [
        (
            f"`{entry.name}{f'({entry.arguments})' if entry.arguments else ''}`",
            _cell(entry.about),
            f"`{_cell(entry.example)}`" if entry.example else "",
        )
        for entry in FILTERS.values()
    ]
    operations = [
        (f"`{entry.name}`", ", ".join(_code(entry.fields)), _cell(entry.about)) for entry in OPERATIONS.values()
    ]
    sections = (
        _INTRO,
        _directives(),
        "## Paths",
        _PATHS,
        "## Expressions",
        _EXPRESSIONS,
        "## Filters",
        "Absent in gives absent out, and so does a value of a kind the filter does not work on.",
        _table(("Filter", "Gives", "Example"), filters),
        "## Tests",
        _table(("Test", "True for"), [(f"`is {entry.name}`", entry.about) for entry in TESTS.values()]),
        "## Filters of your own: `plugins`",
        _PLUGINS,
        "## The engine's names",
        _table(("Name", "Is"), [(f"`${name}`", _cell(about)) for name, about in ABOUT.items()]),
        *(f"Fields of `${record.name}`: {', '.join(_code(record.fields or ()))}." for record in (RUN, PART)),
        "## The hub",
        _HUB_INTRO,
        _hub(),
        _HUB_NOTES,
        "## Streams in: `stream.to_hub`",
        _STREAMS_IN,
        _table(("Operation", "Fields", "Means"), operations),
        _PARTS_IN,
        "## Events before an answer: `stream.opening`",
        _OPENING,
        "## Marks in a text: `in_text`",
        _IN_TEXT,
        "## Streams out: `stream.from_hub`",
        _streams_out(),
        "## Edits",
        _EDITS,
        _edits(),
        _EDIT_NOTES,
        "## The loss list",
        _LOSS,
        "## What was asked for: `request.service_tier`",
        _SERVICE_TIER,
        "## Names of tools: `request.tool_name`",
        _TOOL_NAME,
        "## Vectors as base64: `request.base64_vectors`",
        _BASE64_VECTORS,
        "## The model's name: `request.asked_model`",
        _ASKED_MODEL,
        "## A prompt that is too long: `error.too_long`",
        _TOO_LONG,
        "## Our money is used up: `error.spent`",
        _SPENT,
        "## Reasoning of somebody else's: `error.unreadable`",
        _UNREADABLE,
        "## Headers of replies: `reply_headers`",
        _reply_headers(),
        "## Examples",
        _examples(),
    )
    return "\n\n".join(section.rstrip("\n") for section in sections) + "\n"


def _directives() -> str:
    rows = [(f"`{entry.name}`", _cell(entry.takes), _cell(entry.about)) for entry in DIRECTIVES.values()]
    each = [
        f"### `{entry.name}`\n\n```yaml\n{entry.example}\n# {entry.given}\n# -> {entry.makes}\n```"
        for entry in DIRECTIVES.values()
    ]
    return "\n\n".join(("## Directives", _table(("Directive", "Takes", "Does"), rows), *each))


def _streams_out() -> str:
    moments = ", ".join(f"`{moment}:`" for moment in MOMENTS)
    return f"""\
`event:` names the field that is also the SSE event name; `stamp:` goes onto every event; {moments} are lists of
events for those moments; `end:` is the literal last event. Every kind of part ({", ".join(_code(hub.KINDS))}, or one
of your own) may say {", ".join(_code(STEPS))}. A kind that is not named is lost, and the loss is said. So is a part
for which `lost` makes a text, which is what the loss is called; `name` makes `$part.item`. The others are lists of
events."""


def _edits() -> str:
    verbs = _table(
        ("Edit", "Takes", "Does", "Example"),
        [(f"`{verb.name}`", verb.takes, _cell(verb.about), f"`{_cell(verb.example)}`") for verb in VERBS.values()],
    )
    return f"{verbs}\n\nBeside any of them: {'; '.join(f'`{name}`, {about}' for name, about in BESIDE.items())}."


def _reply_headers() -> str:
    limits = ", ".join(f"`{kind}: {{{', '.join(FACTS)}}}`" for kind in LIMIT_KINDS)
    return f"""\
What a success tells beside its body, under the names this format's clients look for: `elapsed` (whole milliseconds
until the answer began) and `limits`, a key's windows: {limits}, each a name or a list of names. `resets` are
`durations` (`6m0s`) or `instants` (RFC 3339).
`reply_headers: {{elapsed: x-elapsed-ms, limits: {{requests: {{limit: x-limit, remaining: [x-left, x-remaining]}}}}}}`"""  # noqa: E501


def _examples() -> str:
    return f"""\
`examples:` is a list of {{{", ".join(EXAMPLE_KEYS)}}}. `of` is one of {", ".join(_code(EXAMPLE_SECTIONS))}; `with`
gives {", ".join(_code(WITH))}. They are run by `tollgate check`, which also checks every hub value against the hub's
schema, and by a reload for the files that changed: one that fails leaves the old configuration running. An event with
a name is given as `{{$event: name, data: event}}`."""


_HUB = (
    ("request", "A request"),
    ("turn", "A turn"),
    ("tool", "A tool"),
    ("tool_choice", "`tool_choice`"),
    ("format", "`format`"),
    ("reasoning", "`reasoning`"),
    ("response", "An answer"),
    ("usage", "`usage`"),
    ("error", "An error"),
)


def _hub() -> str:
    """The fields of the hub, from its schema."""
    defined = hub.schema()["$defs"]
    parts = {
        branch["if"]["properties"]["kind"]["const"]: branch["then"]["$ref"].rpartition("/")[2]
        for branch in defined["part"]["allOf"]
    }
    return _table(
        ("Where", "Fields"),
        [
            *((about, _members(defined[name])) for name, about in _HUB),
            *((f"A part of kind `{kind}`", _members(defined[name])) for kind, name in parts.items()),
        ],
    )


def _members(definition: dict[str, Any]) -> str:
    def shown(name: str, of: dict[str, Any]) -> str:
        words = f" ({', '.join(of['enum'])})" if "enum" in of else ""
        return f"`{name}{'[]' if 'items' in of else ''}`{words}"

    return ", ".join(shown(name, of) for name, of in definition["properties"].items() if name != "kind" or "enum" in of)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join((f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows)))


def _code(names: Iterable[str]) -> Iterable[str]:
    return (f"`{name}`" for name in names)
