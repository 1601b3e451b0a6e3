"""The sandbox in its two forms: `ask` calls it in-process, `sandbox_url` is one server for the whole session."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sandbox_talk import Heard, body_of, hear, start

from tollgate.sandbox import Sandbox


@pytest.fixture
def sandbox() -> Sandbox:
    return Sandbox()


@pytest.fixture
def ask(sandbox: Sandbox) -> Callable:
    """`await ask("chat", "hi", stream=True)` -> `Heard`."""

    async def asking(protocol: str, text: object, headers: dict[str, str] | None = None, /, **more: object) -> Heard:
        path, body = body_of(protocol, text, **more)
        return await hear(sandbox, path, body, headers)

    return asking


@pytest.fixture(scope="session")
def sandbox_url() -> Iterator[str]:
    process, url = start()
    yield url
    process.terminate()
    process.wait(60)
