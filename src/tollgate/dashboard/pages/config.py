"""The configuration as it was read: files, what is wrong with the newest version, and reading it again."""

from __future__ import annotations

from starlette.responses import Response

from tollgate.dashboard.visit import Visit


async def show(visit: Visit) -> Response:
    """State of the last reload, its problems with their lines, warnings, files."""
    runtime = visit.runtime
    gateway = runtime.gateway
    files = [_short(str(file), str(gateway.root)) for file in gateway.files]
    return visit.render(
        "config.html",
        state=visit.state.reloader.state,
        warnings=runtime.loaded.warnings,
        notes=runtime.loaded.notes,
        files=files,
        gateway=gateway,
        root=str(gateway.root),
        catalog=runtime.catalog,
    )


async def reload(visit: Visit) -> Response:
    """Read the files again; a mistake leaves the running configuration alone."""
    state = await visit.state.reloader.reload()
    return visit.to("/operator/config", done="reloaded" if state.ok else "")


def _short(file: str, root: str) -> str:
    return file.removeprefix(root).lstrip("/") if file.startswith(root) else file
