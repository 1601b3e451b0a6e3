"""A browser without rendering: cookies, forms and pages of the gateway in this process."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

import httpx

from support.inprocess import Here

TOKEN = re.compile(r'name="form_token" value="([^"]+)"')


@dataclass
class Browser:
    """A browser with its own cookies. `get` and `post` take paths below /dashboard."""

    app: Here
    http: httpx.AsyncClient

    async def get(self, path: str = "", **headers: str) -> httpx.Response:
        return await self.http.get(
            "/dashboard" + path, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )

    async def post(
        self,
        path: str,
        /,
        *,
        token: str | None = None,
        page: str | None = None,
        headers: dict[str, str] | None = None,
        **fields: str,
    ) -> httpx.Response:
        """Sends a form with the token of `page` (by default the start page), or with `token`."""
        if token is None:
            token = await self.token(page if page is not None else "")
        return await self.http.post("/dashboard" + path, data={**fields, "form_token": token}, headers=headers)

    async def token(self, page: str = "") -> str:
        found = TOKEN.search((await self.get(page)).text)
        assert found, f"no form on {page}"
        return found[1]

    async def field(self, page: str, name: str) -> str:
        """The value of a hidden field of a page."""
        found = re.search(rf'name="{name}" value="([^"]*)"', (await self.get(page)).text)
        assert found, f"no field {name} on {page}"
        return html.unescape(found[1])

    async def sign_in(self, account: str = "default") -> Browser:
        """Signs in by a one-time link, as `tollgate accounts link` prints it."""
        link = (await self.app.services.ledger.create_link(account)).partition("/dashboard")[2]
        done = await self.post(link, page=link)
        assert done.status_code == 303, done.text
        return self

    async def make_key(self, **fields: str) -> str:
        """Creates a key with the form; returns its secret."""
        made = await self.post("/keys", once=await self.field("/keys", "once"), **fields)
        assert made.status_code == 200, made.text
        found = re.search(r"sk-tg-[\w-]+", made.text)
        assert found, text_of(made)
        return found[0]


def text_of(reply: httpx.Response) -> str:
    """The visible text of a page."""
    body = re.sub(r"</?span\b[^>]*>", "", reply.text)
    body = re.sub(r"<(script|style|svg)\b.*?</\1>", " ", body, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", body))).strip()
