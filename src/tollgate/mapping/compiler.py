"""Compiles one mapping file to a `Mapping`: its sections as functions, its stream rules, and what it reads.

Owns which sections a file has and how they are connected. All mistakes of a file are found in one run and raised as
`ConfigErrors`; warnings are kept on the mapping.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as Table
from dataclasses import replace
from types import FunctionType
from typing import Any

from tollgate.config.load import Document, List, Map, Node, Problem, Scalar, lookup, text_in
from tollgate.mapping import harmless, templates
from tollgate.mapping.define import compile_functions, declare
from tollgate.mapping.directives import let, when
from tollgate.mapping.emit import current_code_cache, executed
from tollgate.mapping.error_words import ERROR_WORDS, read_error_words
from tollgate.mapping.failures import clean
from tollgate.mapping.filter_table import Filter
from tollgate.mapping.hub_words import check_hub_words
from tollgate.mapping.in_text import InText, declare_marks, linked
from tollgate.mapping.in_text_scan import TextMark
from tollgate.mapping.loss import Walker
from tollgate.mapping.names import ENGINE, HEADERS
from tollgate.mapping.reads import Reads
from tollgate.mapping.reply_headers import NO_HEADERS, compile_reply_headers
from tollgate.mapping.scalars import is_literal
from tollgate.mapping.scope import Function, Scope, Site, Unit, Var
from tollgate.mapping.streams import from_hub
from tollgate.mapping.streams.handlers import EventWriter
from tollgate.mapping.streams.part import Details
from tollgate.mapping.streams.to_hub import STREAM_IN, compile_stream_in
from tollgate.mapping.tracing import tracing
from tollgate.mapping.values import RUNTIME
from tollgate.wire import CLIENT_FORMATS

SECTIONS = ("request", "response", "error")
DIRECTIONS = harmless.DIRECTIONS
_USAGE_IN = "response.to_hub.usage"
SENT_TIER = "service_tier"
"""Key of `request:`: where a request of this format has its service tier; absent for formats that have none."""
TOOL_NAME = "tool_name"
"""Key of `request:`: the name under which a tool (`$`, its own name) is sent; absent where names are never changed."""
BASE64_VECTORS = "base64_vectors"
"""Key of `request:` in a client's embeddings format: the condition under which its answer has vectors in base64."""
ASKED_MODEL = "asked_model"
"""Key of `request:` in a client's format: the condition under which answers give the model's name as requested."""
CONDITIONS = (BASE64_VECTORS, ASKED_MODEL)
OPENING = "opening"
"""Key of `stream:`: a condition over an event, true for events that come before anything of the answer."""
_CONDITIONS: tuple[tuple[str, str, dict[str, Var]], ...] = (
    *(("request", key, {"headers": HEADERS}) for key in CONDITIONS),
    ("stream", OPENING, {}),
)
"""Section, key, and the names that the condition reads besides `$`."""
_MORE_KEYS = {
    "request": (harmless.KEY, SENT_TIER, TOOL_NAME, *CONDITIONS),
    "error": tuple(ERROR_WORDS),
    "stream": (OPENING,),
}
"""Keys of a section besides `to_hub` and `from_hub`."""
_DECIDING = frozenset({"$when", "$match", "$value", "$each", "$first"})
"""Directives by which a map may give something else than its fields."""
HUBS = ("embeddings",)
"""Hubs besides the one for conversations; they have requests and answers only."""
KEYS = ("mapping", "about", "hub", "define", *SECTIONS, "stream", "in_text", "reply_headers", "examples")

Section = Callable[..., Any]


