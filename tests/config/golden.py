"""Golden files of invalid configurations: the configuration's files first, then the expected messages, in one file.

    === providers/acme.yaml
    ...
    === says
    providers/acme.yaml:3:1: ...

`gateway.yaml` is empty unless the case has one. Warnings are listed like errors; a case that loads ends with `it
loads`.
"""

from __future__ import annotations

import re
from pathlib import Path

from support.files import write_file
from tollgate.config.build import load_gateway
from tollgate.errors import ConfigErrors

FOLDER = Path(__file__).parent.parent / "golden" / "config"
_PART = re.compile(r"^=== (.+)\n", re.MULTILINE)


def parts(text: str) -> dict[str, str]:
    """Maps each file name (or `says`) to its content."""
    pieces = _PART.split(text)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def messages_of(files: dict[str, str], folder: Path) -> str:
    """Writes the files into `folder` (the working directory), loads them, and returns all messages."""
    for name, content in {"gateway.yaml": "", **files}.items():
        write_file(folder / name, content)
    try:
        loaded = load_gateway(folder / "gateway.yaml", environ={})
    except ConfigErrors as errors:
        return str(errors) + "\n"
    return "".join(problem.render() + "\n" for problem in loaded.warnings) + "it loads\n"
