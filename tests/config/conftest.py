from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory. The built-in defaults are an empty folder too, so that nothing else is loaded."""
    empty = tmp_path / "defaults"
    empty.mkdir()
    monkeypatch.setattr("tollgate.config.files.defaults_root", lambda: empty)
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder
