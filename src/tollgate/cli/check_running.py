"""A stage of `tollgate check`: what loads and compiles, and yet would surprise whoever runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollgate.config.sanity import check_unpriced

if TYPE_CHECKING:
    from tollgate.cli.check import Options, Report


def run(report: Report, options: Options) -> None:
    """Add warnings of models that are served at no price."""
    assert report.loaded is not None, "stages run on what loads"
    report.problems += check_unpriced(report.loaded.gateway)
