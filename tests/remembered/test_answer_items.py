"""Items that a client may refer to: found by account and id, the longest unused gone first."""

import tracemalloc

import orjson
import pytest

from tollgate.remembered import answer_items
from tollgate.remembered.answer_items import AnswerItems

TEXT = {"id": "msg_1", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hé"}]}


def kept(*items, **more):
    told = AnswerItems(**more)
    told.keep("alice", items)
    return told


def test_an_item_is_found_as_it_was_told_by_the_account_it_was_told_to():
    told = kept(TEXT)
    assert told.find("alice", "msg_1") == orjson.dumps(TEXT)
    assert told.find("bob", "msg_1") is None and told.find("alice", "msg_2") is None


@pytest.mark.parametrize("item", [None, "text", {"type": "message"}, {"id": None}, {"id": 5}], ids=repr)
def test_what_has_no_id_is_not_remembered(item):
    assert kept(item, TEXT).find("alice", "msg_1") == orjson.dumps(TEXT)


def test_the_newest_of_an_id_is_found():
    told = kept(TEXT)
    told.keep("alice", [{**TEXT, "content": []}])
    assert told.find("alice", "msg_1") == orjson.dumps({**TEXT, "content": []})


def test_the_longest_unused_go_first():
    told = AnswerItems(most=3_000)
    for number in range(4):
        told.keep("alice", [{"id": f"msg_{number}"}])
    assert told.find("alice", "msg_0") is not None
    told.keep("alice", [{"id": "msg_4"}, {"id": "msg_5"}])
    assert [number for number in range(6) if told.find("alice", f"msg_{number}")] == [0, 2, 3, 4, 5]


def test_an_item_too_large_for_all_of_it_is_not_remembered_and_leaves_room():
    told = AnswerItems(most=2_000)
    told.keep("alice", [{"id": "msg_1", "text": "x" * 3_000}])
    assert told.find("alice", "msg_1") is None
    told.keep("alice", [{"id": "msg_2"}])
    assert told.find("alice", "msg_2") is not None


def test_the_memory_takes_little_more_than_it_counts():
    told = AnswerItems(most=1_000_000)
    tracemalloc.start()
    try:
        told.keep("alice", [{**TEXT, "id": f"msg_{number}"} for number in range(5_000)])
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert told.find("alice", "msg_4999") is not None
    assert 500_000 < taken < 1_500_000


def test_a_conversation_of_more_than_all_of_it_is_not_written_out(monkeypatch):
    told, written = AnswerItems(most=2_000), []
    monkeypatch.setattr(answer_items, "_written", lambda value: written.append(value) or b"[]")
    told.keep_conversation("alice", "resp_1", [TEXT], 2_001)
    assert told.conversation("alice", "resp_1") is None and not written
    told.keep_conversation("alice", "resp_2", [TEXT], 2_000)
    assert told.conversation("alice", "resp_2") == b"[]"
