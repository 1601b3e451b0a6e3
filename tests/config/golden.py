"""Golden files of bad configurations: the files above, what must be said about them below, in one file.

    === providers/acme.yaml
    ...
    === says
    providers/acme.yaml:3:1: ...

`gateway.yaml` is empty unless the case has one. Warnings are said like errors; a case that loads says `it loads` last.
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
    """File name (or `says`) -> content."""
    pieces = _PART.split(text)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def said(files: dict[str, str], folder: Path) -> str:
    """Write the files into `folder` (the working directory), load them, and give everything that is said."""
    for name, content in {"gateway.yaml": "", **files}.items():
        write_file(folder / name, content)
    try:
        loaded = load_gateway(folder / "gateway.yaml", environ={})
    except ConfigErrors as errors:
        return str(errors) + "\n"
    return "".join(problem.render() + "\n" for problem in loaded.warnings) + "it loads\n"
