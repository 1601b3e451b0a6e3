"""`tollgate credits`: grants, corrections and exact balances."""

from __future__ import annotations

import json
from decimal import Decimal

from .tollgate import Tollgate


def test_credits_are_granted_and_taken_back(tollgate: Tollgate) -> None:
    tollgate("accounts", "create", "alice")
    assert "balance 10.5" in tollgate("credits", "grant", "alice", "10.50", "--note", "gift").out
    assert (
        "balance 10.499999999999"
        in tollgate("credits", "grant", "alice", "-0.000000000001", "--note", "a correction").out
    )
    shown = json.loads(tollgate("credits", "show", "alice", "--json").out)
    assert (shown["granted"], shown["balance"], shown["spent"]) == ("10.499999999999", "10.499999999999", "0")
    assert [(each["amount"], each["note"]) for each in shown["grants"]] == [
        ("-0.000000000001", "a correction"),
        ("10.5", "gift"),
    ]
    assert "a correction" in tollgate("credits", "show", "alice").out
    assert [each["account_id"] for each in json.loads(tollgate("credits", "show", "--json").out)] == ["alice"]


def test_mistakes_are_named_on_stderr(tollgate: Tollgate) -> None:
    tollgate("accounts", "create", "alice")
    for words, reason in (
        (("bob", "1"), 'no account "bob"'),
        (("alice", "1.5.5"), "amount: "),
        (("alice", "0"), "non-zero"),
        (
            ("alice", "0.0000000000001"),
            "amount is 0.0000000000001, which has 13 decimal places, wanted at most the 12 that are kept",
        ),
        (("alice", "1e20"), "non-zero amount of at most"),
    ):
        done = tollgate("credits", "grant", *words)
        assert (done.code, done.out) == (1, "")
        assert reason in done.err


async def test_a_grant_reaches_a_running_gateway_at_once(running: Tollgate) -> None:
    before = running.ledger.balance("alice")
    grant = json.loads((await running.in_thread("credits", "grant", "alice", "2.5", "--json")).out)
    assert running.ledger.balance("alice") == before + Decimal("2.5")
    assert grant["amount"] == "2.5"
