"""Recorded traffic of Bedrock Converse, Cohere and Ollama reaches every client as recorded; requests of every client
reach them in full.

Answers are read back through the clients' SDKs. The counts are asserted, so that a recording that is no longer read is
noticed.
"""

from __future__ import annotations

import collections

import pytest

from replay import traffic

if not traffic.present():
    pytest.skip(traffic.ABSENT, allow_module_level=True)

from mappings import dialects
from replay import cells
from tollgate.mapping import convert_response

RECORDED = {"bedrock": (35, 18, 7), "cohere": (19, 11, 1), "ollama": (5, 6, 1)}
"""Whole answers, streams, errors."""
REQUESTS = {
    ("chat", "bedrock"): (405, 9),
    ("responses", "bedrock"): (209, 10),
    ("messages", "bedrock"): (233, 9),
    ("chat", "cohere"): (395, 19),
    ("responses", "cohere"): (202, 17),
    ("messages", "cohere"): (224, 18),
    ("chat", "ollama"): (395, 19),
    ("responses", "ollama"): (202, 17),
    ("messages", "ollama"): (224, 18),
}
"""Sent, and rejected by name."""
REFUSALS = {
    "n is greater than 1": {"bedrock", "cohere", "ollama"},
    "previous_response_id": {"bedrock", "cohere", "ollama"},
    "conversation": {"bedrock", "cohere", "ollama"},
    "container_upload": {"bedrock", "cohere", "ollama"},
    "an image is referenced by file id": {"bedrock", "cohere", "ollama"},
    "a file is referenced by id": {"bedrock"},
    "a file is not plain text": {"cohere", "ollama"},
    "audio input": {"cohere", "ollama"},
    "video input": {"cohere", "ollama"},
}
CROSS = [(client, dialect) for client in cells.CLIENTS for dialect in dialects.DIALECTS]
IDS = [f"{client}-client-{dialect}-upstream" for client, dialect in CROSS]


@pytest.mark.parametrize("dialect", dialects.DIALECTS)
def test_every_recording_is_read(dialect: str) -> None:
    assert (
        len(dialects.answers(dialect)),
        len(dialects.streams(dialect)),
        len(dialects.failures(dialect)),
    ) == RECORDED[dialect]


@pytest.mark.parametrize("dialect", dialects.DIALECTS)
def test_usage_and_stop_reason_are_read_as_recorded(dialect: str) -> None:
    found = [
        miss for x in dialects.answers(dialect) + dialects.streams(dialect) for miss in dialects.tap_misses(dialect, x)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("client", "dialect"), CROSS, ids=IDS)
def test_whole_answers_reach_the_client_as_recorded(client: str, dialect: str) -> None:
    found = [miss for x in dialects.answers(dialect) for miss in dialects.answer_misses(dialect, client, x)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("client", "dialect"), CROSS, ids=IDS)
def test_streams_reach_the_client_as_recorded(client: str, dialect: str) -> None:
    found = [miss for x in dialects.streams(dialect) for miss in dialects.stream_misses(dialect, client, x)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("dialect", dialects.DIALECTS)
def test_errors_keep_their_message(dialect: str) -> None:
    for x in dialects.failures(dialect):
        error = cells.mapping(dialect).sections["error.to_hub"](x.body, cells.context())
        assert error["message"] and error["message"] in str(x.body), x.id


@pytest.mark.parametrize(("client", "dialect"), CROSS, ids=IDS)
def test_requests_reach_the_upstream_in_full_and_in_its_shape(client: str, dialect: str) -> None:
    done = [dialects.sent(client, dialect, x) for x in dialects.requests(client)]
    found = [miss for result in done for miss in result.misses]
    assert not found, "\n".join(found)
    refused = collections.Counter(result.refused for result in done if result.refused)
    for words in refused:
        assert any(known in words and dialect in where for known, where in REFUSALS.items()), words
    assert (len(done) - refused.total(), refused.total()) == REQUESTS[(client, dialect)], refused


def test_a_citation_of_a_document_reaches_a_messages_client_with_its_position() -> None:
    [x] = [x for x in dialects.answers("bedrock") if "citations" in x.features]
    block = convert_response(cells.mapping("bedrock"), cells.mapping("messages"), x.body, cells.context()).body[
        "content"
    ][0]
    assert [
        (c["type"], c["document_title"], c["start_char_index"], c["end_char_index"]) for c in block["citations"]
    ] == [("char_location", "facts", 0, 73)]


def test_a_tool_that_the_model_runs_itself_is_not_a_call_for_the_client() -> None:
    """Two recordings contain such a tool beside a call for the client."""
    [x] = [x for x in dialects.answers("bedrock") if "server_tool_use" in str(x.body)]
    for client in cells.CLIENTS:
        done = convert_response(cells.mapping("bedrock"), cells.mapping(client), x.body, cells.context())
        assert "nova_code_interpreter" not in str(done.body) and "final_result" in str(done.body)
        assert "content of a tool the model ran itself" in done.lost
