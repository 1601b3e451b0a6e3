"""Compiled code is taken from an earlier start only when it is certainly what compiling would give."""

from __future__ import annotations

import marshal
import os

import pytest

from tollgate import code_cache
from tollgate.code_cache import read_code, write_code
from tollgate.config.load import read_text
from tollgate.mapping import emit, kept
from tollgate.mapping.compiler import compile_mapping
from tollgate.mapping.emit import keeping
from tollgate.mapping.kept import KeptCode

TEXT = """
mapping: acme
error:
  to_hub:
    message: "{{ $.error.message | upper }}"
    code: $.error.code
"""


def _build(code, text=TEXT, name="acme.yaml"):
    with keeping(code):
        return compile_mapping(read_text(text, name))


@pytest.fixture
def store(tmp_path):
    """A store's folder after one start."""
    code = read_code(tmp_path)
    _build(code)
    assert code.made == 1 and write_code(tmp_path, code)
    return tmp_path


@pytest.fixture
def file(store):
    return store / code_cache.FOLDER / code_cache.FILE


def _code_of(mapping):
    return {function.__name__: function.__code__ for function in mapping.generated}


def test_a_second_start_compiles_nothing_and_gets_the_same(store, monkeypatch):
    fresh = _build(None)
    monkeypatch.setattr(emit.Module, "_compiled", lambda *_: pytest.fail("compiled"))
    code = read_code(store)
    again = _build(code)
    assert code.made == 0 and not code.changed and not write_code(store, code)
    assert {name: marshal.dumps(made) for name, made in _code_of(again).items()} == {name: marshal.dumps(made) for name, made in _code_of(fresh).items()}
    assert [list(made.co_lines()) for made in _code_of(again).values()] == [list(made.co_lines()) for made in _code_of(fresh).values()]
    assert again.section("error.to_hub")({"error": {"message": "no", "code": "x"}}, None) == {"message": "NO", "code": "x"}


@pytest.mark.parametrize(("text", "name"), [
    (TEXT.replace("upper", "lower"), "acme.yaml"), ("\n" + TEXT, "acme.yaml"), (TEXT, "other.yaml"),
], ids=["other text", "other lines", "other file"])
def test_what_changed_is_compiled(store, text, name):
    code = read_code(store)
    _build(code, text, name)
    assert code.made == 1
    assert write_code(store, code)
    next_start = read_code(store)
    _build(next_start, text, name)
    assert next_start.made == 0


def test_what_nobody_used_is_forgotten(store, file):
    code = read_code(store)
    _build(code, "\n" + TEXT)
    _build(code)
    write_code(store, code)
    both = file.stat().st_size
    code = read_code(store)
    _build(code)
    assert code.changed and write_code(store, code) and file.stat().st_size < both


@pytest.mark.parametrize("damage", [
    lambda raw: b"", lambda raw: raw[:-5], lambda raw: raw[:40] + b"x" + raw[41:], lambda raw: raw[:-3] + b"xyz", lambda raw: b"\0" * len(raw),
], ids=["empty", "short", "stamp", "code", "zeros"])
def test_a_damaged_file_is_passed_over_and_replaced(store, file, damage):
    raw = file.read_bytes()
    file.write_bytes(damage(raw))
    code = read_code(store)
    _build(code)
    assert code.made == 1 and write_code(store, code)
    assert read_code(store).get(next(iter(code._used))) is not None


@pytest.mark.parametrize("payload", [marshal.dumps([1]), marshal.dumps({b"k": "no code"}), marshal.dumps({"k": compile("1", "x", "eval")}), b"?"],
                         ids=["list", "value", "key", "no marshal"])
def test_a_table_of_another_kind_is_refused(payload):
    with pytest.raises(ValueError, match="not a table of code"):
        KeptCode.load(payload)


@pytest.mark.parametrize("target", ["file", "folder"])
def test_what_others_can_write_is_not_run(store, file, target, caplog):
    os.chmod(file if target == "file" else file.parent, 0o722)
    caplog.set_level("INFO")
    code = read_code(store)
    _build(code)
    assert code.made == 1 and "can be written by others" in caplog.text


def test_another_users_file_is_not_run(store, file, monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    code = read_code(store)
    _build(code)
    assert code.made == 1 and "belongs to another user" in caplog.text
    assert not write_code(store, code)


def test_a_link_is_not_followed(store, file, tmp_path):
    elsewhere = tmp_path / "elsewhere.bin"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    code = read_code(store)
    _build(code)
    assert code.made == 1
    assert write_code(store, code) and not file.is_symlink()


@pytest.mark.parametrize("part", ["engine", "python"])
def test_another_version_compiles_anew(store, part, monkeypatch, tmp_path):
    if part == "python":
        monkeypatch.setattr(kept.importlib.util, "MAGIC_NUMBER", b"next")
    else:
        (tmp_path / "emit.py").write_text("changed")
        (tmp_path / "kept.py").write_text("changed")
        monkeypatch.setattr(kept, "__file__", str(tmp_path / "kept.py"))
    code = read_code(store)
    _build(code)
    assert code.made == 1


def test_file_and_folder_are_the_owners_alone(store, file):
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_folder_that_cannot_be_written_is_no_trouble(tmp_path):
    (tmp_path / "store").write_text("a file")
    code = read_code(tmp_path / "store")
    _build(code)
    assert not write_code(tmp_path / "store", code)
