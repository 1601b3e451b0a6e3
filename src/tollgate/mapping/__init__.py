"""The mapping engine: operators describe a wire format in YAML, and it runs as compiled Python.

This module is the engine's public face; everything else in the package is an inside. `docs/building.md` has the list.
"""

from tollgate.mapping.context import Context
from tollgate.mapping.failures import MappingFailure, Refused, UnfitRequest
from tollgate.mapping.pieces import Functions, Template, compile_expression, compile_template, compile_url

__all__ = [
    "Context",
    "Functions",
    "MappingFailure",
    "Refused",
    "Template",
    "UnfitRequest",
    "compile_expression",
    "compile_template",
    "compile_url",
]
