"""Output items that a client may refer to: found by account and id; the least recently used are dropped first."""

import tracemalloc

import orjson
import pytest

from tollgate.remembered import answer_items
from tollgate.remembered.answer_items import AnswerItems

TEXT = {"id": "msg_1", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hé"}]}


def remembering(*kept, **more):
    items = AnswerItems(**more)
    items.keep("alice", kept)
    return items


def test_an_item_is_found_unchanged_by_its_account_only():
    items = remembering(TEXT)
    assert items.find("alice", "msg_1") == orjson.dumps(TEXT)
    assert items.find("bob", "msg_1") is None and items.find("alice", "msg_2") is None


@pytest.mark.parametrize("item", [None, "text", {"type": "message"}, {"id": None}, {"id": 5}], ids=repr)
def test_an_item_without_an_id_is_not_remembered(item):
    assert remembering(item, TEXT).find("alice", "msg_1") == orjson.dumps(TEXT)


def test_an_id_of_two_items_refers_to_neither():
    items = remembering(TEXT, TEXT)
    assert items.find("alice", "msg_1") == orjson.dumps(TEXT), "the same item, told twice"
    items.keep("bob", [{**TEXT, "content": []}])
    assert items.find("alice", "msg_1") == orjson.dumps(TEXT), "another account's"
    for _ in range(2):
        items.keep("alice", [{**TEXT, "content": []}])
        assert items.find("alice", "msg_1") is None


def test_the_least_recently_used_items_are_dropped_first():
    items = AnswerItems(most=3_000)
    for number in range(4):
        items.keep("alice", [{"id": f"msg_{number}"}])
    assert items.find("alice", "msg_0") is not None
    items.keep("alice", [{"id": "msg_4"}, {"id": "msg_5"}])
    assert [number for number in range(6) if items.find("alice", f"msg_{number}")] == [0, 2, 3, 4, 5]


def test_an_item_larger_than_the_memory_is_not_remembered_and_takes_no_room():
    items = AnswerItems(most=2_000)
    items.keep("alice", [{"id": "msg_1", "text": "x" * 3_000}])
    assert items.find("alice", "msg_1") is None
    items.keep("alice", [{"id": "msg_2"}])
    assert items.find("alice", "msg_2") is not None


def test_the_memory_uses_little_more_than_it_counts():
    items = AnswerItems(most=1_000_000)
    tracemalloc.start()
    try:
        items.keep("alice", [{**TEXT, "id": f"msg_{number}"} for number in range(5_000)])
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert items.find("alice", "msg_4999") is not None
    assert 500_000 < taken < 1_500_000


def test_a_conversation_larger_than_the_memory_is_not_serialized(monkeypatch):
    items, written = AnswerItems(most=2_000), []
    monkeypatch.setattr(answer_items, "_written", lambda value: written.append(value) or b"[]")
    items.keep_conversation("alice", "resp_1", [TEXT], 2_001)
    assert items.conversation("alice", "resp_1") is None and not written
    items.keep_conversation("alice", "resp_2", [TEXT], 2_000)
    assert items.conversation("alice", "resp_2") == b"[]"
