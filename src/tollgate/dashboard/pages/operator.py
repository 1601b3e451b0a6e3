"""All accounts: create, give credits, change role and name, sign-in links, keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from starlette.responses import Response

from tollgate import accounts as service
from tollgate.accounts import AccountView
from tollgate.dashboard.key_list import key_list
from tollgate.dashboard.spending import spent_by_day
from tollgate.dashboard.visit import Visit
from tollgate.errors import BadRequest, NotFound
from tollgate.ledger import Account
from tollgate.ledger.reports import Filters
from tollgate.ledger.sign_in_links import LINK_SECONDS

_MOST = 200
"""Accounts that the list shows; others are found by name. A list of a thousand blocked other requests for 0.3 s."""


async def accounts(visit: Visit) -> Response:
    """The list, and the form for a new one."""
    return await _list(visit)


async def create(visit: Visit) -> Response:
    """A new account, with credits if some are given."""
    form = visit.form
    try:
        await service.create_account(
            visit.ledger, form["id"].strip(), form["name"], form["role"] or "user", form["credits"]
        )
    except BadRequest as error:
        return await _list(visit, error)
    return visit.to(f"/operator/accounts/{form['id'].strip()}", done="made")


async def one(visit: Visit) -> Response:
    """One account: credits, grants, keys."""
    return await _detail(visit)


async def grant(visit: Visit) -> Response:
    """Grant credits or take them back; a reload of the answer does not repeat it."""
    name = visit.argument("account")
    await visit.ledger.get_account(name)
    visit.ledger.require_ready()  # before the form counts as sent: it is sent again when the disk has room
    if await visit.sent_again():
        return visit.to(f"/operator/accounts/{name}", done="again")
    try:
        await service.grant(visit.ledger, name, visit.form["amount"], visit.form["note"].strip())
    except BadRequest as error:
        return await _detail(visit, error)
    return visit.to(f"/operator/accounts/{name}", done="granted")


async def change(visit: Visit) -> Response:
    """Name and role, where the form differs from what it showed: what another operator changed meanwhile stays.
    Operators cannot remove their own role, so that one always remains."""
    account, form = visit.argument("account"), visit.form
    name = None if form.get("shown_name") == form["name"] else form["name"]
    role = None if form.get("shown_role") == form["role"] else form["role"] or "user"
    try:
        if account == visit.me.id and role == "user":
            raise BadRequest("this is your own account; another operator has to change its role", "role")
        await service.change_account(visit.ledger, account, name, role)
    except BadRequest as error:
        return await _detail(visit, error)
    return visit.to(f"/operator/accounts/{account}", done="saved")


async def link(visit: Visit) -> Response:
    """A one-time sign-in link for this account, shown once."""
    address = await visit.ledger.create_link(visit.argument("account"))
    return await _detail(visit, link=address)


async def revoke(visit: Visit) -> Response:
    """Revoke a key of this account."""
    name, key_id = visit.argument("account"), visit.argument("key")
    if (await visit.ledger.get_key(key_id)).account_id != name:
        raise NotFound("there is no such key")
    await visit.ledger.revoke_key(key_id)
    return visit.to(f"/operator/accounts/{name}", done="revoked")


async def _list(visit: Visit, error: BadRequest | None = None) -> Response:
    search = visit.query["q"].strip()[:100]
    every = await visit.ledger.list_accounts()
    found = [each for each in every if search.casefold() in f"{each.id} {each.name}".casefold()]
    views = await _views(visit, found[:_MOST])
    return visit.render(
        "accounts.html",
        status=400 if error else 200,
        views=views,
        search=search,
        found=len(found),
        total=len(every),
        error=error,
        form=visit.form,
    )


async def _views(visit: Visit, shown: Sequence[Account]) -> list[AccountView]:
    """These accounts with their sums; only their own keys are read, because there may be very many."""
    now, sums = datetime.now(UTC), {each.account_id: each for each in await visit.ledger.list_sums()}
    return [
        AccountView(
            account,
            sums[account.id],
            sum(service.state_of(key, now) == "active" for key in visit.ledger.keys_of(account.id)),
        )
        for account in shown
        if account.id in sums  # else it was created in the meantime
    ]


async def _detail(visit: Visit, error: BadRequest | None = None, *, link: str = "") -> Response:
    name = visit.argument("account")
    view = await service.account_view(visit.ledger, name)
    _, chart = await spent_by_day(visit, Filters(account=name))
    return visit.render(
        "one_account.html",
        status=400 if error else 200,
        view=view,
        keys=key_list(await service.key_views(visit.ledger, name), visit.query["q"]),
        grants=await visit.ledger.list_grants(name),
        chart=chart,
        error=error,
        link=link,
        minutes=LINK_SECONDS // 60,
        form=visit.form,
    )
