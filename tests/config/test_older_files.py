"""What `tollgate check` and `serve` advise about wrong files that an older version wrote."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tollgate.config.files import defaults_root
from tollgate.config.load import Mark, Problem
from tollgate.config.older_files import advice

Copy = Callable[..., Problem]


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copy:
    """Writes a copy of a shipped file, with an addition, and returns an error in it."""
    monkeypatch.chdir(tmp_path)

    def written(name: str, addition: str = "# of an older version\n", level: str = "error") -> Problem:
        shipped = defaults_root() / name
        text = shipped.read_text("utf-8") if shipped.is_file() else ""
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text.replace("src/tollgate/schemas/", "schemas/") + addition, "utf-8")
        return Problem(Mark(name, 1, 1), "unknown filter `beyond`", level=level)

    return written


def test_an_old_copy_of_a_mapping_may_be_deleted(copy: Copy) -> None:
    [line] = advice([copy("mappings/chat.yaml")])
    assert line == (
        "mappings/chat.yaml differs from the file of this version of Tollgate. If nobody edited it since `tollgate "
        "init` wrote it, delete it"
    )


def test_old_copies_of_provider_files_are_counted_and_may_be_replaced(copy: Copy) -> None:
    names = ("providers/openai.yaml", "providers/shared/openai.yaml", "providers/models/openai.yaml")
    [line] = advice([copy(name) for name in names])
    assert line == (
        "providers/models/openai.yaml and 2 others differ from the files of this version of Tollgate. If nobody edited "
        "them since `tollgate init` wrote them, replace them: `tollgate init FOLDER` writes this version's into a new "
        "folder"
    )


def test_own_files_unchanged_copies_warnings_and_missing_files_get_no_advice(copy: Copy, tmp_path: Path) -> None:
    gone = copy("mappings/messages.yaml")
    (tmp_path / "mappings" / "messages.yaml").unlink()
    problems = [
        copy("providers/acme.yaml"),
        copy("mappings/chat.yaml", addition=""),
        copy("providers/openai.yaml", level="warning"),
        Problem(Mark("gateway.yaml", 1, 1), "found unknown key"),
        gone,
    ]
    assert advice(problems) == []


def test_shipped_files_themselves_get_no_advice() -> None:
    assert advice([Problem(Mark(str(defaults_root() / "mappings" / "chat.yaml"), 1, 1), "wrong")]) == []
