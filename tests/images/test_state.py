"""The age of a job."""

from datetime import UTC, datetime, timedelta

from tollgate.images.state import seconds_since


def test_a_job_is_never_younger_than_new():
    """Its time may be still to come: the clock was set back."""
    now = datetime.now(UTC)
    assert seconds_since(now + timedelta(hours=1)) == 0
    assert 60 <= seconds_since(now - timedelta(minutes=1)) < 3600
