"""The time of day is trusted after ten minutes in which nobody changed it."""

import pytest

from tollgate.steady_time import SteadyTime


@pytest.mark.parametrize("set_by", [3600, -3600, 86_400 * 400, -61])
def test_a_changed_time_of_day_is_not_trusted_for_ten_minutes(set_by):
    wall, machine = 1_800_000_000.0, 5.0
    times = SteadyTime(lambda: wall, lambda: machine)
    assert times.now() is None, "nor is that of a start"
    wall, machine = wall + 600, machine + 600
    assert times.now() == wall
    wall += set_by
    assert times.now() is None
    wall, machine = wall + 599, machine + 599
    assert times.now() is None
    wall, machine = wall + 1, machine + 1
    assert times.now() == wall


def test_a_small_correction_of_the_time_of_day_is_trusted():
    wall, machine = 1_800_000_000.0, 5.0
    times = SteadyTime(lambda: wall, lambda: machine)
    wall, machine = wall + 600 - 2, machine + 600
    assert times.now() == wall
