"""A gateway in this process with the sandbox and its image models, and browsers for its pages.

Each test has its own gateway, unless its file shares one: the functions here are for the fixtures of both.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from decimal import Decimal
from pathlib import Path

import httpx
import pytest

from support.inprocess import Here, inprocess
from support.places import SANDBOX_IMAGES
from tollgate import passwords

from .browser import Browser


def gateway(directory: Path) -> contextlib.AbstractAsyncContextManager[Here]:
    """A gateway with its state in `directory`, the sandbox and its image models."""
    return inprocess(directory, providers={"sandbox-images": SANDBOX_IMAGES})


@contextlib.asynccontextmanager
async def browsers(app: Here) -> AsyncIterator[Callable[[], Browser]]:
    """Yields a function that creates browsers, each with its own cookies."""
    async with contextlib.AsyncExitStack() as stack:

        def make() -> Browser:
            client = httpx.AsyncClient(
                transport=httpx.ASGITransport(app=app.opened.app), base_url="http://127.0.0.1:8787", timeout=60
            )
            stack.push_async_callback(client.aclose)
            return Browser(app, client)

        yield make


async def user(app: Here, browser: Browser, id: str, credits: int) -> Browser:
    """Creates an account that is no operator, and signs it in."""
    await app.services.ledger.create_account(id, id.title())
    await app.services.ledger.grant(id, Decimal(credits), "a gift")
    return await browser.sign_in(id)


def chat_sender(app: Here) -> Callable[..., Awaitable[httpx.Response]]:
    """Returns a function that sends a chat request with a key, and waits until its usage row can be read."""

    async def send(key: str, text: str = "hi", **more: object) -> httpx.Response:
        reply = await app.post(
            "/v1/chat/completions",
            {"model": "sandbox/echo", "messages": [{"role": "user", "content": text}], **more},
            key=key,
        )
        await app.services.ledger.settle()
        return reply

    return send


@pytest.fixture(autouse=True)
def weak_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords are hashed in a thousandth of the time: `tests/test_passwords.py` tests the hashes of a gateway."""
    monkeypatch.setattr(passwords, "_LOG_N", 5)
    monkeypatch.setattr(passwords, "NO_PASSWORD", passwords.NO_PASSWORD.replace("$15$", "$5$"))


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Here]:
    async with gateway(tmp_path) as opened:
        yield opened


@pytest.fixture
async def browser(app: Here) -> AsyncIterator[Callable[[], Browser]]:
    async with browsers(app) as make:
        yield make


@pytest.fixture
async def operator(browser: Callable[[], Browser]) -> Browser:
    """A browser signed in as `default`, which is an operator."""
    return await browser().sign_in("default")


@pytest.fixture
async def alice(app: Here, browser: Callable[[], Browser]) -> Browser:
    """A browser signed in as a user with ten credits."""
    return await user(app, browser(), "alice", 10)


@pytest.fixture
def send_chat(app: Here) -> Callable[..., Awaitable[httpx.Response]]:
    return chat_sender(app)
