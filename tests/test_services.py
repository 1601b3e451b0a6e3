"""Facts about what every endpoint answers with."""

from __future__ import annotations

import pytest

from tollgate.services import dropped_text


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (["user", "seed", "user"], b"user, seed"),
        (["metadata.a\x00\x1b[31m\r\nx: y\x7f"], b"metadata.a  [31m  x: y"),
        (["name é of \u2028a tool", " "], b"name ? of ?a tool,"),
        (["x" * 2000], b"x" * 1000),
    ],
    ids=["each once", "controls", "other characters", "long"],
)
def test_what_was_dropped_is_a_header_that_everybody_takes(lost: list[str], said: bytes) -> None:
    assert dropped_text(lost) == said
