"""A request converted from one format has the structure of the same conversation recorded natively in the other."""

from __future__ import annotations

import pytest

from replay import traffic

if not traffic.present():
    pytest.skip(traffic.ABSENT, allow_module_level=True)

from replay import pairs


def test_converted_requests_have_the_structure_of_native_ones() -> None:
    compared = [pair for direction in pairs.directions() if (pair := pairs.compared(*direction)) is not None]
    differing = [pair for pair in compared if pair.differences and pair.case not in pairs.EXPLAINED]
    assert not differing, "\n".join(f"{p.case} {p.source} to {p.target}: {'; '.join(p.differences)}" for p in differing)
    assert len(compared) > 500


def test_every_explained_case_exists() -> None:
    assert set(pairs.EXPLAINED) <= set(traffic.pairs())
