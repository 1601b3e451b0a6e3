"""The order from which an image job is made, and the error after which a request must not be repeated."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from tollgate.errors import TollgateError

if TYPE_CHECKING:
    from tollgate.ledger import KeyRecord


class Unsaved(TollgateError):
    """The result of a provider could not be stored: a 500 (SPEC errors of images).

    The request must not be repeated: the provider would have to be paid again.
    """

    code = "result_not_saved"
    billed = True


@dataclass(frozen=True, slots=True)
class Order:
    """A request for a job: who asks for what, and the `endpoint` for its usage row."""

    key: KeyRecord
    request_id: str
    model: str
    input: object
    webhook: str | None = None
    endpoint: str = "images"
    received_at: datetime | None = None
    counted: bool = False
    """The request was counted against the key's rate limits already."""
    lost: tuple[str, ...] = ()
    """Fields of the request that a job has no place for."""
