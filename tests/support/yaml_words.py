"""What is said of a file that is no YAML, for comparing with golden files, which have it in libyaml's words."""

from __future__ import annotations

import re

import yaml

_NOT_YAML = re.compile(r"(?<=not readable as YAML: ).*(?= \()")


def in_our_words(told: str) -> str:
    """`told` without the parser's own words, where PyYAML was built without libyaml and has others."""
    return told if yaml.__with_libyaml__ else _NOT_YAML.sub("...", told)
