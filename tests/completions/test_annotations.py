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
        "user_id elsewhere",
        "the end user",
        "beside the end user",
        "long",
        "nested",
        "nothing left",
        "empty",
        "no object",
        "none",
    ],
)
def test_metadata_is_kept_for_a_row(dialect, metadata, kept):
    assert metadata_text({"metadata": metadata}, dialect) == kept


def test_of_many_pairs_the_first_are_kept():
    many = {f"n{number}": "" for number in range(100_000)}
    assert metadata_text({"metadata": many}, "chat").count(":") == 16
