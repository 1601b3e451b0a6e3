"""`/v1/images/mcp`: the image tools for AI assistants, over streamable HTTP."""

from tollgate.tools.application import ToolsApp

__all__ = ["ToolsApp"]
