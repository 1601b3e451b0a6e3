"""A gateway inside the test process: real configuration, ledger and pipelines; only upstreams may be fakes.

    async with inprocess(folder, providers={"acme": "..."}, apps={"acme": app}) as here:
        reply = await here.post("/v1/chat/completions", {...})

Fakes are upstream apps (`app://acme/...`), so nothing between the client and the provider is replaced.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import httpx

from tollgate.config.build import Known, load_gateway
from tollgate.runtime import Runtime, build_runtime
from tollgate.server import Opened, close_gateway, open_gateway

UpstreamApp = Callable[[str, str, Mapping[str, str], bytes], Awaitable[tuple[int, Mapping[str, str], AsyncIterator[bytes]]]]


_mappings: dict[str, Any] = {}
"""Mapping files read so far: as at a reload, what holds the same text is not read again."""
_richest: list[Runtime | None] = [None]
"""The runtime with the most mappings so far: what is the same in the next configuration is not compiled again, as at a reload."""


@dataclass
class Here:
    """A gateway in this process, its default key, and an HTTP client that talks to it without a socket."""

    opened: Opened
    key: str
    http: httpx.AsyncClient

    @property
    def services(self):
        return self.opened.services

    async def post(self, path: str, body: Any, *, key: str | None = None, **headers: str) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.http.post(path, content=content, headers={"authorization": f"Bearer {key or self.key}", "content-type": "application/json",
                                                                    **{name.replace("_", "-"): value for name, value in headers.items()}})

    async def get(self, path: str, *, key: str | None = "") -> httpx.Response:
        return await self.http.get(path, headers={} if key is None else {"authorization": f"Bearer {key or self.key}"})

    def balance(self, account: str = "default") -> Decimal:
        return self.services.ledger.balance(account)


@contextlib.asynccontextmanager
async def inprocess(folder: Path, *, providers: Mapping[str, str] | None = None, apps: Mapping[str, UpstreamApp] | None = None, settings: str = "",
                    environ: Mapping[str, str] | None = None, sandbox: bool = True) -> AsyncIterator[Here]:
    """Open a gateway whose state lives in `folder`. `providers` are YAML texts by name, beside the shipped sandbox."""
    path = write_config(folder, providers=providers, settings=settings, sandbox=sandbox)
    loaded = load_gateway(path, environ=environ or {}, previous=Known({}, _mappings, ()))
    _mappings.update(loaded.known.mappings)
    runtime = build_runtime(loaded, previous=_richest[0])
    if _richest[0] is None or len(runtime.mappings) >= len(_richest[0].mappings):
        _richest[0] = runtime
    opened = await open_gateway(runtime, path)
    for name, app in (apps or {}).items():
        opened.services.client.register_app(name, app)
    transport = httpx.ASGITransport(app=opened.app, raise_app_exceptions=True)
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8787", timeout=60) as client:
            yield Here(opened, opened.first_key or "", client)
    finally:
        await close_gateway(opened)


def unspoken(name: str) -> str:
    """The text of a mapping file as small as one can be: for formats a test's providers declare and nobody speaks there."""
    return f"mapping: {name}\nrequest: {{from_hub: {{$copy: [model]}}}}\nresponse: {{to_hub: {{$copy: [model]}}}}\n"


def write_config(folder: Path, *, providers: Mapping[str, str] | None = None, settings: str = "", sandbox: bool = True, store: str = "") -> Path:
    """A gateway.yaml in `folder` with its state beside it; gives its path. `store` holds further settings of the store."""
    root = Path(__file__).resolve().parents[2]
    (folder / "providers").mkdir(parents=True, exist_ok=True)
    if sandbox:
        (folder / "providers" / "sandbox.yaml").write_text((root / "providers" / "sandbox.yaml").read_text())
    for name, text in (providers or {}).items():
        (folder / "providers" / f"{name}.yaml").write_text(text)
    path = folder / "gateway.yaml"
    path.write_text(f"store: {{directory: {folder / 'var'}, usage_directory: {folder / 'usage'}{store and ', ' + store}}}\n{settings}")
    return path


def replying(status: int = 200, body: bytes = b"", *, headers: Mapping[str, str] | None = None, blocks: list[bytes] | None = None,
             seen: list[tuple[str, str, dict[str, str], bytes]] | None = None) -> UpstreamApp:
    """An upstream that always answers the same; what it was sent is appended to `seen`."""

    async def app(method: str, path: str, sent: Mapping[str, str], raw: bytes) -> tuple[int, Mapping[str, str], AsyncIterator[bytes]]:
        if seen is not None:
            seen.append((method, path, dict(sent), raw))

        async def chunks() -> AsyncIterator[bytes]:
            for block in blocks if blocks is not None else [body]:
                yield block

        return status, headers or {"content-type": "application/json"}, chunks()

    return app


async def rows(here: Here, folder: Path) -> list[dict[str, Any]]:
    """The usage rows in `folder` as an analyst reads them, oldest first; what is still being settled is waited for."""
    await here.services.settlements.drain(5)
    await here.services.ledger.settle()
    with duckdb.connect() as reader:
        cursor = reader.execute(f"FROM read_duckdb('{folder}/usage/**/*.duckdb', table_name = 'usage') ORDER BY time")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
