"""What gathers for one round with the database: its parts, how they are written down, and who waits for which answer.

Sending it, and what it does to the holds of this gateway, is `rounds.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import groupby
from operator import itemgetter
from typing import Any

import orjson

from tollgate.errors import TollgateError


@dataclass(slots=True)
class Part:
    """One part of a round: its JSON, whose balance it needs, the future that gets what the database says of it, and the
    number of the newest row by then."""

    json: bytes
    account_id: str
    future: asyncio.Future[Any]
    key_id: str = ""
    seq: int = 0


@dataclass(slots=True)
class Gathered:
    """What goes into one round."""

    rows: list[Part] = field(default_factory=list)
    jobs: list[Part] = field(default_factory=list)
    used: list[Part] = field(default_factory=list)
    admits: list[Part] = field(default_factory=list)
    holds: list[Part] = field(default_factory=list)
    marks: list[asyncio.Future[None]] = field(default_factory=list)

    def parts(self) -> list[Part]:
        """All but the marks, which ask the database for nothing."""
        return [*self.rows, *self.jobs, *self.used, *self.admits, *self.holds]

    def alone(self) -> list[Gathered]:
        """The same, each part in a round of its own; rows, and jobs with theirs, in the order of their numbers: what is
        published is known by its highest."""
        single = [
            (part.seq, Gathered(**{kind: [part]}))
            for kind in ("jobs", "rows", "used", "admits", "holds")
            for part in getattr(self, kind)
        ]
        return [*(alone for _, alone in sorted(single, key=itemgetter(0))), Gathered(marks=self.marks)]

    def holds_by_key(self) -> list[list[Part]]:
        """The holds, those of one key together: the database decides about them in one step."""
        return [list(group) for _, group in groupby(sorted(self.holds, key=_key_of), _key_of)]

    def asked(self, instance: str, held: Mapping[tuple[str, str], Decimal], holds: Sequence[Sequence[Part]]) -> bytes:
        """The argument of `tollgate.round`. `held` is what requests of this gateway hold now, by account and key, as
        far as it has changed; `holds` are those of `holds_by_key`."""
        accounts = {part.account_id for part in self.parts()} | {account for account, _ in held}
        amounts = [{"account": account, "key": key, "amount": str(amount)} for (account, key), amount in held.items()]
        return (
            b'{"instance":%b,"accounts":%b,"held":%b,"holds":[%b],"rows":[%b],"jobs":[%b],"used":[%b],"admits":[%b]}'
            % (
                orjson.dumps(instance),
                orjson.dumps(sorted(accounts)),
                orjson.dumps(amounts),
                b",".join([b"[%b]" % _joined(group) for group in holds]),
                _joined(self.rows),
                _joined(self.jobs),
                _joined(self.used),
                _joined(self.admits),
            )
        )


def granted_amount(answer: Mapping[str, Any]) -> Decimal:
    """What the database's answer to a hold grants; 0 where it refuses."""
    return Decimal(answer.get("amount", 0))


def succeed(future: asyncio.Future[Any], answer: object) -> None:
    """Give who waits his answer, unless he is gone."""
    if not future.done():
        future.set_result(answer)


def fail(future: asyncio.Future[Any], error: TollgateError) -> None:
    """Raise `error` for who waits, unless he is gone."""
    if not future.done():
        future.set_exception(error)
        future.exception()  # told, whether or not anybody waits


def _key_of(part: Part) -> str:
    return part.key_id


def _joined(parts: Sequence[Part]) -> bytes:
    return b",".join([part.json for part in parts])
