"""The age of a job, and what it keeps of the answers to its steps."""

from datetime import UTC, datetime, timedelta

import pytest

from tollgate.images.calls import StepAnswer
from tollgate.images.state import job_facts, seconds_since, with_state
from tollgate.ledger import Generation
from tollgate.mapping.images.outcome import Outcome


def test_a_job_is_never_younger_than_new():
    """Its time may be still to come: the clock was set back."""
    now = datetime.now(UTC)
    assert seconds_since(now + timedelta(hours=1)) == 0
    assert 60 <= seconds_since(now - timedelta(minutes=1)) < 3600


@pytest.mark.parametrize("id", [None, "", 7])
def test_what_a_later_answer_lacks_is_kept_from_an_earlier_one(id):
    job = Generation("own", "default", upstream_id="job-1", upstream_state={"token": "t", "seed": 5})
    facts = {"id": id, "token": None, "seed": 6, "status": "busy", "images": ["https://x.example/a.png"]}
    after = with_state(job, StepAnswer({"raw": 1}, Outcome("processing", facts=facts), {}))
    assert after.upstream_state == {"token": "t", "seed": 6}
    assert after.answer == {"raw": 1}
    assert job_facts(after) == {"token": "t", "seed": 6, "uuid": "own", "id": "7" if id else "job-1"}
