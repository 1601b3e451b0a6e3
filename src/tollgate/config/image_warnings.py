"""Warnings about the image part of a provider file: mistakes that load, and leave a job without an end, a picture or a
check.

A step's `result` may have any names, so an unknown name alone is no mistake there. A warning is given only where the
name is close to a known one, the known one is missing, and nothing else reads the name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tollgate.config.accept import VALUES
from tollgate.config.image_schema import IMAGE_STEPS
from tollgate.config.json_schema import CHOICES, KEYWORDS, SCHEMAS, TABLES
from tollgate.config.load import (
    Document,
    List,
    Map,
    Node,
    Problem,
    Scalar,
    entries_of,
    items_of,
    lookup,
    plain,
    text_in,
    walk,
)
from tollgate.wire import PICTURE_FIELDS
from tollgate.wording import did_you_mean, nearest_or_all, nearest_word

_INPUT = re.compile(r"\$(?:\.input|input)\.(\w+)")
_RESULT = ("id", "status", "images", "error")
_OBJECTS = TABLES | {"patternProperties", "definitions"}
_OPEN = ("patternProperties", "$ref", "allOf", "anyOf", "oneOf")
"""Keywords by which a schema may allow more names than its `properties`."""
_BELONGS = {**dict.fromkeys(("whole", "pixels", "further", "size"), ("per",)), "miss": ("table", "cases")}
"""Keys of a price, each with the keys of which it needs one."""
_COUNT = re.compile(
    r"n|count|batch(_size)?"
    r"|(num|number|max|total)_?(of_)?(image|output|result|picture|sample|variation)s?"
    r"|(image|output|result|picture|sample|variation)s?(_(count|number|num|n))?"
)
"""Names under which services take the number of pictures; `numberResults` is read as `number_results`."""
_HELD_BY = ("asked", "times", "by", "cases")
"""Keys of a price from which the hold of a job is computed."""


def image_warnings(document: Document) -> Iterator[Problem]:
    """All warnings about the image part of a provider's file."""
    root = document.root
    yield from _steps(document, lookup(root, "images"), "images")
    yield from _pictureless(document, root)
    yield from _bodiless(document, root)
    yield from _inputs(document, root)
    for name, model in entries_of(lookup(root, "models")).items():
        yield from _steps(document, model, f"models.{name}")
        yield from _schema(document, lookup(model, "input_schema"), f"models.{name}.input_schema")
        yield from _tables(document, model, f"models.{name}")
        yield from _idle(document, lookup(model, "price"), f"models.{name}.price")
        yield from _uncounted(document, model, f"models.{name}")


def _steps(document: Document, holder: Node | None, path: str) -> Iterator[Problem]:
    for name in IMAGE_STEPS:
        result = lookup(holder, name, "result")
        if not isinstance(result, Map):
            continue
        place = f"{path}.{name}.result"
        texts = [each.text for each in (document, *document.included)]
        for word in result.entries:
            if not any(f"$job.{word}" in text or f"$job['{word}']" in text for text in texts):
                yield from _slip(document, result, word, _RESULT, place, "which no later step reads")
        has_status = any(word.startswith("$") or nearest_word(word, ("status",)) for word in result.entries)
        if name == "poll" and not has_status:
            found = "no `status`: a job that is asked for again stays pending until it is given up"
            hint = "status: $.state, its words under `statuses:`"
            yield document.warning(result, f"found {found}", path=place, hint=hint)
        for index, picture in enumerate(items_of(result.get("images"))):
            if isinstance(picture, Map):
                at = f"{place}.images[{index}]"
                for word in picture.entries:
                    yield from _slip(document, picture, word, PICTURE_FIELDS, at, "which no picture has")
                if not any(nearest_word(word, ("url", "data")) or _may_make(word) for word in picture.entries):
                    found = "no `url` and no `data`: a picture has one of them"
                    yield document.warning(picture, f"found {found}", path=at)


def _may_make(word: str) -> bool:
    """Whether a key is a directive that may itself produce fields. A directive that fields stand beside does not."""
    return word.startswith("$") and word not in ("$each", "$let", "$when")


