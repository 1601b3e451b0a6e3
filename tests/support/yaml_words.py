"""Error messages about invalid YAML, compared with golden files, which have libyaml's wording."""

from __future__ import annotations

import re

import yaml

_NOT_YAML = re.compile(r"(?<=not readable as YAML: ).*(?= \()")


def without_parser_words(message: str) -> str:
    """`message` without the parser's own words if PyYAML was built without libyaml and words them differently."""
    return message if yaml.__with_libyaml__ else _NOT_YAML.sub("...", message)
