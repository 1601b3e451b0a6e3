"""A gateway inside the test process: real configuration, ledger and pipelines; only upstreams may be fakes.

    async with inprocess(folder, providers={"acme": "..."}, apps={"acme": app}) as here:
        reply = await here.post("/v1/chat/completions", {...})

Fakes are upstream apps (`app://acme/...`), so nothing between the client and the provider is replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from support.places import ROOT
from support.stores import close_without_storing, empty_store, reused_duckdb
from support.waiting import until
from tollgate.config.build import Loaded, load_gateway
from tollgate.config.load import Document
from tollgate.config.reusable import Reusable
from tollgate.mapping import CompiledMapping
from tollgate.runtime import Runtime, build_runtime
from tollgate.server import Opened, close_gateway, open_gateway

UpstreamApp = Callable[
    [str, str, Mapping[str, str], bytes], Awaitable[tuple[int, Mapping[str, str], AsyncIterator[bytes]]]
]


_read: Reusable = Reusable({}, {}, ())
"""Provider and mapping files read last, by name: as at a reload, a file with the same text is not read again."""
_compiled: dict[tuple[str, str], tuple[Document, CompiledMapping]] = {}
"""Mappings compiled so far, by name and text: as at a reload, an unchanged mapping is not compiled again."""
_latest: list[Runtime] = []
"""The latest runtime without plugins. Its sandboxes are reused, if they are unchanged."""


SSE = {"content-type": "text/event-stream"}
"""The headers of an event stream."""


@dataclass
class Here:
    """A gateway in this process, its default key, and an HTTP client that calls it without a socket."""

    opened: Opened
    key: str
    http: httpx.AsyncClient

    @property
    def services(self):
        return self.opened.services

    async def post(self, path: str, body: Any, *, key: str | None = None, **headers: str) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.http.post(
            path,
            content=content,
            headers={
                "authorization": f"Bearer {key or self.key}",
                "content-type": "application/json",
                **{name.replace("_", "-"): value for name, value in headers.items()},
            },
        )

    async def get(self, path: str, *, key: str | None = "") -> httpx.Response:
        return await self.http.get(path, headers={} if key is None else {"authorization": f"Bearer {key or self.key}"})

    async def key_of_another_account(self) -> str:
        """The key of a second account, which has one credit."""
        await self.services.ledger.create_account("other")
        await self.services.ledger.grant("other", Decimal(1))
        _, key = await self.services.ledger.create_key("other")
        return key

    async def ended_job(self, id: str) -> httpx.Response:
        """The reply about an image job, once the job has ended."""
        replies: list[httpx.Response] = []

        async def ended() -> bool:
            replies[:] = [await self.get(f"/v1/images/generations/{id}")]
            return replies[0].json()["data"]["status"] not in ("starting", "processing")

        await until(ended)
        return replies[0]

    def balance(self, account: str = "default") -> Decimal:
        return self.services.ledger.balance(account)


@contextlib.asynccontextmanager
async def inprocess(
    folder: Path,
    *,
    providers: Mapping[str, str] | None = None,
    apps: Mapping[str, UpstreamApp] | None = None,
    settings: str = "",
    environ: Mapping[str, str] | None = None,
    sandbox: bool = True,
    read_later: bool = False,
) -> AsyncIterator[Here]:
    """Opens a gateway with its state in `folder`. `providers` are YAML texts by name, beside the shipped sandbox.

    With `read_later`, the test reads the store or the usage files after the gateway has ended. Otherwise the last rows
    are not stored, as after a kill.
    """
    path = write_config(folder, providers=providers, settings=settings, sandbox=sandbox)
    runtime = runtime_of(path, environ or {})
    empty_store(runtime.gateway.store)
    with reused_duckdb():
        opened = await open_gateway(runtime, path)
    if not read_later:
        opened.services.ledger.close = partial(close_without_storing, opened.services.ledger)
    for name, app in (apps or {}).items():
        opened.services.client.register_app(name, app)
    transport = httpx.ASGITransport(app=opened.app, raise_app_exceptions=True)
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8787", timeout=60) as client:
            yield Here(opened, opened.first_key or "", client)
    finally:
        await close_gateway(opened)


def runtime_of(path: Path, environ: Mapping[str, str]) -> Runtime:
    """The configuration at `path`. What earlier ones have in common with it is reused as at a reload: files that were
    read, compiled mappings, and the sandboxes. Other providers are compiled anew, since they may keep access tokens.

    File names are relative to the configuration's folder: otherwise no two tests would have files of the same name. A
    test that reloads the configuration makes that folder its working directory.
    """
    with contextlib.chdir(path if path.is_dir() else path.parent):
        loaded = load_gateway(path, environ=environ, previous=_read)
        _keep_read(loaded.reusable)
        runtime = build_runtime(loaded, previous=_previous(loaded))
    if not runtime.gateway.plugins:
        for name, mapping in runtime.mappings.items():
            document = runtime.gateway.mappings[name]
            _compiled.setdefault((document.file, document.text), (document, mapping))
        _latest[:] = [runtime]
    return runtime


def _keep_read(files: Reusable) -> None:
    """Keeps files for the next load: mappings, and providers without warnings and without other files, whose paths may
    be another test's."""
    _read.mappings.update(files.mappings)
    for name, source in files.sources.items():
        if not (source.shared or source.models or files.warnings):
            _read.sources[name] = source


