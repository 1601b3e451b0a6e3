"""tollgate.public_errors: the status in a row is the status the caller got."""

import pytest

from tollgate.errors import (
    ShuttingDown,
    Unavailable,
    UpstreamFailed,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from tollgate.public_errors import messages_error_message, public_status, stream_error_events
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


@pytest.mark.parametrize(
    ("message", "code", "told"),
    [
        (
            "Your input exceeds the context window.",
            "context_length_exceeded",
            "prompt is too long: Your input exceeds the context window.",
        ),
        (
            "Prompt is too long: 9 tokens > 8 maximum",
            "context_length_exceeded",
            "Prompt is too long: 9 tokens > 8 maximum",
        ),
        ("Your input is wrong.", "invalid_value", "Your input is wrong."),
    ],
)
def test_messages_clients_know_a_prompt_that_is_too_long_by_its_words(message: str, code: str, told: str):
    assert messages_error_message(UpstreamRejected(message, upstream_code=code)) == told


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
def test_a_stream_does_not_quote_what_the_database_or_the_disk_says(dialect):
    told = stream_error_events(dialect, Unavailable("could not extend file base/16384/2609: No space left on device"))
    assert b"base/16384" not in told
    assert b"Service temporarily unavailable" in told
    assert b"the gateway is shutting down" in stream_error_events(dialect, ShuttingDown())
