"""Which files are read: a whole folder, a gateway file alone, no file, an installed package."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.files import write_file
from support.places import ROOT
from tollgate.config.build import load_gateway
from tollgate.config.files import defaults_root, matches, unique
from tollgate.errors import ConfigErrors

PROVIDER = "provider: NAME\nurl: https://a.example\nspeaks: {chat: /c}\nmodels: {NAME/m: {}}\n"


def write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        provider = PROVIDER.replace("NAME", path.stem)
        write_file(path, provider if "providers" in name or "more" in name else f"mapping: {path.stem}\n")


@pytest.fixture
def defaults(folder: Path) -> Path:
    """Built-in defaults with a provider and two mappings."""
    root = folder.parent / "defaults"
    write(root, "providers/builtin.yaml", "mappings/chat.yaml", "mappings/messages.yaml")
    (root / "gateway.yaml").write_text("retry: {attempts: 2}\n")
    return root


def test_an_empty_folder_has_the_built_in_configuration(folder: Path, defaults: Path) -> None:
    gateway = load_gateway(environ={}).gateway
    assert (list(gateway.providers), list(gateway.mappings), gateway.retry.attempts) == (
        ["builtin"],
        ["chat", "messages"],
        2,
    )
    assert gateway.root == folder
    assert gateway.store.directory == folder / "var"


def test_a_gateway_file_alone_uses_the_built_in_providers_and_mappings(folder: Path, defaults: Path) -> None:
    (folder / "gateway.yaml").write_text("retry: {attempts: 1}\n")
    gateway = load_gateway(environ={}).gateway
    assert (list(gateway.providers), list(gateway.mappings), gateway.retry.attempts) == (
        ["builtin"],
        ["chat", "messages"],
        1,
    )


def test_a_providers_folder_replaces_the_built_in_providers(folder: Path, defaults: Path) -> None:
    write(folder, "providers/mine.yaml")
    assert list(load_gateway(environ={}).gateway.providers) == ["mine"]


def test_a_mapping_overrides_the_built_in_one_of_the_same_name(folder: Path, defaults: Path) -> None:
    write(folder, "mappings/chat.yaml", "mappings/acme.yaml")
    mappings = load_gateway(environ={}).gateway.mappings
    assert {name: document.file.startswith("mappings") for name, document in mappings.items()} == {
        "acme": True,
        "chat": True,
        "messages": False,
    }


def test_patterns_may_be_files_folders_and_wildcards(folder: Path, defaults: Path) -> None:
    write(folder, "providers/a.yaml", "more/b.yaml", "more/deep/c.yaml", "other/providers-d/d.yaml")
    (folder / "gateway.yaml").write_text("providers: [providers/a.yaml, more, 'other/**/*.yaml', more/b.yaml]\n")
    assert list(load_gateway(environ={}).gateway.providers) == ["a", "b", "d"]


def test_an_empty_list_of_patterns_means_none(folder: Path, defaults: Path) -> None:
    (folder / "gateway.yaml").write_text("providers: []\n")
    assert load_gateway(environ={}).gateway.providers == {}


def test_a_folder_may_be_named_instead_of_its_gateway_file(folder: Path, defaults: Path, tmp_path: Path) -> None:
    other = tmp_path / "etc [x]"
    write(other, "providers/mine.yaml")
    (other / "gateway.yaml").write_text("retry: {attempts: 1}\n")
    for path in (other, other / "gateway.yaml"):
        gateway = load_gateway(path, environ={}).gateway
        assert (list(gateway.providers), gateway.retry.attempts, gateway.root) == (["mine"], 1, other)


def test_every_file_read_is_listed_for_the_reload(folder: Path, defaults: Path) -> None:
    write(folder, "gateway.yaml", "providers/mine.yaml", "mappings/chat.yaml")
    (folder / "gateway.yaml").write_text("")
    assert [path.name for path in load_gateway(environ={}).gateway.files] == [
        "gateway.yaml",
        "mine.yaml",
        "chat.yaml",
        "messages.yaml",
    ]


def test_an_unreadable_file_is_reported(folder: Path, defaults: Path) -> None:
    with pytest.raises(ConfigErrors, match=r"nowhere\.yaml:1:1: cannot be read: No such file"):
        load_gateway(folder / "nowhere.yaml", environ={})


def test_bytes_that_are_no_utf_8_are_reported_with_their_place(folder: Path, defaults: Path) -> None:
    (folder / "gateway.yaml").write_bytes(b"retry:\n  attempts: \xff\n")
    with pytest.raises(ConfigErrors, match=r"gateway\.yaml:2:13: byte 0xff is not UTF-8"):
        load_gateway(environ={})


def test_a_file_that_matches_several_patterns_is_read_once(folder: Path) -> None:
    write(folder, "providers/a.yaml")
    assert len(unique(matches(folder, ["providers/*.yaml", "providers", "providers/a.yaml"]))) == 1


def test_a_checkout_uses_its_own_files_as_defaults() -> None:
    assert defaults_root() == ROOT


def test_an_installed_package_runs_in_an_empty_folder(tmp_path: Path) -> None:
    """The layout of the wheel: the package contains `defaults/`."""
    site = tmp_path / "site"
    shutil.copytree(ROOT / "src" / "tollgate", site / "tollgate", ignore=shutil.ignore_patterns("__pycache__"))
    shipped = site / "tollgate" / "defaults"
    shipped.mkdir()
    shutil.copy(ROOT / "gateway.yaml", shipped)
    for folder in ("providers", "mappings"):
        shutil.copytree(ROOT / folder, shipped / folder)
    empty = tmp_path / "empty"
    empty.mkdir()
    code = (
        "from tollgate.config.build import load_gateway; from tollgate.config.files import defaults_root;"
        "g = load_gateway(environ={}).gateway; print(defaults_root()); print(g.root); print('sandbox' in g.providers)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=empty,
        env={"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout.split() == [str(shipped), str(empty), "True"], run.stderr


@pytest.mark.parametrize("place", ["providers", "mappings"])
def test_the_wheel_includes_the_defaults(place: str) -> None:
    import tomllib

    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"][place] == f"tollgate/defaults/{place}"
