"""Forms of the dashboard that must work only once, such as a grant: which were sent."""

from __future__ import annotations

from tollgate.remembered.bounded import BoundedMemory

_MOST = 2000
"""Tokens that are remembered; the oldest is forgotten beyond that."""


class SentForms:
    """The tokens of the forms that were sent."""

    def __init__(self) -> None:
        self._sent: BoundedMemory[str, bool] = BoundedMemory(_MOST)

    async def is_new(self, token: str) -> bool:
        """Whether no form with this token was sent before. Of all callers with the same token, one gets True."""
        if self._sent.find(token):
            return False
        self._sent.keep(token, True, 1)
        return True
