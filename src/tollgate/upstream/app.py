"""The transport for `app://name/path`: calls a function of this process, with the same budgets and cancellation.

The sandbox provider is such an app; tests register their own. An app runs in its own task, which is cancelled when the
consumer leaves early; its body iterator is closed on every path.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, nullcontext
from typing import Any

from tollgate.errors import AnswerLost, TollgateError, UpstreamUnreachable
from tollgate.upstream.answer import Answer
from tollgate.upstream.call import Call

App = Callable[[str, str, Mapping[str, str], bytes], Awaitable[tuple[int, Mapping[str, str], AsyncIterator[bytes]]]]
"""`(method, path with query, headers, body) -> (status, headers, chunks)`."""


class AppTransport:
    """In-process apps by name."""

    def __init__(self) -> None:
        self._apps: dict[str, App] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def register(self, name: str, app: App) -> None:
        """Serve `app://name/...` by `app`, which replaces an earlier one of the same name."""
        self._apps[name] = app

    async def open(self, call: Call) -> Answer:
        """See `Transport.open`. Any exception of the app but a `TollgateError` becomes `UpstreamUnreachable`, or, once
        the answer began, `AnswerLost`: as from a connection that is closed."""
        name, slash, path = call.url.removeprefix("app://").partition("/")
        app = self._apps.get(name)
        if app is None:
            raise UpstreamUnreachable(f"no in-process app is named {name!r}")
        loop = asyncio.get_running_loop()
        run = _Run()
        answer = Answer(run, call, loop, loop.time())
        call.sent = True
        run.task = loop.create_task(run.pump(app, call, slash + path or "/", answer))
        self._tasks.add(run.task)
        run.task.add_done_callback(self._tasks.discard)
        try:
            await answer.headed()
        except BaseException:
            answer.abort()
            raise
        return answer

    async def close(self) -> None:
        """See `Transport.close`."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


class _Run:
    """One running app, the source of one answer."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self._going = asyncio.Event()
        self._going.set()

    def pause(self) -> None:
        self._going.clear()

    def resume(self) -> None:
        self._going.set()

    def abort(self) -> None:
        if self.task is not None:
            self.task.cancel()

    async def pump(self, app: App, call: Call, path: str, answer: Answer) -> None:
        try:
            headers = {name.lower(): value for name, value in call.headers.items()}
            status, head, chunks = await app(call.method, path, headers, call.body)
            answer.head(status, {name.lower(): value for name, value in head.items()})
            answer.arrived()
            closing: Any = aclosing(chunks) if hasattr(chunks, "aclose") else nullcontext(chunks)
            async with closing:
                async for chunk in chunks:
                    if chunk:
                        answer.parts.append(chunk)
                        answer.size += len(chunk)
                        answer.arrived()
                        await self._going.wait()
            answer.complete()
        except asyncio.CancelledError:
            answer.fail(UpstreamUnreachable("the in-process app was stopped"))
            raise
        except TollgateError as error:
            answer.fail(error)
        except Exception as error:  # any error of the app is an upstream failure
            what = f"the in-process app failed: {type(error).__name__}"
            answer.fail(AnswerLost(what, upstream_status=answer.status) if answer.status else UpstreamUnreachable(what))
