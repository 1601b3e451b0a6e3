"""Which wrong files may be copies that `tollgate init` of an older version wrote.

Such a copy stays as it is when Tollgate is upgraded, and may use words that the newer version no longer knows. Nothing
in it shows whether somebody edited it, so this is advice for whoever reads the errors.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tollgate.config.files import defaults_root
from tollgate.config.load import Problem

_SCHEMA_LINE = "# yaml-language-server:"
_CURES = {
    "mappings": "delete {them}",
    "providers": "replace {them}: `tollgate init FOLDER` writes this version's into a new folder",
}
"""What to do by the folder of the files. Mappings that a folder lacks come from the package; providers do not."""


def advice(problems: Iterable[Problem]) -> list[str]:
    """A line for each folder whose wrong files have the name of a shipped file and another text.

    An error in an old `mappings/chat.yaml` → "mappings/chat.yaml differs from the file of this version of Tollgate. If
    nobody edited it since `tollgate init` wrote it, delete it"
    """
    wrong = sorted({problem.mark.file for problem in problems if problem.level == "error"})
    lines = []
    for folder, cure in _CURES.items():
        files = [file for file in wrong if _is_older(Path(file), folder)]
        if files:
            one = len(files) == 1
            them = "it" if one else "them"
            others = "" if one else f" and {len(files) - 1} other{'s' if len(files) > 2 else ''}"
            verb, theirs = ("differs", "file") if one else ("differ", "files")
            lines.append(
                f"{files[0]}{others} {verb} from the {theirs} of this version of Tollgate. If nobody edited {them} "
                f"since `tollgate init` wrote {them}, {cure.format(them=them)}"
            )
    return lines


def _is_older(path: Path, folder: str) -> bool:
    """Whether the file has the name of a shipped file of this folder, but not its text."""
    shipped = _shipped(path, folder)
    if shipped is None or not shipped.is_file() or shipped.resolve() == path.resolve():
        return False
    try:
        return _text(path) != _text(shipped)
    except (OSError, UnicodeDecodeError):
        return False


def _shipped(path: Path, folder: str) -> Path | None:
    """Where the package would have this file: `mappings/chat.yaml`, `providers/models/openai.yaml`."""
    parts = path.resolve().parts
    if folder not in parts:
        return None
    last = len(parts) - 1 - parts[::-1].index(folder)
    return defaults_root().joinpath(*parts[last:])


def _text(path: Path) -> str:
    """The text without the line for editors, which names the schemas' folder."""
    return "\n".join(line for line in path.read_text("utf-8").splitlines() if not line.startswith(_SCHEMA_LINE))
