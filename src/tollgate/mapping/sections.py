"""Generates the code of all sections of a mapping file, and reads its other keys.

Owns which keys a file has and how its sections are connected. Mistakes are noted in the unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tollgate.config.load import List, Map, Node, Problem, Scalar, lookup, text_in
from tollgate.mapping import harmless, templates
from tollgate.mapping.answer_slips import check_answers
from tollgate.mapping.define import compile_functions, declare
from tollgate.mapping.directive_table import VALUES
from tollgate.mapping.directives import let, when
from tollgate.mapping.error_words import ERROR_WORDS, read_error_words
from tollgate.mapping.filter_table import Filter
from tollgate.mapping.hub_words import check_hub_words
from tollgate.mapping.in_text import declare_marks
from tollgate.mapping.in_text_scan import TextMark
from tollgate.mapping.names import ENGINE, HEADERS, document_var
from tollgate.mapping.reads import Reads
from tollgate.mapping.reply_headers import NO_HEADERS, ReplyHeaders, compile_reply_headers
from tollgate.mapping.scalars import is_literal
from tollgate.mapping.scope import Function, Scope, Site, Unit, Var
from tollgate.mapping.streams import from_hub
from tollgate.mapping.streams.to_hub import compile_stream_in, names_matched
from tollgate.wire import CLIENT_FORMATS

SECTIONS = ("request", "response", "error")
DIRECTIONS = harmless.DIRECTIONS
USAGE_IN = "response.to_hub.usage"
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
_MORE_KEYS = {
    "request": (harmless.KEY, SENT_TIER, TOOL_NAME, *CONDITIONS),
    "error": tuple(ERROR_WORDS),
    "stream": (OPENING,),
}
"""Keys of a section besides `to_hub` and `from_hub`."""
_DECIDING = {*VALUES, "$when", "$each"}
"""Directives by which a map may give something else than its fields."""
HUBS = ("embeddings",)
"""Hubs besides the one for conversations; they have requests and answers only."""
KEYS = ("mapping", "about", "hub", "define", *SECTIONS, "stream", "in_text", "reply_headers", "examples")


@dataclass(slots=True)
class CompiledFile:
    """The result of compiling a file, besides its code."""

    name: str = ""
    hub: str = ""
    sections: dict[str, str] = field(default_factory=dict)
    """The names of the sections' functions."""
    reads: dict[str, Reads] = field(default_factory=dict)
    harmless_values: dict[str, harmless.HarmlessValues] = field(default_factory=dict)
    stream_closes: bool = False
    """Whether its streams mark the end of parts."""
    stream_names: frozenset[str] = frozenset()
    """The event names that its stream rules have a case for."""
    stream_out: from_hub.StreamOut | None = None
    in_text: dict[TextMark, str] = field(default_factory=dict)
    reply_headers: ReplyHeaders = NO_HEADERS
    error_words: dict[str, tuple[str, ...]] = field(default_factory=lambda: dict.fromkeys(ERROR_WORDS, ()))
    examples: List | None = None
    plugins: Mapping[str, Filter] = field(default_factory=dict)
    warnings: tuple[Problem, ...] = ()
    code: bytes = b""
    """The key under which its code is cached."""
    names: dict[str, object] = field(default_factory=dict)
    """The constants that its code uses."""

    def declare(self, name: str) -> str:
        """Declare a section, of which nothing is read yet; returns the name of its function."""
        py = self.sections[name] = name.replace(".", "_")
        self.reads[name] = Reads()
        return py


def compile_file(unit: Unit, plugins: Mapping[str, Filter] | None) -> CompiledFile:
    """Generate the code of all sections into the unit, which collects the mistakes."""
    document = unit.document
    unit.problems.extend(document.problems)
    built = CompiledFile(plugins=dict(plugins or {}))
    if document.problems and not getattr(document.root, "entries", None):
        unit.raise_mistakes()  # it cannot be parsed as YAML
    root = document.root
    if not isinstance(root, Map):
        unit.mistake(root, "a mapping file has keys", f"mapping: name, and {', '.join(SECTIONS)}, stream")
        unit.raise_mistakes()
        raise AssertionError
    _head(unit, root, built)
    sections = _declare_sections(unit, root, built)
    built.harmless_values = harmless.read_harmless(unit, root, built.reads)
    built.error_words = read_error_words(unit, root)
    functions = declare(unit, root.get("define"))
    compile_functions(unit, functions)
    for name, node in sections.items():
        _section(unit, name, node, built)
    _request_facts(unit, root, built)
    _conditions(unit, root, built)
    if (rules := lookup(root, "stream", "to_hub")) is not None:
        built.stream_closes = compile_stream_in(unit, rules)
        built.stream_names = names_matched(rules)
    if (rules := lookup(root, "stream", "from_hub")) is not None:
        built.stream_out = from_hub.compile_stream_out(unit, rules)
    built.in_text = declare_marks(unit, root.get("in_text"))
    check_hub_words(unit, root, built.reads, built.hub)
    check_answers(unit, root)
    harmless.read_marks(built.reads)
    let.check_read(unit, root)
    built.reply_headers = compile_reply_headers(unit, root.get("reply_headers"))
    for function in functions:
        if not function.used:
            unit.warn(function.mark, f"`{function.name}` is never called")  # type: ignore[arg-type]
    built.warnings = tuple(problem for problem in unit.problems if problem.level != "error")
    return built


def _head(unit: Unit, root: Map, built: CompiledFile) -> None:
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
        written = f"`{kind.value}`" if isinstance(kind, Scalar) else "no text"
        wanted = " or ".join(f"`{hub}`" for hub in HUBS)
        unit.mistake(kind, f"`hub` is {wanted}, found {written}", "a format of conversations has no `hub:`")
    for section in (*SECTIONS, "stream"):
        node = root.get(section)
        if isinstance(node, Map):
            unit.check_keys(node, (*DIRECTIONS, *_MORE_KEYS.get(section, ())))
        elif node is not None:
            unit.mistake(node, f"`{section}` takes to_hub and from_hub")
    examples = root.get("examples")
    if isinstance(examples, List):
        built.examples = examples
    elif examples is not None:
        unit.mistake(examples, "`examples` is a list")


def _declare_sections(unit: Unit, root: Map, built: CompiledFile) -> dict[str, Node]:
    """Declare all sections; returns their nodes. `response(...)` and `error(...)` become functions too, so that an
    event can hold a whole answer."""
    written = ((name, direction, lookup(root, name, direction)) for name in SECTIONS for direction in DIRECTIONS)
    sections = {f"{name}.{direction}": node for name, direction, node in written if node is not None}
    for name in sections:
        built.declare(name)
    for name in ("response", "error"):
        if f"{name}.from_hub" in sections:
            unit.functions[name] = Function(name, f"{name}_from_hub", ("hub",), (built.reads[f"{name}.from_hub"],))
    return sections


def _section(unit: Unit, name: str, node: Node, built: CompiledFile) -> None:
    if not _makes_object(unit, name, node):
        return
    scope = Scope(_names(name, built), of_answer=name in ("response.to_hub", "error.to_hub"))
    templates.function(unit, f"{built.sections[name]}(D, C)", node, scope)
    if name == "response.to_hub" and isinstance(node, Map) and _has_plain_usage(node):
        usage = let.only(node, "usage")
        py = built.sections[USAGE_IN] = USAGE_IN.replace(".", "_")  # its reads count as reads of the whole answer
        templates.function(unit, f"{py}(D, C)", usage, scope)


def _makes_object(unit: Unit, name: str, node: Node) -> bool:
    """Whether a section may make an object, as it must; a provider's request may also be a list or a text."""
    sent = name == "request.from_hub"
    made = node.entries.get("$value", node) if isinstance(node, Map) and not sent else node
    if not isinstance(made, List) and not (isinstance(made, Scalar) and made is node and is_literal(made)):
        return True
    found = "a list" if isinstance(made, List) else f'"{made.text}"'
    hint = "keys with values, without dashes"
    if sent and isinstance(made, List):
        hint += "; a body that is a list stands below `$value`"
    unit.mistake(node, f"`{name}` makes an object, found {found}", hint)
    return False


def _names(section: str, built: CompiledFile) -> dict[str, Var]:
    """What a section reads: `$`, and the engine's names. The client's own request (`$asked`) is for answers. The hub
    request is for conversations: `request.to_hub` makes it, in `request.from_hub` it is `$` too."""
    names = {**ENGINE, "": document_var(built.reads[section])}
    if section.startswith("request"):
        del names["asked"]
    if built.hub or section == "request.to_hub":
        del names["request"]
    elif section == "request.from_hub":
        names["request"] = replace(names["request"], py="D", places=names[""].places)
    return names


def _request_facts(unit: Unit, root: Map, built: CompiledFile) -> None:
    """`request.service_tier` and `request.tool_name`: templates over a request of this format, and over the name of
    a tool."""
    for key in (SENT_TIER, TOOL_NAME):
        node = lookup(root, "request", key)
        if node is not None:
            name = f"request.{key}"
            header = f"{built.declare(name)}(D, C)"
            templates.function(unit, header, node, Scope({**ENGINE, "": document_var(built.reads[name])}))


def _conditions(unit: Unit, root: Map, built: CompiledFile) -> None:
    """`request.base64_vectors` and `request.asked_model`: conditions over the client's request (`$`) and its
    `$headers`. `stream.opening`: one over an event."""
    for section, key in (*(("request", key) for key in CONDITIONS), ("stream", OPENING)):
        holder = root.get(section)
        if not isinstance(holder, Map) or key not in holder.entries:
            continue
        if misplaced := _misplaced(key, built):
            unit.mistake(holder.keys[key], misplaced)
            continue
        name, node = f"{section}.{key}", holder.entries[key]
        code = unit.module.function(f"{built.declare(name)}(D, C)", node.mark.line)
        headers = {"headers": HEADERS} if section == "request" else {}
        scope = Scope({"": document_var(built.reads[name]), **headers})
        code.add(f"return bool({when.test(Site(unit, code, scope), node).py})", node.mark.line)


def _misplaced(key: str, built: CompiledFile) -> str | None:
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