class Mapping:
    """A compiled wire format. Immutable; shared by all requests and threads."""

    def __init__(self, document: Document, namespace: dict[str, object], built: _Built) -> None:
        self.document = document
        self.file = document.file
        self.name = built.name
        self.clean_request = clean((document.file,), request=True)
        self.clean_answer = clean((document.file,), request=False)
        """Used as `with` blocks, these turn a fault in generated code into an error that names its line in the file."""
        self.hub = built.hub
        """The kind of hub documents it makes: empty for conversations, or `embeddings`."""
        self.warnings: tuple[Problem, ...] = built.warnings
        self.sections: dict[str, Section] = {
            name: namespace[py]  # type: ignore[misc]
            for name, py in built.sections.items()
        }
        """`request.to_hub` and so on, as functions of (document, context); without the sections that a file does not
        have."""
        self.walkers: dict[str, Walker] = {
            name: Walker(
                reads, harmless.ENVELOPE if name.startswith("response") else harmless.IGNORED, built.idle.get(name)
            )
            for name, reads in built.reads.items()
        }
        self.usage_in = self.sections.get(_USAGE_IN)
        """Only the `usage` of `response.to_hub`: for native answers, of which nothing else is read."""
        self.sent_tier = self.sections.get(f"request.{SENT_TIER}")
        """Gives the service tier that a request of this format asks for."""
        self.sent_name = self.sections.get(f"request.{TOOL_NAME}")
        """Gives the name under which a tool is sent, from its own name; None where names are never changed."""
        self.opening = self.sections.get(f"stream.{OPENING}")
        """Whether an event comes before anything of the answer."""
        self.stream_in: Section | None = namespace.get(STREAM_IN)  # type: ignore[assignment]
        """The rules of `stream.to_hub`, as a function of (event, run, context)."""
        self.stream_closes = built.stream_closes
        self.writer: EventWriter | None = from_hub.linked(built.stream_out, namespace) if built.stream_out else None
        self.in_text: InText | None = linked(built.in_text, namespace)
        """The marks in the text of its answers; those of a provider replace them."""
        self.reply_headers = built.reply_headers
        self.too_long: tuple[str, ...] = built.error_words["too_long"]
        """Words, in lower case, of an error which means that the prompt is too long for the model."""
        self.spent: frozenset[str] = frozenset(built.error_words["spent"])
        """Codes and types, in lower case, of an error which means that our balance or limit there is used up."""
        self.unreadable: tuple[str, ...] = built.error_words["unreadable"]
        """Codes and words, in lower case, of an error which means that encrypted reasoning cannot be read."""
        self.examples: List | None = built.examples
        self.plugins = built.plugins
        self.generated: tuple[FunctionType, ...] = tuple(
            value
            for value in namespace.values()
            if isinstance(value, FunctionType) and value.__code__.co_filename == document.file
        )
        """The generated functions; their line numbers are those of the YAML."""

    def __repr__(self) -> str:
        return f"Mapping({self.name!r})"


class _Built:
    """The result of compiling a file, besides its code."""

    def __init__(self) -> None:
        self.name = ""
        self.hub = ""
        self.sections: dict[str, str] = {}
        self.reads: dict[str, Reads] = {}
        self.idle: dict[str, harmless.Idle] = {}
        self.stream_closes = False
        """Whether its streams mark the end of parts."""
        self.stream_out: from_hub.StreamOut | None = None
        self.in_text: dict[TextMark, str] = {}
        self.reply_headers = NO_HEADERS
        self.error_words: dict[str, tuple[str, ...]] = dict.fromkeys(ERROR_WORDS, ())
        self.examples: List | None = None
        self.plugins: Table[str, Filter] = {}
        self.warnings: tuple[Problem, ...] = ()
        self.code = b""
        """The key under which its code is cached."""
        self.names: dict[str, object] = {}
        """The constants that its code uses."""

    def add(self, name: str) -> str:
        """Declare a section; returns the name of its function."""
        py = self.sections[name] = name.replace(".", "_")
        self.reads[name] = Reads()
        return py


def compile_mapping(document: Document, *, plugins: Table[str, Filter] | None = None, trace: bool = False) -> Mapping:
    """Compile a mapping file, or take its cached result (`using_code_cache`). `ConfigErrors` has all its mistakes.
    `trace` is for `explain`."""
    cache = None if plugins or trace else current_code_cache()
    if (
        cache is not None
        and isinstance(built := cache.get_file(document), _Built)
        and (code := cache.get(built.code)) is not None
    ):
        return Mapping(document, executed(code, document.file, {**_runtime(built), **built.names}), built)
    unit = Unit(document, plugins=plugins, trace=trace)
    built = _built(unit, document, plugins)
    runtime = _runtime(built) | (tracing(document.file) if trace else {})
    mapping = Mapping(document, unit.build(runtime), built)
    if cache is not None and built.examples is None:
        built.code, built.names = unit.module.key, unit.module.names
        cache.put_file(document, built)
    return mapping


