"""A browser without a screen: cookies, forms and pages over the gateway in this process."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

import httpx

from support.inprocess import Here

TOKEN = re.compile(r'name="form_token" value="([^"]+)"')


@dataclass
class Browser:
    """One person's browser. `get` and `post` take paths below /dashboard."""

    here: Here
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
        """Send a form with the token of `page` (default: the start page), or with `token`."""
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
        """By a one-time link, as `tollgate accounts link` prints it."""
        link = (await self.here.services.ledger.create_link(account)).partition("/dashboard")[2]
        done = await self.post(link, page=link)
        assert done.status_code == 303, done.text
        return self

    async def make_key(self, **fields: str) -> str:
        """Create a key by the form; gives its secret."""
        made = await self.post("/keys", once=await self.field("/keys", "once"), **fields)
        assert made.status_code == 200, made.text
        found = re.search(r"sk-tg-[\w-]+", made.text)
        assert found, text_of(made)
        return found[0]


def text_of(reply: httpx.Response) -> str:
    """What a person reads of a page."""
    body = re.sub(r"</?span\b[^>]*>", "", reply.text)
    body = re.sub(r"<(script|style|svg)\b.*?</\1>", " ", body, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", body))).strip()
