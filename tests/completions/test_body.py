"""What is refused before anything is planned, and with which words."""

import pytest

from tollgate.completions.body import check_fields, read_json
from tollgate.errors import BadRequest

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "the request body is empty; a JSON object is wanted"),
        (b"{", "the request body is not valid JSON"),
        (b"[1]", "the request body is a list; a JSON object is wanted"),
        (b'{"a":' * 300 + b"1" + b"}" * 300, "the request body is nested more than 200 levels deep"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "the request body is not valid JSON"),
        (b'{"a":"\xff"}', "the request body is not valid JSON"),
    ],
    ids=["empty", "cut", "a list", "deep", "very deep", "not UTF-8"],
)
def test_a_body_that_is_no_object_is_refused(raw, said):
    with pytest.raises(BadRequest) as caught:
        read_json(raw, 200)
    assert caught.value.message.startswith(said)


def test_a_long_conversation_is_not_deep():
    raw = b'{"messages":[' + b",".join([b'{"role":"user","content":[{"type":"text","text":"x"}]}'] * 500) + b"]}"
    assert len(read_json(raw, 200)["messages"]) == 500


@pytest.mark.parametrize(
    ("dialect", "change", "said", "param"),
    [
        ("chat", {"model": None}, "model is null; text is wanted", "model"),
        ("chat", {"model": 5}, "model is an integer; text is wanted", "model"),
        ("chat", {"messages": "hi"}, "messages is text; a list is wanted", "messages"),
        ("chat", {"messages": []}, "messages is empty; at least one message is wanted", "messages"),
        ("chat", {"messages": ["hi"]}, "messages[0] is text; an object is wanted", "messages[0]"),
        ("chat", {"messages": [{"content": "hi"}]}, "messages[0].role is null; text is wanted", "messages[0].role"),
        ("chat", {"messages": [{"role": "user", "content": 4}]}, "messages[0].content is an integer; text or a list of parts is wanted", "messages[0].content"),
        ("chat", {"temperature": "hot"}, "temperature is text; a number is wanted", "temperature"),
        ("chat", {"temperature": True}, "temperature is a boolean; a number is wanted", "temperature"),
        ("chat", {"max_tokens": 0}, "max_tokens is an integer; a positive integer is wanted", "max_tokens"),
        ("chat", {"stream": "yes"}, "stream is text; a boolean is wanted", "stream"),
        ("messages", {}, "missing required field: max_tokens", "max_tokens"),
        ("responses", {"input": 7}, "input is an integer; text or a list is wanted", "input"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_an_impossible_field_is_named(dialect, change, said, param):
    with pytest.raises(BadRequest) as caught:
        check_fields(dialect, {**CHAT, **change})
    assert (caught.value.message, caught.value.param) == (said, param)


def test_unknown_fields_and_nulls_pass():
    check_fields("chat", {**CHAT, "temperature": None, "brand_new": {"a": 1}})
    check_fields("responses", {"model": "m", "input": [{"role": "user", "content": "x"}], "client_metadata": {}})
