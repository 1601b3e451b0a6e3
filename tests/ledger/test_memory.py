"""What the ledger's memory keeps, and how much of it."""

from datetime import UTC, datetime
from decimal import Decimal

from tollgate.config.model import Credits
from tollgate.ledger.memory import Memory
from tollgate.ledger.store import RECENT_IDS


def test_the_newest_request_ids_are_remembered_and_their_number_stays_bounded() -> None:
    memory = Memory(Credits())
    at = datetime(2026, 3, 1, tzinfo=UTC)
    last = 2 * RECENT_IDS
    for number in range(last):
        memory.charge(f"req_{number}", "alice", "key_1", Decimal("0.001"), at)
    known = [number for number in range(last) if memory.is_known(f"req_{number}")]
    assert known == list(range(known[0], last))
    assert RECENT_IDS <= len(known) <= RECENT_IDS + 1024
    assert memory.spent_in_window("key_1", "total") == Decimal("0.001") * last
