"""Imports never go up a floor, every module has a floor, no test module is imported, and no vendor is named in the
code."""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

from support.places import ROOT

SOURCE = ROOT / "src" / "tollgate"
TESTS = ROOT / "tests"

FLOORS = {
    0: "addresses content_encoding errors forms multipart json_bounds wire sse money measures media_types outage "
    "passwords process room steady_time wording",
    1: "config",
    2: "mapping catalog model_entry catalog_import routing health usage tariff charge runtime public_errors",
    3: "upstream ledger tokens tokenizer fetch remembered sandbox metrics start_cache",
    4: "services completions embeddings images accounts notations reload watched_files discovery limit_headers",
    5: "auth client_address replies endpoints listing_reply monitoring cors tools dashboard app engines server cli "
    "http request_body __main__",
}
"""As in `docs/building.md`. A package counts as one module."""

FLOOR_OF = {name: floor for floor, names in FLOORS.items() for name in names.split()}
FILES = sorted(SOURCE.rglob("*.py"))


def relative(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def module_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(tree: ast.AST):
    """The tollgate modules that a file imports at run time: (line, first part of the name). Imports for type checkers
    do not count."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            stack.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("tollgate."):
                    yield node.lineno, alias.name.split(".")[1]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            if node.module == "tollgate":
                yield from ((node.lineno, alias.name) for alias in node.names if alias.name in FLOOR_OF)
            elif node.module.startswith("tollgate."):
                yield node.lineno, node.module.split(".")[1]
        stack.extend(ast.iter_child_nodes(node))


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_imports_never_go_up(path):
    module = module_of(path)
    if module == "__init__":
        return
    assert module in FLOOR_OF, f"{module} has no floor: give it one in the table of this file and in docs/building.md"
    for line, imported in imports(ast.parse(path.read_text("utf-8"))):
        assert imported in FLOOR_OF, f"{relative(path)}:{line} imports {imported}, which has no floor"
        assert FLOOR_OF[imported] <= FLOOR_OF[module], (
            f"{relative(path)}:{line} imports {imported}, which is on a floor above {module}"
        )


def test_building_has_the_same_floors():
    rows = re.findall(r"^\| (\d) \w+ \| (.*) \|$", (ROOT / "docs" / "building.md").read_text("utf-8"), re.MULTILINE)
    written = {int(floor): {name.removesuffix("/*") for name in re.findall(r"`([\w/*]+)`", row)} for floor, row in rows}
    assert written == {floor: set(names.split()) - {"__main__"} for floor, names in FLOORS.items()}


def test_no_test_module_is_imported():
    """What several test modules need is in a module of its own: beside them, or in tests/support."""
    importing = [
        f"{path.relative_to(TESTS)}:{number}"
        for path in sorted(TESTS.rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if re.match(r"\s*(from|import)\s.*\btest_\w+", line)
    ]
    assert importing == []


def test_the_lowest_modules_import_next_to_nothing():
    """Only the listed imports are allowed."""
    for path in FILES:
        if module_of(path) in ("errors", "wire", "sse", "money"):
            assert {name for _, name in imports(ast.parse(path.read_text("utf-8")))} <= {"errors", "money", "wire"}, (
                path
            )


# -- vendors ----------------------------------------------------------------------------------------------------------

GENERIC = {"cny", "images", "models", "sandbox", "labs", "black", "forest", "together", "ideogram"}
"""Parts of provider names that are common words, and our own sandbox."""
FORMAT_NAMES = re.compile(r"gemini\b", re.IGNORECASE)
"""The name of a wire format's mapping."""


def vendors() -> list[str]:
    parts = {part for path in (ROOT / "providers").glob("*.yaml") for part in path.stem.split("-")}
    return sorted(part for part in parts - GENERIC if len(part) > 2)


def words_of(path: Path):
    """Yields (line, text) of all names and strings, without comments and docstrings."""
    text = path.read_text("utf-8")
    docs = set()
    for node in ast.walk(ast.parse(text)):
        for inner in getattr(node, "body", ()) if isinstance(getattr(node, "body", None), list) else ():
            if (
                isinstance(inner, ast.Expr)
                and isinstance(inner.value, ast.Constant)
                and isinstance(inner.value.value, str)
            ):
                docs.update(range(inner.lineno, inner.end_lineno + 1))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.NAME, tokenize.STRING) and token.start[0] not in docs:
            yield token.start[0], token.string


def test_no_vendor_is_named_in_the_code():
    known = re.compile(rf"(?<![a-z])({'|'.join(map(re.escape, vendors()))})(?![a-z])", re.IGNORECASE)
    files = [  # most files mention no vendor, even in comments
        path
        for path in FILES
        if known.search(text := path.read_text("utf-8")) or known.search(FORMAT_NAMES.sub("", text))
    ]
    found = [
        f"{relative(path)}:{line}: {text[:80]}"
        for path in files
        for line, text in words_of(path)
        if known.search(FORMAT_NAMES.sub("", text))
    ]
    assert not found, "vendor names belong in providers/ and mappings/:\n" + "\n".join(found)


def test_the_vendor_list_contains_well_known_names():
    assert {"openai", "anthropic", "azure", "openrouter"} <= set(vendors())
