"""A gateway in this process with the sandbox, and browsers that look at its pages."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest

from support.inprocess import Here, inprocess

from .browser import Browser

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Here]:
    images = (ROOT / "providers" / "sandbox-images.yaml").read_text()
    async with inprocess(tmp_path, providers={"sandbox-images": images}) as opened:
        yield opened


@pytest.fixture
async def browser(here: Here) -> AsyncIterator[Callable[[], Browser]]:
    """Makes browsers, each with cookies of its own."""
    async with contextlib.AsyncExitStack() as stack:
        clients: list[httpx.AsyncClient] = []

        def make() -> Browser:
            client = httpx.AsyncClient(transport=httpx.ASGITransport(app=here.opened.app), base_url="http://127.0.0.1:8787", timeout=60)
            clients.append(client)
            stack.push_async_callback(client.aclose)
            return Browser(here, client)

        yield make


@pytest.fixture
async def operator(browser: Callable[[], Browser]) -> Browser:
    """The account `default`, who is an operator, signed in."""
    return await browser().sign_in("default")


@pytest.fixture
async def alice(here: Here, browser: Callable[[], Browser]) -> Browser:
    """A user with ten credits, signed in."""
    from decimal import Decimal

    await here.services.ledger.create_account("alice", "Alice")
    await here.services.ledger.grant("alice", Decimal(10), "a gift")
    return await browser().sign_in("alice")


@pytest.fixture
def ask(here: Here):
    """Send a chat request with a key, and wait until its row can be read."""

    async def send(key: str, text: str = "hi", **more: object) -> httpx.Response:
        reply = await here.post("/v1/chat/completions", {"model": "sandbox/echo", "messages": [{"role": "user", "content": text}], **more}, key=key)
        await here.services.ledger.settle()
        return reply

    return send
