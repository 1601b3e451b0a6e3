"""The sandbox in its two forms: `send` calls it in-process, `sandbox_url` is a server for the whole session."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sandbox_talk import Exchange, body_of, exchange, start

from tollgate.sandbox import Sandbox


@pytest.fixture
def sandbox() -> Sandbox:
    return Sandbox()


@pytest.fixture
def send(sandbox: Sandbox) -> Callable:
    """`await send("chat", "hi", stream=True)` returns an `Exchange`."""

    async def asking(protocol: str, text: object, headers: dict[str, str] | None = None, /, **more: object) -> Exchange:
        path, body = body_of(protocol, text, **more)
        return await exchange(sandbox, path, body, headers)

    return asking


@pytest.fixture(scope="session")
def sandbox_url() -> Iterator[str]:
    process, url = start()
    yield url
    process.terminate()
    process.wait(60)
