"""State that lives at a provider: which ids a request refers to, which ids an answer hands out.

A request that refers to state goes to the provider that minted it, and only for the account that got the id; any
other id is "not found" in the words of that API. Nobody reads another account's conversation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tollgate.errors import BadRequest, NotFound
from tollgate.services import Inbound, Services

_SPELLED = "\\u00"
"""How JSON can spell the letters of the words."""
_HINTS: dict[str, tuple[str, ...]] = {
    "chat": ('"file_id"', _SPELLED),
    "messages": ('"file_id"', '"container"', '"previous_message_id"', _SPELLED),
    "responses": (
        '"previous_response_id"',
        '"conversation"',
        '"item_reference"',
        '"file_id"',
        '"file_ids"',
        '"container"',
        '"container_id"',
        '"vector_store_ids"',
        '"prompt"',
        '"approval_request_id"',
        '"image_generation_call"',
        _SPELLED,
    ),
}
"""A body of the format without any of these words refers to no state; most requests stop here."""

_ID = '"id"'
_LOOKED_UP = {"chat": ('"audio"',), "responses": ('"reasoning"', '"mcp_approval_request"')}
"""What a body holds that names such things, by format."""

_THREAD = "thread.previous_message_id"
_ITEM = "input.item_reference"
_NOT_STORED = " Only a provider that speaks this format stores items: set `store` to false and send the item itself."
"""Clients refer to what they were told unless they ask for `store: false`, also where the answer said that nothing was
stored."""


def referenced_ids(dialect: str, body: dict[str, Any], outline: str) -> list[tuple[str, str]]:
    """The (field, id) pairs of provider-side state in a request with this outline, in the order they stand there."""
    for hint in _HINTS[dialect]:
        if hint in outline:
            break
    else:
        if (
            dialect != "responses"
            or _ID not in outline
            or not any(_is_reference(item) for item in _objects(body.get("input")))
        ):
            return []
    return [(field, value) for field, value in _references(dialect, body) if isinstance(value, str) and value]


async def check_looked_up(services: Services, inbound: Inbound, body: dict[str, Any], outline: str) -> None:
    """Refuse what was handed to another account and is looked up by its id where it is not sent along: reasoning, the
    sound of an answer, and a request for approval. Raises `StateNotFound`. Ids that nobody got here pass: clients bring
    along conversations they had elsewhere."""
    if _ID not in outline or not any(mark in outline for mark in _LOOKED_UP.get(inbound.dialect, ())):
        return
    if inbound.dialect == "chat":
        field, found = "messages.audio", [_id_of(message.get("audio")) for message in _objects(body.get("messages"))]
    else:
        items = _objects(body.get("input"))
        field, found = (
            "input.reasoning",
            [item.get("id") for item in items if item.get("type") == "reasoning" and not item.get("encrypted_content")],
        )
        await _refuse_foreign(services, inbound, "input.approval_request_id", _requests_along(items))
    await _refuse_foreign(services, inbound, field, found)


async def _refuse_foreign(services: Services, inbound: Inbound, field: str, found: Iterable[Any]) -> None:
    ids = [each for each in found if isinstance(each, str) and each]
    if ids and (foreign := await services.minted.foreign(inbound.key.account_id, ids)) is not None:
        raise StateNotFound(field, foreign)


async def provider_for(services: Services, inbound: Inbound, references: list[tuple[str, str]]) -> str | None:
    """The one provider all references belong to, or None without references. Raises `NotFound` naming the first that
    this account was never handed, or that another provider keeps."""
    provider: str | None = None
    for field, minted_id in references:
        owner = await services.minted.provider_of(inbound.key.account_id, minted_id)
        if owner is None or (provider is not None and owner != provider):
            raise StateNotFound(field, minted_id)
        provider = owner
    return provider


def keeps_thread(dialect: str, body: dict[str, Any]) -> bool:
    """Whether a messages request has its provider keep the conversation (`thread`): later ones send only what is
    new."""
    return dialect == "messages" and isinstance(body.get("thread"), dict)


class ThreadUnsupported(BadRequest):
    """A `thread` towards a model whose provider keeps none. The code makes the official clients send the whole
    conversation instead."""

    code = "thread_unsupported_request"

    def __init__(self, model: str) -> None:
        super().__init__(
            f"thread: no provider of {model[:200]} keeps conversations; send the full conversation without thread",
            "thread",
        )


class StateNotFound(NotFound):
    """A state id that this account was never handed; `param` names the field."""

    def __init__(self, field: str, minted_id: str) -> None:
        what = (
            "Previous response"
            if field == "previous_response_id"
            else field.rpartition(".")[2].removesuffix("_id").replace("_", " ").capitalize()
        )
        cure = _NOT_STORED if field == _ITEM else ""
        super().__init__(f"{what} with id '{minted_id[:100]}' not found.{cure}")
        self.param = field
        if field == "previous_response_id":
            self.code = "previous_response_not_found"
        elif field == _THREAD:
            self.code = "thread_not_found"


def may_mint(dialect: str, body: dict[str, Any]) -> bool:
    """Whether the answer to a native request may hand out such ids: of chat only one that was asked for with sound."""
    return dialect != "chat" or isinstance(body.get("audio"), dict)


def minted_ids(body: dict[str, Any], *, thread: bool = False) -> list[str]:
    """The ids of provider-side state in a native answer: the response, its items, its container, its sound; with
    `thread`, the message itself."""
    found: list[Any] = [body.get("id")] if thread else []
    for choice in _objects(body.get("choices")):
        message = choice.get("message") or choice.get("delta")
        found.append(_id_of(message.get("audio")) if isinstance(message, dict) else None)
    if body.get("object") == "response" and body.get("store") is not False:
        found.append(body.get("id"))
        found.extend(item.get("id") for item in _objects(body.get("output")))
        conversation = body.get("conversation")
        found.append(conversation.get("id") if isinstance(conversation, dict) else None)
    if body.get("object") == "response":  # containers are kept, whether the answer is or not
        found.extend(_container_of(item) for item in _objects(body.get("output")))
    container = body.get("container")
    if isinstance(container, dict):
        found.append(container.get("id"))
    return [each for each in found if isinstance(each, str) and each]


def _references(dialect: str, body: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    if dialect == "responses":
        yield "previous_response_id", body.get("previous_response_id")
        yield "conversation", _id_of(body.get("conversation"))
        prompt = body["prompt"] if isinstance(body.get("prompt"), dict) else {}
        yield "prompt.id", prompt.get("id")
        for variable in prompt["variables"].values() if isinstance(prompt.get("variables"), dict) else ():
            yield "prompt.variables.file_id", variable.get("file_id") if isinstance(variable, dict) else None
        resumes = False
        for tool in _objects(body.get("tools")):
            environment = tool["environment"] if isinstance(tool.get("environment"), dict) else {}
            resumes = resumes or tool.get("type") == "code_interpreter" or bool(environment)
            yield "tools.environment.container_id", environment.get("container_id")
            for each in _items(environment.get("file_ids")):
                yield "tools.environment.file_id", each
            for store in _items(tool.get("vector_store_ids")):
                yield "tools.vector_store_id", store
            yield "tools.container", tool.get("container") if isinstance(tool.get("container"), str) else None
            if isinstance(tool.get("container"), dict):
                for each in _items(tool["container"].get("file_ids")):
                    yield "tools.container.file_id", each
            if isinstance(tool.get("input_image_mask"), dict):
                yield "tools.input_image_mask.file_id", tool["input_image_mask"].get("file_id")
        items = _objects(body.get("input"))
        along = frozenset(_requests_along(items))
        for item in items:
            if _is_reference(item):
                yield _ITEM, item.get("id")
            elif item.get("type") == "image_generation_call" and not item.get("result"):
                yield "input.image_generation_call", item.get("id")
            elif item.get("type") == "mcp_approval_response":
                asked = item.get("approval_request_id")
                yield "input.approval_request_id", asked if isinstance(asked, str) and asked not in along else None
            if resumes:  # a tool goes on in the container of its earlier calls
                yield "input.container_id", _container_of(item)
            output = item.get("output")
            for part in (*_objects(item.get("content")), *_objects([output] if isinstance(output, dict) else output)):
                yield "input.file_id", part.get("file_id")
        return
    if dialect == "messages":
        yield "container", _id_of(body.get("container"))
        if keeps_thread(dialect, body):
            yield _THREAD, body["thread"].get("previous_message_id")
    for message in _objects(body.get("messages")):
        for part in _parts(message.get("content")):
            source = part.get("source") if isinstance(part.get("source"), dict) else part.get("file")
            if isinstance(source, dict):
                yield "messages.file_id", source.get("file_id")
            if part.get("type") == "container_upload":
                yield "messages.file_id", part.get("file_id")


def _requests_along(items: list[dict[str, Any]]) -> list[str]:
    """Ids of the requests for approval that are sent along, as clients do that have nothing stored: an approval of one
    of them refers to no state."""
    return [
        each for item in items if item.get("type") == "mcp_approval_request" and isinstance(each := item.get("id"), str)
    ]


def _is_reference(item: dict[str, Any]) -> bool:
    """Whether an item of the input stands for a stored one. The type may be left out (`ItemReferenceParam`), as that of
    a message may be."""
    kind = item.get("type")
    return kind == "item_reference" or (not kind and "content" not in item and "id" in item)


def _parts(content: Any) -> Iterator[dict[str, Any]]:
    for part in _objects(content):
        yield part
        if part.get("type") == "tool_result":
            yield from _objects(part.get("content"))


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in _items(value) if isinstance(each, dict)]


def _container_of(item: dict[str, Any]) -> Any:
    """The container in which a call of a provider's own tool ran."""
    environment = item.get("environment")
    return environment.get("container_id") if isinstance(environment, dict) else item.get("container_id")


def _id_of(value: Any) -> Any:
    return value.get("id") if isinstance(value, dict) else value