def _runtime(built: _Built) -> dict[str, object]:
    """The names that generated code may use."""
    event = built.stream_out.event if built.stream_out else None
    return {**RUNTIME, "Details": Details, "named": lambda event_fields: (event_fields.get(event), event_fields)}


def _built(unit: Unit, document: Document, plugins: Table[str, Filter] | None) -> _Built:
    """Generate the code of all sections into the unit, which collects the mistakes."""
    unit.problems.extend(document.problems)
    built = _Built()
    built.plugins = dict(plugins or {})
    if document.problems and not getattr(document.root, "entries", None):
        unit.raise_mistakes()  # it cannot be parsed as YAML
    root = document.root
    if not isinstance(root, Map):
        unit.mistake(root, "a mapping file has keys", f"mapping: name, and {', '.join(SECTIONS)}, stream")
        unit.raise_mistakes()
        raise AssertionError
    _head(unit, root, built)
    _declare_sections(unit, root, built)
    built.idle = harmless.read_harmless(unit, root, built.reads)
    built.error_words = read_error_words(unit, root)
    functions = declare(unit, root.get("define"))
    compile_functions(unit, functions)
    for name in SECTIONS:
        for direction in DIRECTIONS:
            node = lookup(root, name, direction)
            if node is not None:
                _section(unit, f"{name}.{direction}", node, built)
    _request_facts(unit, root, built)
    _conditions(unit, root, built)
    if (rules := lookup(root, "stream", "to_hub")) is not None:
        built.stream_closes = compile_stream_in(unit, rules)
    if (rules := lookup(root, "stream", "from_hub")) is not None:
        built.stream_out = from_hub.compile_stream_out(unit, rules)
    built.in_text = declare_marks(unit, root.get("in_text"))
    check_hub_words(unit, root, built.reads, built.hub)
    let.check_read(unit, root)
    built.reply_headers = compile_reply_headers(unit, root.get("reply_headers"))
    for function in functions:
        if not function.used:
            unit.warn(function.mark, f"`{function.name}` is never called")  # type: ignore[arg-type]
    built.warnings = tuple(problem for problem in unit.problems if problem.level != "error")
    return built


def _head(unit: Unit, root: Map, built: _Built) -> None:
    unit.check_keys(root, KEYS)
    built.name = text_in(root.get("mapping")) or ""
    if not built.name:
        unit.mistake(root.get("mapping") or root, "a mapping file says its name", "mapping: chat")
    about = root.get("about")
    if about is not None and text_in(about) is None:
        unit.mistake(about, "`about` is one line of text")
    kind = root.get("hub")
    if isinstance(kind, Scalar) and kind.value in HUBS:
        built.hub = str(kind.value)
    elif kind is not None:
        unit.mistake(kind, "`hub` is left out for conversations", f"or one of {', '.join(HUBS)}")
    for section in (*SECTIONS, "stream"):
        node = root.get(section)
        if node is None:
            continue
        if not isinstance(node, Map):
            unit.mistake(node, f"`{section}` takes to_hub and from_hub")
            continue
        unit.check_keys(node, (*DIRECTIONS, *_MORE_KEYS.get(section, ())))
    examples = root.get("examples")
    if isinstance(examples, List):
        built.examples = examples
    elif examples is not None:
        unit.mistake(examples, "`examples` is a list")


def _declare_sections(unit: Unit, root: Map, built: _Built) -> None:
    """Declare all sections. `response(...)` and `error(...)` become functions too, so that an event can hold a whole
    answer."""
    for name in SECTIONS:
        for direction in DIRECTIONS:
            if lookup(root, name, direction) is not None:
                built.add(f"{name}.{direction}")
    for name in ("response", "error"):
        if f"{name}.from_hub" in built.sections:
            unit.functions[name] = Function(name, f"{name}_from_hub", ("hub",), (built.reads[f"{name}.from_hub"],))


