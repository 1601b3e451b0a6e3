"""The header that lists what a conversion dropped."""

from __future__ import annotations

import pytest

from tollgate.services import dropped_text


@pytest.mark.parametrize(
    ("lost", "header"),
    [
        (["user", "seed", "user"], b"user, seed"),
        (["metadata.a\x00\x1b[31m\r\nx: y\x7f"], b"metadata.a  [31m  x: y"),
        (["name é of \u2028a tool", " "], b"name ? of ?a tool,"),
        (["x" * 2000], b"x" * 1000),
    ],
    ids=["each once", "controls", "other characters", "long"],
)
def test_dropped_parts_are_listed_in_an_ascii_header(lost: list[str], header: bytes) -> None:
    assert dropped_text(lost) == header
