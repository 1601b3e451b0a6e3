"""Keys of the signed-in account: list, create (the secret is shown once), change, revoke."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, timedelta

import orjson
from starlette.responses import Response

from tollgate import accounts
from tollgate.accounts import KeyForm, KeyView
from tollgate.catalog import access_of, may_use
from tollgate.dashboard.key_list import key_list
from tollgate.dashboard.spending import spent_by_day
from tollgate.dashboard.visit import Form, Visit
from tollgate.errors import BadRequest, NotFound
from tollgate.ledger import KeyRecord
from tollgate.ledger.reports import Filters
from tollgate.money import decimal_text

_MOST_A_DAY = 100
"""Keys that an account may create here within 24 hours. All keys stay in memory, even when they are revoked, and one
with the longest lists has 100 kB: a script could fill the memory within minutes. Operators and commands have no limit.
"""


async def show(visit: Visit) -> Response:
    """All keys, and the form for a new one."""
    return await _list(visit, KeyForm())


async def create(visit: Visit) -> Response:
    """Create a key and show its secret, this once. If the same form is sent again, only the list is shown."""
    form = _read_form(visit.form)
    visit.ledger.require_ready()  # before the form counts as sent: it is sent again when the disk has room
    if await visit.sent_again():
        return visit.to("/keys", done="again")
    try:
        _limit_new(visit)
        key, secret = await accounts.create_key(visit.ledger, visit.me.id, form)
    except BadRequest as error:
        return await _list(visit, form, error)
    return visit.render(
        "key_made.html",
        key=key,
        secret=secret,
        example=visit.runtime.catalog.example(),
        useless=_fits_nothing(visit, key),
    )


async def one(visit: Visit) -> Response:
    """One key: its limits, what it spent, and revoking it."""
    view = await _mine(visit)
    return await _detail(visit, view, _as_typed(view))


async def change(visit: Visit) -> Response:
    """Set the limits in which the form differs from what it showed. Those that somebody else changed meanwhile stay,
    and so does an expiry: otherwise a new name would make an expired key valid again."""
    view = await _mine(visit)
    form = _read_form(visit.form)
    shown = _read_shown(visit.form["shown"]) or _as_typed(view)
    changed = {
        each.name: getattr(form, each.name)
        for each in fields(KeyForm)
        if getattr(form, each.name) != getattr(shown, each.name)
    }
    try:
        if changed:
            await accounts.change_key(visit.ledger, view.key.id, KeyForm(**changed), changed)
    except BadRequest as error:
        return await _detail(visit, view, form, error)
    return visit.to(f"/keys/{view.key.id}", done="saved")


async def revoke(visit: Visit) -> Response:
    """Revoke the key for good."""
    view = await _mine(visit)
    await visit.ledger.revoke_key(view.key.id)
    return visit.to("/keys", done="revoked")


async def _mine(visit: Visit) -> KeyView:
    """The key of the path if it belongs to this account; for a key of another account, as if it did not exist."""
    wanted = visit.argument("key")
    for view in await accounts.key_views(visit.ledger, visit.me.id):
        if view.key.id == wanted:
            return view
    raise NotFound("there is no such key")


def _limit_new(visit: Visit) -> None:
    if visit.is_operator:
        return
    since = datetime.now(UTC) - timedelta(days=1)
    if sum(key.created_at > since for key in visit.ledger.keys_of(visit.me.id)) >= _MOST_A_DAY:
        raise BadRequest(f"this account has {_MOST_A_DAY} keys of the last 24 hours; an operator can create more")


async def _list(visit: Visit, form: KeyForm, error: BadRequest | None = None) -> Response:
    return visit.render(
        "keys.html",
        status=400 if error else 200,
        keys=key_list(await accounts.key_views(visit.ledger, visit.me.id), visit.query["q"]),
        form=form,
        error=error,
        models=_model_ids(visit),
    )


async def _detail(visit: Visit, view: KeyView, form: KeyForm, error: BadRequest | None = None) -> Response:
    report, chart = await spent_by_day(visit, Filters(account=visit.me.id, key=view.key.id))
    return visit.render(
        "key.html",
        status=400 if error else 200,
        view=view,
        form=form,
        shown=visit.form["shown"] or orjson.dumps(_as_typed(view)).decode(),
        error=error,
        chart=chart,
        sums=report.all(),
        models=_model_ids(visit),
        last_used=view.key.last_used,
        useless=_fits_nothing(visit, view.key),
    )


def _read_form(form: Form) -> KeyForm:
    return KeyForm(
        **{each.name: form[each.name].strip() for each in fields(KeyForm) if each.name not in ("window", "strict")},
        window=form["window"] or "total",
        strict=form["strict"] == "yes",
    )


def _read_shown(text: str) -> KeyForm | None:
    """The limits that a form showed, from its hidden field; None if it has none."""
    try:
        return KeyForm(**orjson.loads(text))
    except (orjson.JSONDecodeError, TypeError):
        return None


def _as_typed(view: KeyView) -> KeyForm:
    """A key's limits in the notation of the form."""
    key = view.key
    ends = f"{key.expires_at.astimezone(UTC):%Y-%m-%dT%H:%M}" if key.expires_at else ""
    return KeyForm(
        name=key.name,
        models=view.models,
        expires=ends,
        cap="" if key.spend_cap is None else decimal_text(key.spend_cap),
        window=key.cap_window,
        rpm=str(key.rpm or ""),
        tpm=str(key.tpm or ""),
        concurrent=str(key.max_concurrent or ""),
        endpoints=", ".join(key.endpoints or ()),
        addresses=", ".join(key.allowed_addresses or ()),
        strict=key.strict,
    )


def _model_ids(visit: Visit) -> list[str]:
    return list(visit.runtime.catalog.models)


def _fits_nothing(visit: Visit, key: KeyRecord) -> bool:
    """Whether no model of the catalog matches a key's globs: probably an alias or a mistake."""
    if not key.allowed_models:
        return False
    access = access_of(key)
    return not any(may_use(access, model) for model in visit.runtime.catalog.models.values())