def _section(unit: Unit, name: str, node: Node, built: _Built) -> None:
    sent = name == "request.from_hub"  # a provider's request may be a list or a text
    made = node.entries.get("$value", node) if isinstance(node, Map) and not sent else node
    if isinstance(made, List) or isinstance(made, Scalar) and made is node and is_literal(made):
        found = "a list" if isinstance(made, List) else f'"{made.text}"'
        hint = "keys with values, without dashes"
        if sent and isinstance(made, List):
            hint += "; a body that is a list stands below `$value`"
        unit.mistake(node, f"`{name}` makes an object, found {found}", hint)
        return
    names = {**ENGINE, "": Var("", "D", (built.reads[name],))}
    if name.startswith("request"):
        del names["asked"]
    if sent and not built.hub:
        names["request"] = replace(names["request"], py="D", places=names[""].places)
    elif name.startswith("request") or built.hub:
        del names["request"]
    unit.reads_answer = name in ("response.to_hub", "error.to_hub")
    templates.function(unit, f"{built.sections[name]}(D, C)", node, Scope(names))
    unit.reads_answer = False
    if name == "response.to_hub" and isinstance(node, Map) and _has_plain_usage(node):
        entries: dict[str, Node] = {key: node.entries[key] for key in ("$let", "usage") if key in node.entries}
        usage = Map(entries, {key: node.keys[key] for key in entries}, node.mark)
        py = built.sections[_USAGE_IN] = _USAGE_IN.replace(".", "_")  # its reads count as reads of the whole answer
        templates.function(unit, f"{py}(D, C)", usage, Scope(names))


def _request_facts(unit: Unit, root: Map, built: _Built) -> None:
    """`request.service_tier` and `request.tool_name`: templates over a request of this format, and over the name of
    a tool."""
    for key in (SENT_TIER, TOOL_NAME):
        node = lookup(root, "request", key)
        if node is not None:
            name = f"request.{key}"
            header = f"{built.add(name)}(D, C)"
            templates.function(unit, header, node, Scope({**ENGINE, "": Var("", "D", (built.reads[name],))}))


def _conditions(unit: Unit, root: Map, built: _Built) -> None:
    """`request.base64_vectors` and `request.asked_model`: conditions over the client's request (`$`) and its
    `$headers`. `stream.opening`: one over an event."""
    for section, key, names in _CONDITIONS:
        holder = root.get(section)
        if not isinstance(holder, Map) or key not in holder.entries:
            continue
        if misplaced := _misplaced(key, built):
            unit.mistake(holder.keys[key], misplaced)
            continue
        name, node = f"{section}.{key}", holder.entries[key]
        code = unit.module.function(f"{built.add(name)}(D, C)", node.mark.line)
        scope = Scope({"": Var("", "D", (built.reads[name],)), **names})
        code.add(f"return bool({when.test(Site(unit, code, scope), node).py})", node.mark.line)


def _misplaced(key: str, built: _Built) -> str | None:
    """Why a condition cannot be used in this file; None if it can."""
    if key == BASE64_VECTORS:
        return None if built.hub else f"`{key}` is for files with `hub: embeddings`: conversations have no vectors"
    once = [name for name, form in CLIENT_FORMATS.items() if form.names_model_once]
    if key == ASKED_MODEL and built.name not in once:
        return f"`{key}` is for formats whose streams name the model once: {', '.join(once)}"
    return None


def _has_plain_usage(node: Map) -> bool:
    """Whether the map's `usage` is exactly its `usage` key, without a directive that may change it."""
    copied = node.get("$copy")
    plain = (
        copied is None
        or isinstance(copied, List)
        and all(isinstance(each, Scalar) and each.value != "usage" for each in copied.items)
    )
    return plain and "usage" in node.entries and node.entries.keys().isdisjoint(_DECIDING)
