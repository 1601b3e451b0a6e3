"""What the ledger keeps in memory, and its bounds."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from tollgate.config.settings import Credits
from tollgate.ledger.memory import Memory
from tollgate.ledger.store import RECENT_IDS


def test_the_newest_request_ids_are_remembered_in_bounded_number() -> None:
    memory = Memory(Credits())
    at = datetime(2026, 3, 1, tzinfo=UTC)
    last = 2 * RECENT_IDS
    for number in range(last):
        memory.charge(f"req_{number}", "alice", "key_1", Decimal("0.001"), at)
        assert memory.is_known(f"req_{max(0, number - RECENT_IDS + 1)}")
    known = [number for number in range(last) if memory.is_known(f"req_{number}")]
    assert known == list(range(known[0], last))
    assert RECENT_IDS <= len(known) <= RECENT_IDS + 1024
    assert memory.spent_in_window("key_1", "total") == Decimal("0.001") * last


@pytest.mark.usefixtures("within_one_day")
def test_spend_is_kept_when_the_clock_jumps_and_days_are_bounded() -> None:
    memory = Memory(Credits())
    now = datetime.now(UTC)
    memory.charge("req_now", "alice", "key_1", Decimal(1), now)
    memory.charge("req_old_job", "alice", "key_1", Decimal(0), now - timedelta(minutes=5))
    assert memory.last_used["key_1"] == now
    for days in (400, -90):
        memory.charge(f"req_{days}", "alice", "key_1", Decimal(0), now + timedelta(days=days))
    assert memory.spent_in_window("key_1", "month") == 1
    for days in range(-200, 1):
        memory.charge(f"req_day_{days}", "alice", "key_1", Decimal(1), now + timedelta(days=days))
    assert len(memory._days["key_1"]) == 62
    assert memory.spent_in_window("key_1", "month") == 1 + now.day
