"""A gateway in this process with the sandbox, and browsers that look at its pages.

A test gets a gateway of its own, unless its file says that one serves them all;
the functions here make either's fixtures.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from decimal import Decimal
from pathlib import Path

import httpx
import pytest

from support.inprocess import Here, inprocess

from .browser import Browser

IMAGES = (Path(__file__).resolve().parents[2] / "providers" / "sandbox-images.yaml").read_text()


def gateway(folder: Path) -> contextlib.AbstractAsyncContextManager[Here]:
    """A gateway with its state in `folder`, the sandbox and its image models."""
    return inprocess(folder, providers={"sandbox-images": IMAGES})


@contextlib.asynccontextmanager
async def browsers(here: Here) -> AsyncIterator[Callable[[], Browser]]:
    """What makes browsers, each with cookies of its own."""
    async with contextlib.AsyncExitStack() as stack:

        def make() -> Browser:
            client = httpx.AsyncClient(
                transport=httpx.ASGITransport(app=here.opened.app), base_url="http://127.0.0.1:8787", timeout=60
            )
            stack.push_async_callback(client.aclose)
            return Browser(here, client)

        yield make


async def user(here: Here, browser: Browser, id: str, credits: int) -> Browser:
    """A new account that is no operator, signed in."""
    await here.services.ledger.create_account(id, id.title())
    await here.services.ledger.grant(id, Decimal(credits), "a gift")
    return await browser.sign_in(id)


def asking(here: Here) -> Callable[..., Awaitable[httpx.Response]]:
    """Sends a chat request with a key, and waits until its row can be read."""

    async def send(key: str, text: str = "hi", **more: object) -> httpx.Response:
        reply = await here.post(
            "/v1/chat/completions",
            {"model": "sandbox/echo", "messages": [{"role": "user", "content": text}], **more},
            key=key,
        )
        await here.services.ledger.settle()
        return reply

    return send


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Here]:
    async with gateway(tmp_path) as opened:
        yield opened


@pytest.fixture
async def browser(here: Here) -> AsyncIterator[Callable[[], Browser]]:
    async with browsers(here) as make:
        yield make


@pytest.fixture
async def operator(browser: Callable[[], Browser]) -> Browser:
    """The account `default`, who is an operator, signed in."""
    return await browser().sign_in("default")


@pytest.fixture
async def alice(here: Here, browser: Callable[[], Browser]) -> Browser:
    """A user with ten credits, signed in."""
    return await user(here, browser(), "alice", 10)


@pytest.fixture
def ask(here: Here) -> Callable[..., Awaitable[httpx.Response]]:
    return asking(here)
