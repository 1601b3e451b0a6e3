"""The configuration that is running: its files, mistakes in the newest version, and reloading."""

from __future__ import annotations

from starlette.responses import Response

from tollgate.dashboard.visit import Visit


async def show(visit: Visit) -> Response:
    """The result of the last reload, its problems with their lines, warnings, files."""
    runtime = visit.runtime
    gateway = runtime.gateway
    folders: dict[str, list[str]] = {}
    for file in gateway.files:
        folders.setdefault(str(file.parent), []).append(file.name)
    return visit.render(
        "config.html",
        state=visit.state.reloader.state,
        warnings=tuple(runtime.loaded.warned()),
        notes=runtime.loaded.notes,
        folders=folders,
        gateway=gateway,
        off=sum(bool(provider.off) for provider in gateway.providers.values()),
        catalog=runtime.catalog,
    )


async def reload(visit: Visit) -> Response:
    """Reload the files; if there is a mistake, the running configuration stays."""
    state = await visit.state.reloader.reload()
    return visit.to("/operator/config", done="reloaded" if state.ok else "")
