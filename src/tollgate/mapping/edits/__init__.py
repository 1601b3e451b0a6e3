"""Edit lists: what a provider does differently, as a few verbs over a complete document (MAPPING b.4)."""

from tollgate.mapping.edits.compile import EditList, chain, compile_edits, compile_scope

__all__ = ["EditList", "chain", "compile_edits", "compile_scope"]
