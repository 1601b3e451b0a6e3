"""The content of one round with the database: its parts, their JSON, and the futures that wait for the answers.

`rounds.py` sends it and keeps the holds of this gateway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import groupby
from typing import Any, Literal

import orjson

from tollgate.errors import TollgateError

Kind = Literal["rows", "jobs", "used", "admits", "holds"]
"""What a part is, by its name in the argument of `tollgate.round`."""


@dataclass(slots=True)
class Part:
    """One part of a round."""

    kind: Kind
    json: bytes
    account_id: str
    """The account whose balance the answer is to report."""
    future: asyncio.Future[Any]
    """Gets the database's answer."""
    key_id: str = ""


@dataclass(slots=True)
class Gathered:
    """What one round sends: parts in the order in which they came, and the marks, for which nothing is sent."""

    parts: list[Part] = field(default_factory=list)
    marks: list[asyncio.Future[None]] = field(default_factory=list)

    def of(self, *kinds: Kind) -> list[Part]:
        """The parts of these kinds."""
        return [part for part in self.parts if part.kind in kinds]

    def alone(self) -> list[Gathered]:
        """The same, each part in a round of its own, the marks last. Rows, and jobs with theirs, stay in the order of
        their numbers: the publisher takes all rows up to the highest number for written."""
        return [*(Gathered([part]) for part in self.parts), Gathered(marks=self.marks)]

    def holds_by_key(self) -> list[list[Part]]:
        """The holds grouped by key: the database decides about the holds of one key in one step."""
        return [list(group) for _, group in groupby(sorted(self.of("holds"), key=_key_of), _key_of)]

    def argument(
        self, instance: str, held: Mapping[tuple[str, str], Decimal], holds: Sequence[Sequence[Part]]
    ) -> bytes:
        """The argument of `tollgate.round` as JSON. `held` is what this gateway holds now, by account and key, where
        that has changed; `holds` is what `holds_by_key` returned."""
        accounts = {part.account_id for part in self.parts} | {account for account, _ in held}
        amounts = [{"account": account, "key": key, "amount": str(amount)} for (account, key), amount in held.items()]
        return (
            b'{"instance":%b,"accounts":%b,"held":%b,"holds":[%b],"rows":[%b],"jobs":[%b],"used":[%b],"admits":[%b]}'
            % (
                orjson.dumps(instance),
                orjson.dumps(sorted(accounts)),
                orjson.dumps(amounts),
                b",".join([b"[%b]" % _joined(group) for group in holds]),
                _joined(self.of("rows")),
                _joined(self.of("jobs")),
                _joined(self.of("used")),
                _joined(self.of("admits")),
            )
        )


def granted_amount(answer: Mapping[str, Any]) -> Decimal:
    """The amount that the database's answer to a hold grants; 0 where it refuses."""
    return Decimal(answer.get("amount", 0))


def succeed(future: asyncio.Future[Any], answer: object) -> None:
    """Give a future its result, unless whoever waited has left."""
    if not future.done():
        future.set_result(answer)


def fail(future: asyncio.Future[Any], error: TollgateError) -> None:
    """Give a future its error, unless whoever waited has left."""
    if not future.done():
        future.set_exception(error)
        future.exception()  # counts as retrieved, or asyncio would log it where nobody waits


def _key_of(part: Part) -> str:
    return part.key_id


def _joined(parts: Sequence[Part]) -> bytes:
    return b",".join([part.json for part in parts])