def _pictureless(document: Document, root: Node) -> Iterator[Problem]:
    """Providers where no step's result has a picture: none of their jobs can succeed."""
    holders = [lookup(root, "images"), *entries_of(lookup(root, "models")).values()]
    found = [lookup(holder, name, "result") for holder in holders for name in ("submit", "poll", "fetch")]
    results = [result for result in found if result is not None]
    # a template that is no plain object may have one, and so may a misspelt key, which has its own warning
    if results and all(
        isinstance(each, Map) and not any(_may_make(word) or nearest_word(word, ("images",)) for word in each.entries)
        for each in results
    ):
        hint = "images: [{url: $.url}], in the result of the last step, or in that of a `poll` or `fetch` behind it"
        yield document.warning(results[-1], "found no `images` in the result of any step", path="images", hint=hint)


def _bodiless(document: Document, root: Node) -> Iterator[Problem]:
    """Steps whose `encoding` says how a body is sent, while neither they nor what they are combined with, the step of
    the provider or those of its models, have one."""
    models = entries_of(lookup(root, "models"))
    for name in () if "models_from" in entries_of(root) else IMAGE_STEPS:
        shared = lookup(root, "images", name)
        own = {f"models.{model}.{name}": lookup(node, name) for model, node in models.items()}
        for path, step in {f"images.{name}": shared, **own}.items():
            beside = own.values() if step is shared else (shared,)
            if (
                isinstance(step, Map)
                and "encoding" in step.entries
                and not any(lookup(each, "body") for each in (step, *beside))
            ):
                message = "has no effect without `body`"
                yield document.warning(step.keys["encoding"], message, path=f"{path}.encoding")


def _inputs(document: Document, root: Node) -> Iterator[Problem]:
    """Names read from `$input` that no model's schema has; where a schema may allow others, only those that are close
    to one it has."""
    all_known = not {"models_from", "discover"} & entries_of(root).keys()
    models = entries_of(lookup(root, "models")).values()
    known: dict[str, None] = {}
    for model in models:
        names = entries_of(lookup(model, "input_schema", "properties"))
        known |= dict.fromkeys(names)
        all_known = all_known and bool(names) and not set(_OPEN) & entries_of(lookup(model, "input_schema")).keys()
    prices = ((lookup(model, "price"), "price") for model in models)
    read = [
        (path, node, name)
        for holder, path in ((lookup(root, "images"), "images"), *prices)
        for node in (walk(holder) if known else ())
        for name in _INPUT.findall(text_in(node) or "")
    ]
    for path, node, name in read:
        if name not in known and (all_known or nearest_word(name, known)):
            message, hint = f"found `$input.{name}`, which no `input_schema` has", nearest_or_all(name, known)
            yield document.warning(node, message, path=path, hint=hint)


def _schema(document: Document, node: Node | None, path: str) -> Iterator[Problem]:
    if not isinstance(node, Map):
        return
    yield from _unfit(document, node, path)
    for word, inner in node.entries.items():
        yield from _slip(document, node, word, KEYWORDS, path, "which says nothing in a JSON Schema")
        if word in _OBJECTS:
            for name, each in entries_of(inner).items():
                yield from _schema(document, each, f"{path}.{word}.{name}")
        elif word in SCHEMAS:
            yield from _schema(document, inner, f"{path}.{word}")
        elif word in CHOICES:
            for index, each in enumerate(items_of(inner)):
                yield from _schema(document, each, f"{path}.{word}[{index}]")


def _unfit(document: Document, node: Map, path: str) -> Iterator[Problem]:
    """Properties that a schema requires and does not have, and defaults that it would refuse: jobs would fail."""
    properties = node.get("properties")
    for item in items_of(node.get("required")):
        name = str(item.value) if isinstance(item, Scalar) else ""
        if isinstance(properties, Map) and name not in properties.entries and not node.entries.keys() & set(_OPEN):
            yield document.warning(
                item,
                f"found `{name}`, which is none of the `properties`",
                path=f"{path}.required",
                hint=did_you_mean(name, properties.entries),
            )
    default, kind, words = node.get("default"), node.get("type"), node.get("enum")
    if not isinstance(default, Scalar) or default.value is None:
        return
    name = text_in(kind) or ""
    if type(default.value) not in VALUES.get(name, (type(default.value),)):
        wanted = f"of type {name}"
    elif isinstance(words, List) and default.value not in map(plain, words.items):
        wanted = "out of its `enum`"
    else:
        return
    message = f"found the default {default.text}, wanted one {wanted}"
    yield document.warning(default, message, path=f"{path}.default")


