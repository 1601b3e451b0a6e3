"""No value that a client or an upstream can send makes a filter fail."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tollgate.mapping import Context
from tollgate.mapping.failures import Fault
from tollgate.mapping.filter_table import FILTERS

VALUES: list[Any] = [None, True, 0, -1, 2.5, "", "a", "é{", [], ["a", 1, None, {"a": "b"}], {}, {"a": {"b": 1}}]


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_of_any_value_with_any_arguments_gives_a_value_or_a_fault(name: str) -> None:
    one = FILTERS[name]
    for value in VALUES:
        for count in range(one.least, min(one.most, 2) + 1):
            for arguments in product(VALUES, repeat=count):
                more = (Context(),) if one.takes_context else ()
                try:
                    one.run(value, *arguments, *more)
                except Fault:
                    continue
