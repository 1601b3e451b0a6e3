"""The cache of an earlier start is used only if it certainly equals what this start would compute."""

from __future__ import annotations

import ast
import marshal
import os
import pickle
import shutil
from pathlib import Path

import pytest

from tollgate import start_cache
from tollgate.config import load, reusable_bytes
from tollgate.config.build import load_gateway
from tollgate.config.load import read_text
from tollgate.config.reusable_bytes import dump_reusable, load_reusable
from tollgate.mapping import code_cache, compiler, emit
from tollgate.mapping.code_cache import CodeCache
from tollgate.mapping.compiler import compile_mapping
from tollgate.mapping.emit import using_code_cache
from tollgate.mapping.filter_table import Filter
from tollgate.start_cache import StartCache

TEXT = """
mapping: acme
error:
  to_hub:
    message: "{{ $.error.message | upper }}"
    code: $.error.code
"""


def _build(code, text=TEXT, name="acme.yaml"):
    with using_code_cache(code):
        return compile_mapping(read_text(text, name))


PROVIDER = """
provider: acme
url: https://acme.example/v1
speaks: {chat: /chat/completions}
headers: {Authorization: "Bearer {{ $secret.ACME_KEY }}"}
models: {acme/large: {price: {prompt: "0.10", completion: "9999", unit: 1000000}}}
"""
CANARY = "sk-canary-0123456789"


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    """A loaded configuration of one provider with its secret."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gateway.yaml").write_text("")
    (tmp_path / "providers").mkdir()
    (tmp_path / "providers" / "acme.yaml").write_text(PROVIDER)
    return _load()


def _load(previous=None):
    return load_gateway(environ={"ACME_KEY": CANARY}, previous=previous)


@pytest.fixture
def store(tmp_path, loaded):
    """The store folder after one start."""
    folder = tmp_path / "var"
    cache = StartCache(folder)
    _build(cache.code)
    assert cache.code.made == 1 and cache.write(loaded)
    return folder


@pytest.fixture(params=[start_cache.CODE, start_cache.FILES])
def file(store, request):
    return store / start_cache.FOLDER / request.param


def _is_used(store, file):
    """Whether the next start uses the contents of the file."""
    cache = StartCache(store)
    if file.name == start_cache.FILES:
        return cache.reusable is not None
    _build(cache.code)
    return not cache.code.made


def _code_of(mapping):
    return {function.__name__: function.__code__ for function in mapping.generated}


def test_a_second_start_compiles_nothing_and_gets_the_same_code(store, loaded, monkeypatch):
    fresh = _build(None)
    monkeypatch.setattr(emit.Module, "_compiled", lambda *_: pytest.fail("compiled"))
    cache = StartCache(store)
    again = _build(cache.code)
    assert cache.code.made == 0 and not cache.code.changed
    assert {name: marshal.dumps(made) for name, made in _code_of(again).items()} == {
        name: marshal.dumps(made) for name, made in _code_of(fresh).items()
    }
    assert [list(made.co_lines()) for made in _code_of(again).values()] == [
        list(made.co_lines()) for made in _code_of(fresh).values()
    ]
    assert again.sections["error.to_hub"]({"error": {"message": "no", "code": "x"}}, None) == {
        "message": "NO",
        "code": "x",
    }
    assert not cache.write(_load(cache.reusable))


MANY = (
    TEXT
    + """
  from_hub:
    type: {$match: $.code, x: one, y: two, z: three, else: none}
    known: "{{ 'a' in $..deep }}"