def _previous(loaded: Loaded) -> Runtime | None:
    """The latest runtime, as if it had all mappings of `loaded` that are compiled already."""
    if not _latest:
        return None
    [latest] = _latest
    known = {
        name: _compiled[document.file, document.text]
        for name, document in loaded.gateway.mappings.items()
        if (document.file, document.text) in _compiled
    }
    return replace(
        latest,
        gateway=replace(latest.gateway, mappings={name: document for name, (document, _) in known.items()}),
        mappings={name: mapping for name, (_, mapping) in known.items()},
        providers={name: made for name, made in latest.providers.items() if name in ("sandbox", "sandbox-images")},
    )


def unspoken(name: str) -> str:
    """The text of the smallest possible mapping file, for formats that a test's providers declare but do not use."""
    hub, stream = (
        ("hub: embeddings\n", "") if name.endswith("embeddings") else ("", "stream: {from_hub: {start: []}}\n")
    )
    both = "{to_hub: {$copy: [model]}, from_hub: {$copy: [model]}}"
    answer = "{to_hub: {$copy: [model]}}" if hub else both
    return f"mapping: {name}\n{hub}request: {both}\nresponse: {answer}\n{stream}"


def write_unused_mappings(folder: Path, *, but: str = "") -> None:
    """Replaces the mappings of the formats that the catalogued models may be called in, except one: compiling the
    shipped ones takes half a second."""
    (folder / "mappings").mkdir(exist_ok=True)
    for name in ("chat", "responses", "messages", "gemini", "embeddings"):
        if name != but:
            (folder / "mappings" / f"{name}.yaml").write_text(unspoken(name))


def write_config(
    folder: Path,
    *,
    providers: Mapping[str, str] | None = None,
    settings: str = "",
    sandbox: bool = True,
    store: str = "",
) -> Path:
    """Writes a gateway.yaml into `folder`, with its state beside it; returns its path. `store` are further settings of
    the store."""
    (folder / "providers").mkdir(parents=True, exist_ok=True)
    if sandbox:
        (folder / "providers" / "sandbox.yaml").write_text((ROOT / "providers" / "sandbox.yaml").read_text())
    for name, text in (providers or {}).items():
        (folder / "providers" / f"{name}.yaml").write_text(text)
    path = folder / "gateway.yaml"
    path.write_text(
        f"store: {{directory: {folder / 'var'}, usage_directory: "
        f"{folder / 'usage'}{store and ', ' + store}}}\n{settings}"
    )
    return path


def replying(
    status: int = 200,
    body: bytes = b"",
    *,
    headers: Mapping[str, str] | None = None,
    blocks: list[bytes] | None = None,
    seen: list[tuple[str, str, dict[str, str], bytes]] | None = None,
) -> UpstreamApp:
    """An upstream that always gives the same answer; its requests are appended to `seen`."""

    async def app(
        method: str, path: str, sent: Mapping[str, str], raw: bytes
    ) -> tuple[int, Mapping[str, str], AsyncIterator[bytes]]:
        if seen is not None:
            seen.append((method, path, dict(sent), raw))

        async def chunks() -> AsyncIterator[bytes]:
            for block in blocks if blocks is not None else [body]:
                yield block

        return status, headers or {"content-type": "application/json"}, chunks()

    return app


class Leaving:
    """An ASGI client that sends a body and leaves after `seconds`, once `reached` returns something true, or after
    `blocks` body messages."""

    def __init__(
        self,
        body: dict[str, Any],
        key: str,
        *,
        seconds: float | None = None,
        reached: Callable[[], object] | None = None,
        blocks: int | None = None,
    ) -> None:
        self.raw = json.dumps(body).encode()
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/chat/completions",
            "query_string": b"",
            "headers": [(b"authorization", f"Bearer {key}".encode()), (b"content-type", b"application/json")],
        }
        self.seconds, self.reached, self.blocks = seconds, reached, blocks
        self.gone = asyncio.Event()
        self.sent: list[Any] = []
        self.received = False

    async def receive(self) -> dict[str, Any]:
        if not self.received:
            self.received = True
            return {"type": "http.request", "body": self.raw, "more_body": False}
        if self.reached is not None:
            await until(self.reached)
        if self.seconds is not None:
            await asyncio.sleep(self.seconds)
        if (self.reached, self.seconds) != (None, None):
            self.gone.set()
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        if self.blocks is not None and len(self.sent) > self.blocks:
            self.gone.set()
