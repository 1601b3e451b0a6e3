"""`python -m tollgate.mapping.write_reference` (in a checkout) writes the generated files again: the tables of the
reference page, and the editor schema."""

from __future__ import annotations

import json
from pathlib import Path

from tollgate.mapping.editor_schema import editor_schema
from tollgate.mapping.reference import renewed


def main() -> None:
    """Write both files."""
    package = Path(__file__).resolve().parents[1]
    page = package.parents[1] / "docs" / "mapping-reference.md"
    page.write_text(renewed(page.read_text("utf-8")), "utf-8")
    (package / "schemas" / "mapping.schema.json").write_text(json.dumps(editor_schema(), indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