define: {unused($a): $a}
"""
)


@pytest.mark.parametrize("text", [TEXT, MANY], ids=["filter", "table, search, warning"])
def test_a_second_start_restores_a_mapping_unchanged(tmp_path, loaded, text, monkeypatch):
    cache = StartCache(tmp_path / "var")
    fresh = _build(cache.code, text)
    assert cache.write(loaded)
    monkeypatch.setattr(compiler, "compile_file", lambda *_: pytest.fail("compiled"))
    monkeypatch.setattr(load, "read_text", lambda *_: pytest.fail("read"))
    document = load.Document("acme.yaml", text, None)
    cache = StartCache(tmp_path / "var")
    with using_code_cache(cache.code):
        again = compile_mapping(document)
    assert not cache.code.changed
    assert (again.name, again.warnings, again.sections.keys(), again.walkers.keys()) == (
        fresh.name,
        fresh.warnings,
        fresh.sections.keys(),
        fresh.walkers.keys(),
    )
    for name, value in (
        ("error.to_hub", {"error": {"message": "no", "code": "x"}}),
        ("error.from_hub", {"code": "y", "b": {"deep": "a"}}),
    ):
        if name in fresh.sections:
            assert again.sections[name](value, None) == fresh.sections[name](value, None)


def test_a_mapping_with_plugin_filters_is_compiled(store):
    with using_code_cache(StartCache(store).code):
        mapping = compile_mapping(
            read_text(TEXT, "acme.yaml"), plugins={"upper": Filter("upper", lambda value: f"<{value}>")}
        )
    assert mapping.sections["error.to_hub"]({"error": {"message": "no"}}, None) == {"message": "<no>"}


def test_a_changed_comment_compiles_nothing(store, loaded):
    cache = StartCache(store)
    _build(cache.code, TEXT + "# more\n")
    assert cache.code.made == 0 and cache.write(loaded)
    cache = StartCache(store)
    _build(cache.code, TEXT + "# more\n")
    assert not cache.code.changed


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (TEXT.replace("upper", "lower"), "acme.yaml"),
        ("\n" + TEXT, "acme.yaml"),
        (TEXT, "other.yaml"),
    ],
    ids=["other text", "other lines", "other file"],
)
def test_changed_text_lines_or_names_are_compiled(store, loaded, text, name):
    cache = StartCache(store)
    _build(cache.code, text, name)
    assert cache.code.made == 1 and cache.write(loaded)
    cache = StartCache(store)
    _build(cache.code, text, name)
    assert cache.code.made == 0


def test_unused_code_is_dropped(store, loaded):
    cache = StartCache(store)
    _build(cache.code, "\n" + TEXT)
    _build(cache.code)
    cache.write(loaded)
    both = (store / "cache" / "code.bin").stat().st_size
    cache = StartCache(store)
    _build(cache.code)
    assert cache.code.changed and cache.write(loaded) and (store / "cache" / "code.bin").stat().st_size < both


def test_a_second_start_reads_no_file_again(store, loaded, monkeypatch):
    before = load.read_text
    monkeypatch.setattr(
        load,
        "read_text",
        lambda text, name: before(text, name) if name == "gateway.yaml" else pytest.fail(f"{name} was read"),
    )
    again = _load(StartCache(store).reusable)
    provider, wanted = again.gateway.providers["acme"], loaded.gateway.providers["acme"]
    assert (
        provider.models == wanted.models
        and provider.headers["Authorization"].value == wanted.headers["Authorization"].value
    )
    assert (again.warnings, again.notes, again.secrets.get("ACME_KEY")) == (loaded.warnings, loaded.notes, CANARY)
    assert again.warnings and again.gateway.files == loaded.gateway.files


def test_a_changed_file_is_read_again(store, tmp_path):
    (tmp_path / "providers" / "acme.yaml").write_text(PROVIDER.replace("9999", "1"))
    cache = StartCache(store)
    again = _load(cache.reusable)
    assert not again.warnings and str(again.gateway.providers["acme"].models[0].price.prices["completion"]) == "1"
    assert cache.write(again) and not _load(StartCache(store).reusable).warnings


def test_no_secret_is_stored(store):
    left = b"".join(path.read_bytes() for path in (store / "cache").iterdir())
    assert b"ACME_KEY" in left and CANARY.encode() not in left


def test_another_working_directory_reads_the_files_again(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path / "providers")  # file names are relative to it
    assert StartCache(store).reusable is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: b"",
        lambda raw: raw[:-5],
        lambda raw: raw[:40] + bytes([raw[40] ^ 1]) + raw[41:],
        lambda raw: raw[:-3] + b"xyz",
        lambda raw: b"\0" * len(raw),
    ],
    ids=["empty", "short", "stamp", "content", "zeros"],
)
def test_a_damaged_file_is_ignored_and_replaced(store, file, loaded, damage):
    file.write_bytes(damage(file.read_bytes()))
    assert not _is_used(store, file)
    cache = StartCache(store)
    _build(cache.code)
    assert cache.write(loaded) and _is_used(store, file)


@pytest.mark.parametrize(
    "payload",
    [marshal.dumps([1]), marshal.dumps({b"k": "no code"}), marshal.dumps({"k": compile("1", "x", "eval")}), b"?"],
    ids=["list", "value", "key", "no marshal"],
)
def test_an_invalid_code_table_is_rejected(payload):
    with pytest.raises(ValueError, match="not a table of code"):
        CodeCache.load(payload)


@pytest.mark.parametrize(
    "payload",
    [pickle.dumps(os.system), pickle.dumps((1, 2)), b"", b"?", pickle.dumps({})],
    ids=["function", "short", "empty", "no pickle", "dict"],
)
def test_an_invalid_files_cache_is_rejected(payload):
    with pytest.raises(ValueError, match="not what files came to"):
        load_reusable(payload)


def test_files_are_restored_completely(loaded):
    reusable = load_reusable(dump_reusable(loaded.reusable))
    assert reusable is not None and set(reusable.documents()) == set(loaded.reusable.documents())
    assert not reusable.same(loaded.reusable) and reusable.same(reusable)


@pytest.mark.parametrize("target", ["file", "folder"])
def test_a_cache_that_others_can_write_is_not_used(store, file, target, caplog):
    os.chmod(file if target == "file" else file.parent, 0o722)
    caplog.set_level("INFO")
    assert not _is_used(store, file) and "can be written by others" in caplog.text


def test_a_cache_of_another_user_is_not_used(store, file, loaded, monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    assert not _is_used(store, file) and "belongs to another user" in caplog.text
    cache = StartCache(store)
    _build(cache.code)
    assert not cache.write(loaded)


def test_a_checksum_error_is_found_before_anything_is_decoded(store, file, monkeypatch, caplog):
    caplog.set_level("INFO")
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    decoded = []
    for owner, name in ((CodeCache, "load"), (start_cache, "load_reusable")):
        monkeypatch.setattr(owner, name, lambda payload: decoded.append(bytes(payload[-9:])))
    StartCache(store)
    assert raw[-9:] not in decoded and "its checksum is wrong" in caplog.text


def test_a_file_of_implausible_size_is_not_read(store, file, caplog):
    caplog.set_level("INFO")
    with open(file, "r+b") as written:
        written.truncate(1 << 40)
    assert not _is_used(store, file) and "is not a regular file, or is too large" in caplog.text


def test_a_symbolic_link_is_not_followed(store, file, loaded, tmp_path):
    elsewhere = tmp_path / "elsewhere.bin"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    assert not _is_used(store, file)
    cache = StartCache(store)
    _build(cache.code)
    assert cache.write(loaded) and not file.is_symlink()


def test_another_python_compiles_again(store, monkeypatch):
    monkeypatch.setattr(code_cache.importlib.util, "MAGIC_NUMBER", b"next")
    assert not _is_used(store, store / "cache" / "code.bin")


@pytest.fixture
def package(store, monkeypatch, tmp_path):
    """A copy of the package, from which the stamps are computed."""
    copy = tmp_path / "tollgate"
    shutil.copytree(Path(start_cache.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(code_cache, "__file__", str(copy / "mapping" / "code_cache.py"))
    monkeypatch.setattr(reusable_bytes, "__file__", str(copy / "config" / "reusable_bytes.py"))
    return copy


@pytest.mark.parametrize(
    ("changed", "used"),
    [
        ("mapping/directives/when.py", ["files.bin"]),
        ("config/accept.py", []),
        ("wording.py", []),
        ("http.py", ["code.bin", "files.bin"]),
    ],
)
def test_another_version_of_the_code_that_reads_files_is_not_mixed_with_this_one(store, package, changed, used):
    assert _is_used(store, store / "cache" / "code.bin") and _is_used(store, store / "cache" / "files.bin")
    with (package / changed).open("a") as file:
        file.write("# changed")
    assert [name for name in ("code.bin", "files.bin") if _is_used(store, store / "cache" / name)] == used


def test_the_cache_knows_every_module_that_reads_a_configuration():
    """Except the collector of garbage, which changes no result."""
    folder = Path(reusable_bytes.__file__).parent
    imports = {
        node.module
        for file in folder.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom)
    }
    outside = {name for name in imports if name.startswith("tollgate.") and not name.startswith("tollgate.config")}
    known = {f"tollgate.{name}" for name in reusable_bytes._ALSO_READING}
    assert outside - known == {"tollgate.process.garbage_collector"} and known <= outside


def test_another_yaml_version_reads_the_files_again(store, monkeypatch):
    monkeypatch.setattr(reusable_bytes.yaml, "__version__", "next")
    assert StartCache(store).reusable is None


def test_files_and_folder_are_accessible_to_their_owner_only(store):
    folder = store / "cache"
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "code.bin": 0o600,
        "files.bin": 0o600,
    }
    assert (folder.stat().st_mode & 0o777, store.stat().st_mode & 0o777) == (0o700, 0o700)


def test_a_failed_write_leaves_no_temporary_file(store, loaded, monkeypatch, caplog):
    caplog.set_level("INFO")
    cache = StartCache(store)
    _build(cache.code, TEXT.replace("upper", "lower"))

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", fail)
    assert not cache.write(loaded) and "cannot be written: no space left" in caplog.text
    assert {path.name for path in (store / "cache").iterdir()} == {"code.bin", "files.bin"}


def test_a_write_without_file_descriptors_raises_nothing(store, loaded, monkeypatch, caplog):
    """It ended with a traceback the work that frees memory after a start: our own code could not be listed."""
    caplog.set_level("INFO")
    cache = StartCache(store)
    _build(cache.code, TEXT.replace("upper", "lower"))

    def fail():
        raise OSError("too many open files")

    monkeypatch.setattr(start_cache, "stamp", fail)
    cache.write(loaded)
    assert "code.bin cannot be written: too many open files" in caplog.text


def test_a_store_that_cannot_be_written_raises_nothing(tmp_path, loaded):
    (tmp_path / "store").write_text("a file")
    cache = StartCache(tmp_path / "store")
    _build(cache.code)
    assert not cache.write(loaded)