def _tables(document: Document, model: Node, path: str) -> Iterator[Problem]:
    """Keys of a price table that the input they stand for cannot have: these prices would never apply."""
    level = [lookup(model, "price", "table")]
    for item in items_of(lookup(model, "price", "by")):
        text = text_in(item) or ""
        if text and "$" not in text:
            message, hint = f"found the text `{text}`, which is the same for every job", f"write $input.{text}"
            yield document.warning(item, message, path=f"{path}.price.by", hint=hint)
        named = _INPUT.fullmatch(text)
        words = lookup(model, "input_schema", "properties", named[1], "enum") if named else None
        known = [str(plain(word)) for word in items_of(words)]
        tables = [table for table in level if isinstance(table, Map)]
        labels = [each for table in tables for each in table.keys.items()] if known else []
        for label, mark in labels:
            if label not in known:
                message = f"found `{label}`, which the input never is"
                yield document.warning(mark, message, path=f"{path}.price.table", hint=nearest_or_all(label, known))
        unlisted = [f"`{word}`" for word in known if not any(word in table.entries for table in tables)]
        if tables and unlisted and _lists_all(lookup(model, "price")):
            message = f"found no {', '.join(unlisted)} of `{text}`, which the input may be and which costs `price`"
            yield document.warning(tables[0], message, path=f"{path}.price.table", hint="or say so: miss: price")
        level = [child for table in tables for child in table.entries.values()]


def _lists_all(price: Node | None) -> bool:
    """Whether a price block seems to list every price in its `table`: `price` is that of an entry there and nothing is
    said about others. Where the table has only what differs from `price`, it is not."""
    entries = entries_of(price)
    shown = text_in(entries.get("price"))
    listed = (text_in(node) for node in walk(entries.get("table")))
    return not {"cases", "miss"} & entries.keys() and shown is not None and shown in listed


def _idle(document: Document, price: Node | None, path: str) -> Iterator[Problem]:
    """Keys of a price that change nothing, because the key that they belong to is missing."""
    for key, needed in _BELONGS.items():
        if isinstance(price, Map) and key in price.entries and not price.entries.keys() & set(needed):
            message = f"has no effect without {' or '.join(f'`{each}`' for each in needed)}"
            yield document.warning(price.keys[key], message, path=f"{path}.{key}")


def _uncounted(document: Document, model: Node, path: str) -> Iterator[Problem]:
    """Properties for the number of pictures that no key of the price reads from which the hold is computed: jobs beside
    each other could then cost more than the account has."""
    price = lookup(model, "price")
    properties = lookup(model, "input_schema", "properties")
    if not isinstance(price, Map) or not isinstance(properties, Map) or _is_free(price):
        return
    texts = [text_in(node) or "" for key in _HELD_BY for node in walk(price.entries.get(key))]
    if any(re.search(r"\$(\.input|input)\b(?!\.)", text) for text in texts):  # the whole input, to a function
        return
    read = {name for text in texts for name in _INPUT.findall(text)}
    for name, rule in entries_of(properties).items():
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        if name not in read and _COUNT.fullmatch(words) and _may_be_many(rule):
            message = "is a number of pictures that `price.asked` does not read: what is held is the price of one"
            yield document.warning(
                properties.keys[name],
                message,
                path=f"{path}.input_schema.properties.{name}",
                hint=f"asked: $input.{name}",
            )


def _is_free(price: Map) -> bool:
    shown = text_in(price.entries.get("price")) or ""
    return not price.entries.keys() - {"price", "currency", "unit", "why"} and not shown.strip("0.")


def _may_be_many(rule: Node) -> bool:
    """Whether a property is a number that may be more than one."""
    schema = plain(rule)
    if not isinstance(schema, dict) or "const" in schema:
        return False
    kinds = schema.get("type")
    is_number = bool({"integer", "number"} & set(kinds if isinstance(kinds, list) else [str(kinds)]))
    return is_number and schema.get("maximum") != 1 and schema.get("enum") != [1]


def _slip(document: Document, holder: Map, word: str, known: Iterable[str], path: str, why: str) -> Iterator[Problem]:
    if word in known or word.startswith(("$", "x-")):
        return
    near = nearest_word(word, known)
    if near and near not in holder.entries:
        yield document.warning(holder.keys[word], f"found `{word}`, {why}", path=path, hint=f"did you mean `{near}`?")
