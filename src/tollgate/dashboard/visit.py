"""One request to the pages: the visitor, the form or query, and the ways to answer. Handlers take a `Visit` and
return a Starlette response."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tollgate.accounts import KeyView, key_views
from tollgate.auth import permit
from tollgate.client_address import address_of
from tollgate.dashboard.sessions import Session
from tollgate.errors import BadRequest, NotFound, ShuttingDown

if TYPE_CHECKING:
    from jinja2 import Environment

    from tollgate.config.settings import Proxies
    from tollgate.dashboard.sessions import Sessions
    from tollgate.dashboard.templating import Statics
    from tollgate.dashboard.throttle import Throttle
    from tollgate.dashboard.usage_queries import UsageQueries
    from tollgate.ledger import Account, KeyRecord, Ledger
    from tollgate.reload import Reloader
    from tollgate.runtime import Runtime
    from tollgate.services import Services

_MOST_FIELDS = 100
_LONGEST_TOKEN = 64
"""Characters of a token that is remembered: a form may have a megabyte of them."""
_NOTICES = {
    "again": "That form was sent before; nothing was done twice.",
    "ended": "Your session has ended, and nothing was changed. Sign in, and fill in the form again.",
    "granted": "The credits are given.",
    "made": "The account is there.",
    "out": "You are signed out.",
    "password": "The password is changed.",
    "reloaded": "The configuration was read again.",
    "removed": "The password is taken away.",
    "revoked": "The key is revoked: it is refused from now on.",
    "saved": "Saved.",
}
"""The message of a page after a change, by the word in its address."""


@dataclass(slots=True)
class State:
    """The parts of the dashboard in one process."""

    services: Services
    reloader: Reloader
    sessions: Sessions
    throttle: Throttle
    queries: UsageQueries
    templates: Environment
    statics: Statics
    root: str
    """The path of the pages as browsers see it: `/dashboard`, or below the prefix of `base_url`."""
    address: str
    """The same with scheme and host."""
    secure: bool
    passwords: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(2))
    """Passwords checked at the same time: each takes a core and 32 MiB for a moment."""
    pictures: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(4))
    """Pictures fetched or decoded at the same time: each may take 20 MB."""


class Form(dict[str, str]):
    """The fields of a form, as text; a missing field is empty."""

    def __missing__(self, name: str) -> str:
        return ""

    @classmethod
    def parse(cls, body: bytes) -> Form:
        """Read an `application/x-www-form-urlencoded` body; a repeated field keeps its last value."""
        try:
            fields = parse_qs(
                body.decode("utf-8"), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict"
            )
        except (UnicodeDecodeError, ValueError):
            raise BadRequest("the form could not be read") from None
        return cls({name: values[-1].replace("\r\n", "\n") for name, values in fields.items()})


class Visit:
    """A request with its session; `account` is None for a visitor who is not signed in."""

    def __init__(self, state: State, request: Request, session: Session, account: Account | None) -> None:
        self.state = state
        self.request = request
        self.session = session
        self.account = account
        self.form = Form()
        """The fields of a POST, once the form is known to be ours; empty for a GET."""
        self.new_session: Session | None = None
        """Set it to give the browser another session with the answer."""

    @property
    def services(self) -> Services:
        """The services of the gateway."""
        return self.state.services

    @property
    def ledger(self) -> Ledger:
        """Its ledger."""
        return self.state.services.ledger

    @property
    def runtime(self) -> Runtime:
        """The running configuration."""
        return self.state.services.runtime.current

    @property
    def me(self) -> Account:
        """The signed-in account; only on pages that need one."""
        if self.account is None:
            raise NotFound("not signed in")
        return self.account

    @property
    def is_operator(self) -> bool:
        """Whether an operator is signed in."""
        return self.account is not None and self.account.role == "operator"

    @property
    def request_id(self) -> str:
        """The id in the answer's headers, and in the usage row of a request that a page makes."""
        return str(self.request.scope["request_id"])

    @property
    def query(self) -> Form:
        """The query string's fields."""
        return Form(self.request.query_params)

    @property
    def address(self) -> str:
        """The visitor's address, for the throttle; from proxies that the settings trust, the address they report."""
        return address_of(self.request.scope, self._proxies)

    @property
    def _proxies(self) -> Proxies:
        return self.runtime.gateway.server.trusted_proxies

    def key_names(self, ids: Iterable[str]) -> dict[str, str]:
        """Id -> the key's name, or the end of its secret, for those of these keys that exist."""
        return {key.id: _name(key) for key in self.ledger.known_keys(ids)}

    def key_labels(self, ids: Iterable[str], account: str | None) -> dict[str, str]:
        """Id -> a unique label of the key: its name, with its account if `account` is None, and with the end of its
        secret if another key of its account has the same name."""
        shown = self.ledger.known_keys(ids)
        many = {owner: Counter(map(_name, self.ledger.keys_of(owner))) for owner in {key.account_id for key in shown}}
        return {
            key.id: _name(key)
            + ("" if account is not None else f" ({key.account_id})")
            + (f" …{key.last_four}" if many[key.account_id][_name(key)] > 1 else "")
            for key in shown
        }

    async def active_keys(self) -> list[KeyView]:
        """The working keys of the signed-in account."""
        return [view for view in await key_views(self.ledger, self.me.id) if view.state == "active"]

    async def chosen_key(self, endpoint: str) -> KeyRecord | None:
        """The active key that the form names, for use with `endpoint` from the visitor's address. Raises
        `PermissionDenied`."""
        key = next((view.key for view in await self.active_keys() if view.key.id == self.form["key"]), None)
        if key is not None and key.restricted:
            permit(key, endpoint, self.request.scope, self._proxies)
        return key

    def require_ready(self) -> None:
        """Raise `Unavailable` where the API refuses requests that spend: while rows cannot be written, and while the
        gateway stops."""
        if self.services.draining:
            raise ShuttingDown()
        self.ledger.require_ready()

    @property
    def path(self) -> str:
        """The page's path below /dashboard."""
        return self.request.url.path.removeprefix("/dashboard")

    @property
    def _here(self) -> str:
        """The page with its query, to return to; without the notice of a change."""
        query = urlencode([each for each in self.request.query_params.multi_items() if each[0] != "done"])
        return (self.path or "/") + (f"?{query}" if query and self.path else "")

    def argument(self, name: str) -> str:
        """A variable part of the path."""
        return str(self.request.path_params[name])

    def url(self, path: str = "", **query: Any) -> str:
        """The address of a page: url("/keys", done="made"); empty values are left out."""
        query_text = urlencode({name: value for name, value in query.items() if value not in (None, "")})
        return self.state.root + quote(path, safe="/:@~._-") + (f"?{query_text}" if query_text else "")

    def render(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """A page."""
        page = self.state.templates.get_template(template).render(**self._common(), **values)
        return HTMLResponse(page, status)

    def to(self, path: str, **query: Any) -> Response:
        """Redirect to another page with GET."""
        return RedirectResponse(self.url(path, **query), 303)

    async def sent_again(self) -> bool:
        """Whether this form was sent before, as by a reload of the answer or a double click. A form whose token
        (`once`) is missing or cannot be ours counts as sent."""
        token = self.form["once"]
        return not token or len(token) > _LONGEST_TOKEN or not await self.ledger.forms.is_new(token)

    def _common(self) -> Mapping[str, Any]:
        state = self.state
        theme = self.request.cookies.get("theme", "")
        return {
            "url": self.url,
            "me": self.account,
            "is_operator": self.is_operator,
            "form_token": state.sessions.form_token(self.new_session or self.session),
            "once": secrets.token_urlsafe(12),
            "path": self.path,
            "here": self._here,
            "theme": theme if theme in ("light", "dark") else "auto",
            "static": lambda name: f"{state.root}/static/{name}?{state.statics.tags[name]}",
            "balance": self.ledger.balance(self.account.id) if self.account else None,
            "api": state.address.removesuffix("/dashboard") + "/v1",
            "done": self.query["done"],
            "notices": _NOTICES,
            "wrong_files": self.is_operator and not state.reloader.state.ok,
            "alarmed": bool(self.is_operator and state.services.health.alarms()),
            "damaged": state.queries.files.damaged,
            "refusing": self.ledger.not_ready_reason if self.is_operator else "",
        }


def _name(key: KeyRecord) -> str:
    return key.name or f"…{key.last_four}"
