"""The status in a usage row is the status that the caller received, and an error in a stream is a complete event."""

import json

import pytest

from tollgate.errors import (
    AnswerLost,
    ShuttingDown,
    Unavailable,
    UpstreamFailed,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from tollgate.public_errors import (
    early_error_events,
    messages_error_message,
    messages_error_type,
    public_message,
    public_status,
    responses_error_type,
    stream_error_events,
)
from tollgate.replies import error_reply
from tollgate.sse import Decoder

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
def test_a_row_has_the_status_of_the_reply(dialect, error):
    assert public_status(dialect, error) == error_reply(dialect, error, "req_1").status


@pytest.mark.parametrize(
    ("message", "code", "shown"),
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
def test_a_messages_error_for_a_long_prompt_starts_with_the_expected_words(message: str, code: str, shown: str):
    assert messages_error_message(UpstreamRejected(message, upstream_code=code)) == shown


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
def test_a_stream_error_does_not_quote_the_database_or_the_disk(dialect):
    sent = stream_error_events(dialect, Unavailable("could not extend file base/16384/2609: No space left on device"))
    assert b"base/16384" not in sent
    assert b"Service temporarily unavailable" in sent
    assert b"the gateway is shutting down" in stream_error_events(dialect, ShuttingDown())


@pytest.mark.parametrize(
    ("dialect", "names"),
    [("chat", [None]), ("messages", ["error"]), ("responses", ["response.created", "error", "response.failed"])],
)
def test_the_error_of_a_stream_is_read_before_the_connection_ends(dialect, names):
    """Clients ignore an event without the blank line behind it."""
    early = [*Decoder().feed(early_error_events(dialect, UpstreamFailed("boom"), "req_1"))]
    assert [event.name for event in early] == names
    [later] = Decoder().feed(stream_error_events(dialect, UpstreamFailed("boom")))
    assert later.name == (None if dialect == "chat" else "error")
    if dialect == "responses":
        assert [json.loads(event.data)["sequence_number"] for event in [*early, later]] == [0, 1, 2, 0]


def test_a_rate_limit_of_the_provider_is_described_as_one():
    assert "rate limited" in public_message(UpstreamFailed("boom", upstream_status=429))
    assert "rate limited" not in public_message(UpstreamFailed("boom", upstream_status=500))


FAILURES = [
    UpstreamFailed("boom"),
    UpstreamFailed("busy", overloaded=True),
    UpstreamTimeout("idle", 60),
    UpstreamUnreachable("no route"),
    AnswerLost("closed"),
    ShuttingDown(),
]


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_the_message_of_a_failed_stream_has_words_upon_which_opencode_repeats_the_request(error):
    assert b"try again later" in stream_error_events("chat", error)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UpstreamRejected("m", status=400, kind="request_too_large"), "request_too_large"),
        (UpstreamRejected("m", status=404, kind="invalid_request_error"), "not_found_error"),
        (UpstreamRejected("m", status=400, kind="BadRequestError"), "invalid_request_error"),
        (UpstreamRejected("m", status=418), "invalid_request_error"),
        (UpstreamFailed("m", overloaded=True), "overloaded_error"),
        (UpstreamFailed("m"), "api_error"),
        (UpstreamTimeout("idle", 1), "timeout_error"),
    ],
)
def test_messages_clients_get_a_type_of_their_format(error, kind):
    assert messages_error_type(error) == kind


@pytest.mark.parametrize(
    ("status", "kind", "code", "expected"),
    [
        (
            400,
            "image_generation_user_error",
            "moderation_blocked",
            ("image_generation_user_error", "moderation_blocked"),
        ),
        (400, "INVALID_ARGUMENT", None, ("invalid_request_error", None)),
        (404, "not_found_error", "model_gone", ("invalid_request_error", "model_gone")),
        (413, None, None, ("invalid_request_error", "request_too_large")),
        (400, "request_too_large", "x", ("invalid_request_error", "request_too_large")),
    ],
)
def test_responses_clients_get_the_provider_s_type_if_it_is_one_of_their_format(status, kind, code, expected):
    assert responses_error_type(UpstreamRejected("m", status=status, kind=kind, upstream_code=code)) == expected
