"""Plugins: Python modules whose public functions become filters of the mapping language.

`plugins: [acme_filters]` in the gateway file. A function takes a value (and positional arguments) and returns a value;
it gets no context. If it raises, only the conversion that used it fails.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import wait
from types import ModuleType
from typing import Any

from tollgate.config.load import Problem
from tollgate.config.settings import Plugin
from tollgate.errors import ConfigErrors
from tollgate.mapping.failures import Fault
from tollgate.mapping.filter_table import FILTERS, Filter, arguments_of
from tollgate.process.concurrency import in_daemon_thread

log = logging.getLogger("tollgate.plugins")

_NOTICE_SECONDS = 5.0
"""After this time the log names a module that is still being imported; most take a few milliseconds."""
_IMPORT_SECONDS = 60.0
"""After this time an import is given up: a start fails, a reload keeps the running configuration. Large libraries
take some ten seconds on a slow disk."""


def load_plugins(plugins: Iterable[Plugin]) -> dict[str, Filter]:
    """The filters of these modules, by name. Raises `ConfigErrors` for a module that cannot be imported or a name
    that is taken."""
    found: dict[str, Filter] = {}
    problems = [
        Problem(plugin.mark, f"plugin `{plugin.module}`{wrong}", "plugins", hint)
        for plugin in plugins
        for wrong, hint in _load(plugin.module, found)
    ]
    if problems:
        raise ConfigErrors(problems)
    return found


def _load(name: str, found: dict[str, Filter]) -> Iterator[tuple[str, str]]:
    """Put the filters of a module into `found`; gives its mistakes, each with a hint."""
    try:
        module = _imported(name)
    except (Exception, SystemExit) as error:  # a script that calls sys.exit would end the gateway
        yield f" cannot be imported: {type(error).__name__}: {error}", ""
        return
    if module is None:
        hint = "a module may not wait for anything as it is imported"
        yield f" is still being imported after {_IMPORT_SECONDS:g} s", hint
        return
    functions = _functions(module)
    if not functions:
        yield " has no public function", ""
    for function_name, function in functions.items():
        if function_name in FILTERS or function_name in found:
            yield f": `{function_name}` is a filter already", "choose another name"
        elif (made := _filter(function_name, function)) is None:
            yield f": `{function_name}` takes no value by place", "def name(value, ...)"
        else:
            found[function_name] = made


def _imported(name: str) -> ModuleType | None:
    """The module, imported in a thread that is abandoned if it hangs (then None), so that it cannot keep the process
    from ending either. Raises what the import raises."""
    done = in_daemon_thread(lambda: importlib.import_module(name), f"import {name}")
    if not wait([done], _NOTICE_SECONDS).done:
        log.warning(
            "plugin `%s` is being imported for %g s now; the configuration that names it waits", name, _NOTICE_SECONDS
        )
        if not wait([done], _IMPORT_SECONDS - _NOTICE_SECONDS).done:
            return None
    return done.result()


def _functions(module: ModuleType) -> dict[str, Callable[..., Any]]:
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    }


def _filter(name: str, function: Callable[..., Any]) -> Filter | None:
    places = [
        p
        for p in inspect.signature(function).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if not places:
        return None
    about = (inspect.getdoc(function) or "").split("\n")[0]

    @functools.wraps(function)
    def run(*values: Any) -> Any:
        try:
            return function(*values)
        except Exception as error:
            raise Fault(f"plugin filter `{name}` failed: {type(error).__name__}: {error}") from error

    return Filter(name, run, *arguments_of(places[1:]), about)
