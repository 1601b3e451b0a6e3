"""Who is signed in: signed session cookies, and tokens that prove that a form came from our own page.

The cookie has a random session id, the account, its end, and a digest of the account's password: a new password ends
every session. Signing in always creates a new session id. Signing out stores the id until the session would have ended.
The signing secret is created once and kept beside the ledger, readable only by its owner; gateways that share a ledger
share it too.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import orjson

from tollgate.ledger import Account
from tollgate.ledger.durable_files import write_durably
from tollgate.steady_time import SteadyTime

log = logging.getLogger("tollgate.dashboard")

_SECRET_NAME = "dashboard.secret"
_ENDED_NAME = "dashboard.ended"
_VISIT_SECONDS = 3600
"""How long the sign-in page may be open before its form is refused."""
_LONGEST = 1000


@dataclass(frozen=True, slots=True)
class Session:
    """One browser's session; `account` is empty before signing in."""

    id: str
    account: str
    ends: int
    password_mark: str = ""


class SessionKeeper(Protocol):
    """Stores the signing secret, and the signed-out sessions with the times at which they would have ended."""

    secret: bytes
    ended: Mapping[str, int]

    def end(self, id: str, ends: int) -> None:
        """Store one more signed-out session; may take a moment."""


class SessionFiles:
    """The `SessionKeeper` of one gateway: two files in its store's folder."""

    def __init__(self, directory: Path, times: SteadyTime | None = None) -> None:
        self._file = directory / _ENDED_NAME
        self._times = times or SteadyTime()
        self._turn = threading.Lock()
        self.secret = _secret(directory / _SECRET_NAME)
        self.ended: Mapping[str, int] = _read_ended(self._file)

    def end(self, id: str, ends: int) -> None:
        with self._turn:  # signing out runs on several threads
            now = self._times.now() or 0.0
            self.ended = {known: end for known, end in self.ended.items() if end > now} | {id: ends}
            _keep(
                self._file,
                "".join(f"{known} {end}\n" for known, end in self.ended.items()).encode(),
                "a session that was signed out is one again after a restart",
            )


class Sessions:
    """Creates and reads session cookies."""

    def __init__(self, keeper: SessionKeeper, hours: float, clock: Callable[[], float] = time.time) -> None:
        self._keeper = keeper
        self._hours = hours
        self._clock = clock

    def visitor(self) -> Session:
        """A new session of a visitor who is not signed in."""
        return Session(secrets.token_urlsafe(18), "", int(self._clock()) + _VISIT_SECONDS)

    def signed_in(self, account: Account) -> Session:
        """A new session of this account, independent of any earlier cookie (against session fixation)."""
        return Session(
            secrets.token_urlsafe(18), account.id, int(self._clock() + self._hours * 3600), self.mark(account)
        )

    def mark(self, account: Account) -> str:
        """A digest that changes when the account's password does."""
        return self._sign("password", account.id + "\0" + account.password_hash)[:16]

    def cookie(self, session: Session) -> str:
        """The cookie's value."""
        payload = _encode(orjson.dumps([session.id, session.account, session.ends, session.password_mark]))
        return f"{payload}.{self._sign('session', payload)}"

    def read(self, value: str) -> Session | None:
        """The session of a cookie; None if it is not ours, has ended, or was signed out."""
        payload, _, signature = value.partition(".")
        if (
            len(value) > _LONGEST
            or not value.isascii()
            or not hmac.compare_digest(self._sign("session", payload), signature)
        ):
            return None
        try:
            session = Session(*orjson.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))))
        except (binascii.Error, orjson.JSONDecodeError, TypeError):
            return None
        left = session.ends - self._clock()
        # one that lasts longer than a new one is from a time when the clock was set ahead
        lasts = 0 < left <= self._hours * 3600 + _VISIT_SECONDS
        return session if lasts and session.id not in self._keeper.ended else None

    def end(self, session: Session) -> None:
        """Sign out: from now on the cookie is refused, also after a restart."""
        self._keeper.end(session.id, session.ends)

    def form_token(self, session: Session) -> str:
        """The token in every form of this session."""
        return self._sign("form", session.id)

    def owns_form(self, session: Session, token: str) -> bool:
        """Whether a form was created in this session."""
        return token.isascii() and hmac.compare_digest(self.form_token(session), token)

    def _sign(self, purpose: str, text: str) -> str:
        return _encode(hmac.digest(self._keeper.secret, f"{purpose}:{text}".encode(), hashlib.sha256))


def _secret(path: Path) -> bytes:
    """The signing secret, created at the first start. A file that others can read is made private again."""
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        found = b""
    if len(found) < 32:
        found = secrets.token_bytes(48)
        _keep(path, found, "whoever signs in is signed out by a restart")
    else:
        path.chmod(0o600)
    return found


def _read_ended(path: Path) -> dict[str, int]:
    try:
        lines = path.read_text("ascii").splitlines()
    except FileNotFoundError:
        return {}
    pairs = (line.split() for line in lines)
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _keep(path: Path, content: bytes, otherwise: str) -> None:
    """Write a file; if the disk is full the pages continue without it, because that is when an operator needs them."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, content, 0o600)
    except OSError as error:
        log.error("%s cannot be written (%s), so %s", path, error.strerror, otherwise)


def _encode(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")
