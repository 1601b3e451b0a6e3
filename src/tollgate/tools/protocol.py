"""The MCP side: the official SDK's low-level server with our four tools, in two transports.

The low-level server, because the high-level one hides exception texts and checks arguments itself, so that SPEC's
messages would never arrive. Imported at the first request only: importing the SDK takes longer than a whole start.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import orjson
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from tollgate.tools.calls import CALLER, NAME, TOOLS, VERSION, WAIT_SECONDS, Progress, ToolFailed, call_tool

if TYPE_CHECKING:
    from tollgate.services import Services


def make_managers(services: Services) -> tuple[StreamableHTTPSessionManager, StreamableHTTPSessionManager]:
    """One transport that answers in JSON and one that answers in events (for progress); both stateless, and both for
    old and new versions of the protocol. The size of a body has been checked when it gets here, by a limit that a
    reload may change."""
    server, any_size = make_server(services), sys.maxsize
    return (
        StreamableHTTPSessionManager(server, json_response=True, stateless=True, max_request_body_size=any_size),
        StreamableHTTPSessionManager(server, json_response=False, stateless=True, max_request_body_size=any_size),
    )


def make_server(services: Services) -> Server[Any]:
    """The server with its two handlers."""

    async def list_tools(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=_ADVERTISED)

    async def run_tool(context: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
        assert context.request is not None
        caller = context.request.scope[CALLER]
        try:
            return _result(await call_tool(services, caller, params.name, params.arguments, _progress(context)))
        except ToolFailed as failure:
            return types.CallToolResult(
                content=[types.TextContent(text=failure.message)], structured_content=failure.details, is_error=True
            )

    return Server(
        NAME,
        version=VERSION,
        on_list_tools=list_tools,
        on_call_tool=run_tool,
        instructions="Generate images: list_models, then get_model, then generate_image, then get_generation while "
        "the status is pending.",
    )


def _progress(context: ServerRequestContext[Any]) -> Progress | None:
    """Progress notifications, where the client asked for them: seconds waited, of thirty."""
    if not context.meta or context.meta.get("progress_token", context.meta.get("progressToken")) is None:
        return None

    async def progress(waited: float) -> None:
        await context.session.report_progress(round(waited, 1), WAIT_SECONDS, "waiting for the image")

    return progress


def _result(value: Any) -> types.CallToolResult:
    """One text block with the JSON, and the same as structured content (an object is wanted there:
    a list is wrapped)."""
    text = types.TextContent(text=orjson.dumps(value).decode())
    return types.CallToolResult(
        content=[text], structured_content={"result": value} if isinstance(value, list) else value
    )


_ADVERTISED = [
    types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.parameters,
        # without these hints a host must expect a destructive tool, and asks its user before each call
        annotations=types.ToolAnnotations(read_only_hint=tool.looks_only, destructive_hint=False),
    )
    for tool in TOOLS.values()
]
