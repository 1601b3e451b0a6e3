"""Warnings about `errors:` of a provider file: statuses and rules that never take effect, or for too many answers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tollgate.config.load import Map, Node, Problem, Scalar, items_of, lookup, one_or_many, text_in, walk
from tollgate.config.model import Provider
from tollgate.config.provider_schema import ERROR_LISTS

_PRESENT = re.compile(r"(\$\.\w+)( is present)?")
"""A condition that holds for every body that has a field."""

_FIELD_IS = re.compile(r"(?:\.\w+)+ (?:==|in) (?!.*(?:\bor\b|\bif\b|\bnone\b|!=)).+", re.DOTALL)
"""What is behind the path of a field in a condition that a field below it has one of some values, and perhaps more."""


def error_warnings(provider: Provider, errors: Node | None, path: str) -> Iterator[Problem]:
    """All warnings about one such block."""
    yield from _lists(provider, errors, path)
    yield from _rules(provider, errors, path)


def _lists(provider: Provider, errors: Node | None, path: str) -> Iterator[Problem]:
    """A status that is listed twice, or is none of an error."""
    named: dict[int, str] = {}
    for name in ERROR_LISTS:
        for item in items_of(lookup(errors, name)):
            status = item.value if isinstance(item, Scalar) else None
            if not isinstance(status, int):
                continue
            if named.setdefault(status, name) != name:
                message = f"found {status}, which stands under `{named[status]}` and is asked for there first"
                yield provider.document.warning(item, message, f"{path}.{name}")
            if 200 <= status < 300:
                message = f"found {status}, which is no error: only one of the `rules` can make it one"
                hint = "rules: [{status: 200, when: $.error_code, verdict: next}]"
                yield provider.document.warning(item, message, f"{path}.{name}", hint)


def _rules(provider: Provider, errors: Node | None, path: str) -> Iterator[Problem]:
    """Rules that are never reached, and those that hold for too many answers."""
    before: list[tuple[str | None, frozenset[object]]] = []
    for place, rule in enumerate(items_of(lookup(errors, "rules"))):
        if not isinstance(rule, Map):
            continue
        when = rule.get("when")
        text = str(when.value).strip() if isinstance(when, Scalar) else None
        statuses = frozenset(item.value for item in one_or_many(rule.get("status")) if isinstance(item, Scalar))
        for number, (test, codes) in enumerate(before):
            if (test in (None, text) or _implied(test, text)) and (not codes or statuses and statuses <= codes):
                message = f"never reached: rules[{number}] takes every answer this one is for"
                yield provider.document.warning(rule, message, f"{path}.rules[{place}]")
                break
        before.append((text, statuses))
        if when is None and 200 in statuses and "verdict" in rule.entries:
            message, hint = "makes an error of every good answer", "say which, such as when: $.error_code"
            yield provider.document.warning(rule, message, f"{path}.rules[{place}]", hint)
        if "alarm" in rule.entries and text_in(rule.get("verdict")) == "stop":
            message = "has no effect beside `verdict: stop`, which says that the caller is at fault"
            yield provider.document.warning(
                rule.keys["alarm"], message, f"{path}.rules[{place}].alarm", "verdict: next"
            )
        if rule.get("status") is None and (found := _too_wide(errors, rule, text)):
            yield provider.document.warning(rule, found[0], f"{path}.rules[{place}]", found[1])


def _implied(test: str | None, text: str | None) -> bool:
    """Whether a rule with the condition `test` takes every answer for which `text` holds: `$.error` those of
    `$.error.code == 'x'`."""
    field = _PRESENT.fullmatch(test or "")
    return bool(field and _FIELD_IS.match(text or "", len(field[1])) and (text or "").startswith(field[1]))


def _too_wide(errors: Node | None, rule: Map, when: str | None) -> tuple[str, str] | None:
    """Why a rule without `status` holds for too many answers, and a hint; None if it does not."""
    if "as" in rule.entries:
        message = "`as` without `status` hides the status of every answer this rule is for, a 401 or a 429 too"
        return message, "say which, such as status: 200"
    if when is not None and (read := _field_of_every_error(errors, when)):
        message = (
            f"holds for every error body in which `{read}` is found, so a 400, a 401 or a 429 is no longer judged "
            "by its status"
        )
        return message, "add the statuses it is for, such as status: 200"
    return None


def _field_of_every_error(errors: Node | None, when: str) -> str:
    """The key of `errors:` (message, type or code) that reads the field which is the whole condition `when`, or "".
    Such a condition holds for every error body: `$.errors` beside `message: $.errors[0].message`."""
    condition = _PRESENT.fullmatch(when)
    if condition is None:
        return ""
    inside = re.compile(re.escape(condition[1]) + r"(?![\w-])")
    for name in ("message", "type", "code"):
        texts = [text_in(inner) or "" for inner in walk(lookup(errors, name))]
        if texts and all(inside.search(text) for text in texts if "$" in text):
            return name
    return ""
