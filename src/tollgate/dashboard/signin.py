"""The sign-in page, passwords, one-time links, signing out, and the light or dark theme."""

from __future__ import annotations

import asyncio

from starlette.responses import RedirectResponse, Response

from tollgate.dashboard.sessions import Session
from tollgate.dashboard.visit import Visit
from tollgate.errors import NotFound
from tollgate.passwords import check_password

_THEME_SECONDS = 365 * 86_400


async def form(visit: Visit) -> Response:
    """The sign-in page."""
    if visit.account is not None:
        return _onward(visit, visit.query["next"])
    return _form(visit, visit.query["next"])


async def with_password(visit: Visit) -> Response:
    """Sign in with account and password; the answer to a mistake does not say which of the two was wrong."""
    name, password, onward = visit.form["account"].strip(), visit.form["password"], visit.form["next"]
    wait = visit.state.throttle.wait(visit.address, name)
    if wait:
        response = _form(
            visit, onward, name, f"Too many tries. Wait {max(1, round(wait / 60))} minutes, or use a sign-in link.", 429
        )
        response.headers["retry-after"] = str(max(1, round(wait)))
        return response
    try:
        account = await visit.ledger.get_account(name)
    except NotFound:
        account = None
    if not await password_fits(visit, name, password, account.password_hash if account else "") or account is None:
        return _form(visit, onward, name, "That account and password do not fit.", 403)
    visit.new_session = visit.state.sessions.signed_in(account)
    return _onward(visit, onward)


async def password_fits(visit: Visit, account: str, password: str, stored: str) -> bool:
    """Whether a password is the stored one; a wrong one is counted for the visitor's address and the account."""
    throttle, address = visit.state.throttle, visit.address
    throttle.failed(address, account)  # counted before the slow check, so that parallel tries are limited too
    async with visit.state.passwords:
        fits = await asyncio.to_thread(check_password, password, stored)
    if fits:
        throttle.succeeded(address, account)
    return fits


async def link(visit: Visit) -> Response:
    """The page of a one-time link: with a button, because programs that preview links must not use it up."""
    account = await visit.ledger.links.look(visit.argument("token"))
    if account is not None:
        _begin(visit)
    return visit.render("link.html", status=200 if account else 404, account=account, token=visit.argument("token"))


async def with_link(visit: Visit) -> Response:
    """Use the link. It cannot be guessed, so it also works for an address that is locked out."""
    account = await visit.ledger.links.take(visit.argument("token"))
    if account is None:
        return visit.render("link.html", status=404, account=None, token="")
    visit.new_session = visit.state.sessions.signed_in(await visit.ledger.get_account(account))
    return visit.to("")


async def sign_out(visit: Visit) -> Response:
    """End the session for good."""
    await asyncio.to_thread(visit.state.sessions.end, visit.session)
    visit.new_session = Session("", "", 0)
    return visit.to("/sign-in", done="out")


async def theme(visit: Visit) -> Response:
    """Remember light or dark; any other value follows the system again."""
    response = _onward(visit, visit.form["next"])
    chosen = visit.form["theme"]
    if chosen in ("light", "dark"):
        response.set_cookie(
            "theme",
            chosen,
            max_age=_THEME_SECONDS,
            path=visit.state.root,
            samesite="lax",
            secure=visit.state.secure,
            httponly=True,
        )
    else:
        response.delete_cookie("theme", path=visit.state.root)
    return response


def _form(visit: Visit, onward: str, name: str = "", problem: str = "", status: int = 200) -> Response:
    _begin(visit)
    return visit.render("signin.html", status=status, next=onward, name=name, problem=problem)


def _begin(visit: Visit) -> None:
    """Create a session for a visitor, so that the form of this page can be distinguished from a foreign one."""
    if visit.account is None:
        visit.new_session = visit.session


def _onward(visit: Visit, path: str) -> Response:
    """Redirect to a path on this site, which begins with one slash; otherwise to the start page."""
    safe = path.startswith("/") and not path.startswith("//") and path.isprintable() and "\\" not in path
    return RedirectResponse(visit.state.root + (path if safe and path != "/" else ""), 303)
