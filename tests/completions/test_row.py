"""The usage row of an answer."""

import pytest

from tollgate.completions.row import outcome_of
from tollgate.errors import AnswerLost, UpstreamTimeout


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [(None, "ok"), (UpstreamTimeout("idle", 30), "timeout"), (AnswerLost("closed"), "upstream_error")],
    ids=["whole", "stalled", "broken off"],
)
def test_an_answer_that_began_has_the_outcome_of_its_end(failure, outcome):
    assert outcome_of(failure) == outcome
