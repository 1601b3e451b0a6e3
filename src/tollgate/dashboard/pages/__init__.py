"""The pages, by who may open them: method, path below /dashboard, handler."""

from starlette.responses import Response

from tollgate.dashboard.pages import (
    account,
    config,
    health,
    images,
    keys,
    live,
    models,
    operator,
    overview,
    requests,
    tryit,
    usage,
)
from tollgate.dashboard.pages.usage import everybodys, own
from tollgate.dashboard.visit import Visit


async def _page_of_form(visit: Visit) -> Response:
    """To the page with this form. A form with a mistake is shown at the address it was sent to, which browsers open
    again with GET: when they restore a tab, and after light or dark was chosen, or a new sign-in."""
    return visit.to(visit.path.rpartition("/")[0])


FOR_ACCOUNTS = (
    ("GET", "", overview.show),
    ("GET", "/keys", keys.show),
    ("POST", "/keys", keys.create),
    ("GET", "/keys/{key}", keys.one),
    ("POST", "/keys/{key}", keys.change),
    ("POST", "/keys/{key}/revoke", keys.revoke),
    ("GET", "/usage", own(usage.show)),
    ("GET", "/usage/download.{form}", own(usage.download)),
    ("GET", "/requests", own(requests.show)),
    ("GET", "/requests/{request_id}", own(requests.one)),
    ("GET", "/credits", account.credits),
    ("GET", "/account", account.settings),
    ("GET", "/account/password", _page_of_form),
    ("POST", "/account/password", account.password),
    ("GET", "/models", models.show),
    ("GET", "/models/{model:path}", models.one),
    ("GET", "/try", tryit.show),
    ("POST", "/try", tryit.answer),
    ("POST", "/try/stream", tryit.stream),
    ("GET", "/images", images.show),
    ("POST", "/images", images.create),
    ("GET", "/images/{job}", images.one),
    ("GET", "/images/{job}/{number}", images.picture),
)
FOR_OPERATORS = (
    ("GET", "/operator/accounts", operator.accounts),
    ("POST", "/operator/accounts", operator.create),
    ("GET", "/operator/accounts/{account}", operator.one),
    *(("GET", "/operator/accounts/{account}/" + form, _page_of_form) for form in ("grant", "change", "link")),
    ("POST", "/operator/accounts/{account}/grant", operator.grant),
    ("POST", "/operator/accounts/{account}/change", operator.change),
    ("POST", "/operator/accounts/{account}/link", operator.link),
    ("POST", "/operator/accounts/{account}/keys/{key}/revoke", operator.revoke),
    ("GET", "/operator/usage", everybodys(usage.show)),
    ("GET", "/operator/usage/download.{form}", everybodys(usage.download)),
    ("GET", "/operator/requests", everybodys(requests.show)),
    ("GET", "/operator/requests/{request_id}", everybodys(requests.one)),
    ("GET", "/operator/providers", health.show),
    ("GET", "/operator/live", live.show),
    ("GET", "/operator/config", config.show),
    ("POST", "/operator/config/reload", config.reload),
)
