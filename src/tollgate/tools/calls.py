"""The four tools: the arguments, the work and the result of each (SPEC, tool server). Plain values; no protocol here.

A failure is a `ToolFailed` with the text that the assistant reads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tollgate.errors import (
    BadRequest,
    InternalError,
    ModelNotFound,
    NotFound,
    QuotaExhausted,
    TollgateError,
    UpstreamRejected,
    UpstreamUnreachable,
)
from tollgate.images.catalog import descriptor, image_models, image_routes
from tollgate.images.order import Order
from tollgate.images.service import generation_entry, jobs_of
from tollgate.images.state import is_job_id
from tollgate.public_errors import UNAVAILABLE

if TYPE_CHECKING:
    from tollgate.ledger import KeyRecord
    from tollgate.mapping.images.offer import ImageOffer
    from tollgate.services import Services

NAME = "service-images"
VERSION = "1.0.0"
CALLER = "tollgate.caller"
"""The name under which the HTTP layer puts the `Caller` into the ASGI scope."""
WAIT_SECONDS = 30.0
"""How long `generate_image` waits (SPEC, limits), including the submission of the job."""

Progress = Callable[[float], Awaitable[None]]
"""Sends the client a progress notification: seconds waited."""
Schema = dict[str, Any]


class ToolFailed(Exception):
    """A tool's failure; the text is the tool's result, `details` are its structured content."""

    def __init__(self, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls: the key that was checked on the HTTP layer, and the id of that request."""

    key: KeyRecord
    request_id: str
    counted: bool = False
    """Whether the HTTP layer has counted the call against the key's limits."""


@dataclass(frozen=True, slots=True)
class _ToolCall:
    """What a tool's function works with."""

    services: Services
    caller: Caller
    arguments: Mapping[str, Any]
    progress: Progress | None


@dataclass(frozen=True, slots=True)
class ToolKind:
    """A tool as it is advertised, and the function behind it."""

    name: str
    description: str
    parameters: Schema
    run: Callable[[_ToolCall], Awaitable[Any]]
    looks_only: bool = True
    """It changes and costs nothing. Many hosts run such tools without asking their user."""


async def _list_models(call: _ToolCall) -> Any:
    offers = image_models(call.services.runtime.current, call.caller.key)
    return [_chosen(offer, "id", "name", "description", "pricing") for offer in offers]


async def _get_model(call: _ToolCall) -> Any:
    return _chosen(_routes(call)[0], "id", "name", "description", "pricing", "input_schema")


async def _generate_image(call: _ToolCall) -> Any:
    _routes(call)
    job_input = call.arguments.get("input")
    if not isinstance(job_input, Mapping):
        raise ToolFailed("input is required and must be an object")
    jobs = jobs_of(call.services)
    ends = jobs.tracked.clock() + WAIT_SECONDS
    key, request_id, model = call.caller.key, call.caller.request_id, call.arguments["model_id"]
    generation = await jobs.create(Order(key, request_id, model, dict(job_input), None, "mcp", counted=True))
    generation = await jobs.wait(generation, ends - jobs.tracked.clock(), call.progress)
    if generation.status == "succeeded":
        shown = generation_entry(generation)
        return {"id": shown["id"], "status": "succeeded", "images": shown["images"]}
    if generation.status in ("failed", "canceled"):
        reason = generation.error or generation.status
        raise ToolFailed(
            f"image generation failed: {reason}", {"id": generation.id, "status": generation.status, "error": reason}
        )
    return {"id": generation.id, "status": "processing"}


async def _get_generation(call: _ToolCall) -> Any:
    job_id = call.arguments.get("id")
    if not is_job_id(job_id):
        raise ToolFailed("invalid id format")
    jobs = jobs_of(call.services)
    try:
        generation = await jobs.refreshed(call.caller.key.account_id, str(job_id).lower())
    except NotFound:
        raise ToolFailed(f"generation not found: {job_id}") from None
    shown = generation_entry(generation)
    return {
        "id": shown["id"],
        "model": shown["model"],
        "status": shown["status"],
        "images": shown.get("images", []),
        "cost": shown.get("cost"),
        **({"error": shown["error"]} if "error" in shown else {}),
    }


async def call_tool(
    services: Services, caller: Caller, name: str, arguments: Mapping[str, Any] | None, progress: Progress | None = None
) -> Any:
    """Run a tool. Raises `ToolFailed` for everything the assistant should read."""
    tool = TOOLS.get(name)
    if tool is None:
        raise ToolFailed(f"unknown tool: {name}")
    try:
        # the protocol layer accepts more than the HTTP layer (UTF-16, NaN): calls in such a form are counted here
        call = _ToolCall(services, caller, arguments or {}, progress)
        if caller.counted:
            return await tool.run(call)
        with services.ledger.occupy(caller.key) or nullcontext():
            await services.ledger.admit(caller.key)
            return await tool.run(call)
    except TollgateError as error:
        raise ToolFailed(_tool_message(error)) from error


def _routes(call: _ToolCall) -> list[ImageOffer]:
    name = call.arguments.get("model_id")
    if not isinstance(name, str) or not name:
        raise ToolFailed("model_id is required")
    return image_routes(call.services.runtime.current, name, call.caller.key)


def _chosen(offer: ImageOffer, *names: str) -> dict[str, Any]:
    described = descriptor(offer)
    return {name: described[name] for name in names}


def _tool_message(error: TollgateError) -> str:
    if isinstance(error, ModelNotFound):
        return f"model not found: {error.model}"
    if isinstance(error, QuotaExhausted):
        return "insufficient quota"
    if isinstance(error, (BadRequest, UpstreamRejected)):
        return f"input validation failed: {error.message}"
    if error.status < 500:
        return error.message
    return UNAVAILABLE if isinstance(error, UpstreamUnreachable) else InternalError.public_message


_MODEL_ID = {"type": "string", "description": "Canonical model id, as list_models gives it."}
_NOTHING: Schema = {"type": "object", "properties": {}}

TOOLS: dict[str, ToolKind] = {
    tool.name: tool
    for tool in (
        ToolKind(
            "list_models",
            "List the image models that can be used, with their prices. Call this first.",
            _NOTHING,
            _list_models,
        ),
        ToolKind(
            "get_model",
            "Get one image model with the JSON Schema of its input. Always call this before generate_image.",
            {"type": "object", "properties": {"model_id": _MODEL_ID}, "required": ["model_id"]},
            _get_model,
        ),
        ToolKind(
            "generate_image",
            "Generate images. Waits up to 30 seconds; if the result says processing, call get_generation with its id "
            "until it is done.",
            {
                "type": "object",
                "required": ["model_id", "input"],
                "properties": {
                    "model_id": _MODEL_ID,
                    "input": {
                        "type": "object",
                        "description": "The input, conforming to the model's input_schema from get_model.",
                    },
                },
            },
            _generate_image,
            looks_only=False,
        ),
        ToolKind(
            "get_generation",
            "Get the state, images and cost of an image generation.",
            {
                "type": "object",
                "required": ["id"],
                "properties": {
                    "id": {"type": "string", "format": "uuid", "description": "The id that generate_image returned."}
                },
            },
            _get_generation,
        ),
    )
}
