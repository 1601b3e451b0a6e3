"""Makes models files (`models_from:` of a provider) from facts about models on sale: `entries` makes the entries,
`models_file` writes their text. Pure: values in, values out."""

from tollgate.catalog_import.entries import Import, Source, changes, import_models, offers_of
from tollgate.catalog_import.models_file import NAMES_SCHEMA, SCHEMA, write

__all__ = ["NAMES_SCHEMA", "SCHEMA", "Import", "Source", "changes", "import_models", "offers_of", "write"]
