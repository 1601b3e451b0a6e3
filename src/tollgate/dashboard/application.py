"""The dashboard as an ASGI application: routes, access rules, and security headers.

These rules must stay true: a page that needs an account never runs without one; operator pages look missing to others;
every POST has a token of its session; nothing is loaded from, or sent to, another host.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from tollgate.dashboard import pages, signin
from tollgate.dashboard.sessions import Session, SessionFiles, Sessions
from tollgate.dashboard.templating import Statics, environment
from tollgate.dashboard.throttle import Throttle
from tollgate.dashboard.usage_queries import UsageQueries
from tollgate.dashboard.visit import Form, State, Visit
from tollgate.errors import BadRequest, BodyTooLarge, NotFound, TollgateError, Unavailable
from tollgate.ledger import Account
from tollgate.reload import Reloader
from tollgate.services import Services, new_request_id

log = logging.getLogger("tollgate.dashboard")

Handler = Callable[[Visit], Awaitable[Response]]
Who = Literal["anybody", "account", "operator"]

_MOST_BODY = 1024 * 1024
_MOST_SIGNING_IN = 64 * 1024
"""Bytes of forms before signing in: a visitor without a password must not be able to fill the memory."""
_FILE = re.compile(r'"[^"]*/[^"]*"|(?<!\S)/\S+')
"""A file in the message of a store or a disk that is down: its place is for the log."""

_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "x-robots-tag": "noindex",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A method and a path below /dashboard, its handler, and who may open it."""

    method: str
    path: str
    handler: Handler
    who: Who


PLACES: tuple[Place, ...] = (
    Place("GET", "/sign-in", signin.form, "anybody"),
    Place("POST", "/sign-in", signin.with_password, "anybody"),
    Place("GET", "/link/{token}", signin.link, "anybody"),
    Place("POST", "/link/{token}", signin.with_link, "anybody"),
    Place("POST", "/theme", signin.theme, "anybody"),
    Place("POST", "/sign-out", signin.sign_out, "account"),
    *(Place(*each, "account") for each in pages.FOR_ACCOUNTS),
    *(Place(*each, "operator") for each in pages.FOR_OPERATORS),
)


def make_pages(services: Services, reloader: Reloader) -> Pages:
    """The application for one running gateway."""
    gateway = services.runtime.current.gateway
    base = gateway.server.base_url
    base_parts = urlsplit(base)
    return Pages(
        State(
            services=services,
            reloader=reloader,
            sessions=Sessions(
                services.ledger.sessions or SessionFiles(gateway.store.directory), gateway.dashboard.session_hours
            ),
            throttle=Throttle(),
            queries=UsageQueries(gateway.store.usage_directory),
            templates=environment(),
            statics=Statics(),
            root=base_parts.path.rstrip("/") + "/dashboard",
            address=base + "/dashboard",
            secure=base_parts.scheme == "https",
        )
    )


class Pages:
    """The application; one per running gateway."""

    def __init__(self, state: State) -> None:
        self.state = state
        routes = [Route("/dashboard" + place.path, self._endpoint(place), methods=[place.method]) for place in PLACES]
        routes.append(Route("/dashboard/static/{name}", self._static))
        self._router = Router(routes, redirect_slashes=False, default=self._nowhere)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; like all answers of the gateway it has an id (CLIENTS 3c)."""
        request_id = new_request_id()
        tag = request_id.encode()

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                ids = ((b"x-request-id", tag), (b"request-id", tag))
                message = {**message, "headers": [*message["headers"], *ids]}
            await send(message)

        await self._router({**scope, "request_id": request_id}, receive, answer)

    def _endpoint(self, place: Place) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            return await self._serve(request, place)

        return endpoint

    async def _nowhere(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def missing(visit: Visit) -> Response:
            raise NotFound("there is no such page")

        response = await self._serve(Request(scope, receive), Place("", "", missing, "anybody"))
        await response(scope, receive, send)

    async def _serve(self, request: Request, place: Place) -> Response:
        session, account = await self._session(request)
        visit = Visit(self.state, request, session, account)
        try:
            response = await self._answer(visit, place)
        except TollgateError as error:
            shown = Unavailable(_FILE.sub("…", error.message)) if isinstance(error, Unavailable) else error
            response = visit.render("error.html", status=error.status, error=shown)
        except ClientDisconnect:
            response = PlainTextResponse("", 400)
        except Exception:
            log.exception("request %s failed: page %s", request.scope["request_id"], request.url.path)
            response = visit.render(
                "error.html",
                status=500,
                error=TollgateError("this page could not be made; the log of the gateway says why"),
            )
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        response.headers.setdefault("cache-control", "no-store")
        if visit.new_session is not None:
            self._set_cookie(response, visit.new_session)
        return response

    async def _answer(self, visit: Visit, place: Place) -> Response:
        request = visit.request
        if place.who != "anybody" and visit.account is None:
            if request.method == "POST":
                return RedirectResponse(visit.url("/sign-in", done="ended", next=self._page_of_form(request)), 303)
            query = f"?{request.url.query}" if request.url.query and visit.path else ""
            return RedirectResponse(visit.url("/sign-in", next=visit.path + query), 303)
        if place.who == "operator" and not visit.is_operator:
            raise NotFound("there is no such page")
        if request.method == "POST":
            form = Form.parse(await _body(request, _MOST_BODY if visit.account else _MOST_SIGNING_IN))
            if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
                raise Refused("this form was sent from another site")
            if not self.state.sessions.owns_form(visit.session, form["form_token"]):
                raise Refused("this form is too old; go back, reload the page and send it again")
            visit.form = form
        return await place.handler(visit)

    def _page_of_form(self, request: Request) -> str:
        """The path below /dashboard of the page that a form was sent from; empty if the browser does not say so."""
        page = request.headers.get("referer", "")
        return page.removeprefix(self.state.address) if page.startswith(self.state.address + "/") else ""

    async def _session(self, request: Request) -> tuple[Session, Account | None]:
        sessions = self.state.sessions
        session = sessions.read(request.cookies.get(self._cookie_name, ""))
        if session is None:
            return sessions.visitor(), None
        if not session.account:
            return session, None
        try:
            account = await self.state.services.ledger.get_account(session.account)
        except NotFound:
            return sessions.visitor(), None
        return (session, account) if sessions.mark(account) == session.password_mark else (sessions.visitor(), None)

    @property
    def _cookie_name(self) -> str:
        return "__Host-tollgate" if self.state.secure else "tollgate"

    def _set_cookie(self, response: Response, session: Session) -> None:
        how: dict[str, Any] = {"path": "/", "secure": self.state.secure, "httponly": True, "samesite": "lax"}
        if session.id:
            response.set_cookie(self._cookie_name, self.state.sessions.cookie(session), **how)
        else:
            response.delete_cookie(self._cookie_name, **how)

    async def _static(self, request: Request) -> Response:
        found = self.state.statics.files.get(request.path_params["name"])
        if found is None:
            return PlainTextResponse("not found", 404, headers=_HEADERS)
        current = request.url.query == self.state.statics.tags[request.path_params["name"]]
        headers = _HEADERS | {"cache-control": "public, max-age=31536000, immutable" if current else "no-cache"}
        return Response(found[0], media_type=found[1], headers=headers)


class Refused(BadRequest):
    """A form that was not made by this gateway."""

    status = 403
    code = "form_refused"


async def _body(request: Request, most: int) -> bytes:
    blocks, size = [], 0
    async for block in request.stream():
        size += len(block)
        if size > most:
            raise BodyTooLarge(most)
        blocks.append(block)
    return b"".join(blocks)
