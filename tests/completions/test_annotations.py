"""The `metadata` of a request as it is stored in its usage row."""

import json

import pytest

from tollgate.completions.annotations import metadata_text


@pytest.mark.parametrize(
    ("dialect", "metadata", "kept"),
    [
        ("chat", {"feature": "search", "run": 7, "dry": True}, '{"feature":"search","run":7,"dry":true}'),
        ("responses", {"user_id": "u-1"}, '{"user_id":"u-1"}'),
        ("messages", {"user_id": "u-1"}, None),
        ("messages", {"user_id": "u-1", "team": "red"}, '{"team":"red"}'),
        ("chat", {"n" * 100: "t" * 1000}, '{"' + "n" * 64 + '":"' + "t" * 512 + '"}'),
        ("chat", {"list": [1], "object": {}, "huge": 2**70, "fine": None}, '{"fine":null}'),
        ("chat", {"list": [1]}, None),
        ("chat", {}, None),
        ("chat", "a text", None),
        ("chat", None, None),
    ],
    ids=[
        "plain",
        "user_id of responses is metadata",
        "user_id of messages is the end user",
        "another field beside user_id",
        "long",
        "nested",
        "nothing left",
        "empty",
        "not an object",
        "none",
    ],
)
def test_metadata_is_stored_in_the_row_as_json_within_limits(dialect, metadata, kept):
    assert metadata_text({"metadata": metadata}, dialect) == kept


def test_only_the_first_16_metadata_pairs_are_kept():
    many = {f"n{number}": "" for number in range(100_000)}
    assert json.loads(metadata_text({"metadata": many}, "chat")) == {f"n{number}": "" for number in range(16)}
