"""Credits of the account, and its settings."""

from __future__ import annotations

from decimal import Decimal

from starlette.responses import Response

from tollgate import accounts
from tollgate.dashboard.signin import password_fits
from tollgate.dashboard.spending import spent_by_day
from tollgate.dashboard.visit import Visit
from tollgate.errors import BadRequest
from tollgate.ledger.reports import Filters
from tollgate.passwords import LONGEST, SHORTEST, has_password


async def credits(visit: Visit) -> Response:
    """Balance, how it is made up, and every grant."""
    name = visit.me.id
    report, chart = await spent_by_day(visit, Filters(account=name))
    sums = await visit.ledger.sums(name)
    pace = sum((bucket.all.cost for bucket in report.buckets[-8:-1]), start=Decimal(0)) / 7
    left = int(sums.balance / pace) if pace > 0 and sums.balance > 0 else None
    return visit.render(
        "credits.html",
        sums=sums,
        grants=await visit.ledger.list_grants(name),
        chart=chart,
        left=left,
        minimum=visit.runtime.gateway.credits.minimum,
    )


async def settings(visit: Visit) -> Response:
    """The account's name and its password."""
    return _settings(visit)


async def password(visit: Visit) -> Response:
    """Set, change or remove the password; other sessions end, this one continues."""
    me, form = visit.me, visit.form
    if has_password(me.password_hash):
        if visit.state.throttle.wait(visit.address, me.id):
            return _settings(visit, BadRequest("too many tries; wait some minutes", "current"), 429)
        if not await password_fits(visit, me.id, form["current"], me.password_hash):
            return _settings(visit, BadRequest("the current password is another one", "current"), 403)
    remove = form["remove"] == "yes"
    if not remove and form["new"] != form["again"]:
        return _settings(visit, BadRequest("the two new passwords differ", "again"), 400)
    try:
        changed = await accounts.set_password(visit.ledger, me.id, None if remove else form["new"])
    except BadRequest as error:
        return _settings(visit, error, 400)
    visit.new_session = visit.state.sessions.signed_in(changed)
    return visit.to("/account", done="removed" if remove else "password")


def _settings(visit: Visit, error: BadRequest | None = None, status: int = 200) -> Response:
    return visit.render(
        "account.html",
        status=status,
        error=error,
        shortest=SHORTEST,
        longest=LONGEST,
        has_password=has_password(visit.me.password_hash),
    )
