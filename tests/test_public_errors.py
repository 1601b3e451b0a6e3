"""tollgate.public_errors: the status in a row is the status the caller got."""

import pytest

from tollgate.errors import UpstreamFailed, UpstreamRejected, UpstreamTimeout, UpstreamUnreachable
from tollgate.public_errors import public_status
from tollgate.replies import error_reply

ERRORS = [
    UpstreamRejected("too long", status=422),
    UpstreamRejected("gone", status=404),
    UpstreamFailed("boom"),
    UpstreamFailed("busy", overloaded=True),
    UpstreamTimeout("first_byte", 60),
    UpstreamUnreachable("no route"),
]


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages", "embeddings", "images"])
@pytest.mark.parametrize("error", ERRORS, ids=[f"{type(error).__name__}-{error.status}" for error in ERRORS])
def test_a_row_has_the_status_that_was_told(dialect, error):
    assert public_status(dialect, error) == error_reply(dialect, error, "req_1").status
