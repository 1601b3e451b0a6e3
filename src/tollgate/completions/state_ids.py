"""Ids of state stored at a provider: those that a request refers to, and those that an answer creates.

Pure. Whether the caller may use an id, and which provider has its state, is checked in `stateful.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_SPELLED = "\\u00"
"""The start of a letter written as a JSON escape: with it, any of the words may occur in another spelling."""
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
"""A body without any of these words refers to no state; most requests need no further check."""

_ID = '"id"'
_COMPARED = '"comparison_response_id"'
_LOOKED_UP = {"chat": ('"audio"',), "responses": ('"reasoning"', '"mcp_approval_request"', _COMPARED)}
"""Substrings of bodies that may name something a provider looks up, by format."""

THREAD = "thread.previous_message_id"
ITEM = "input.item_reference"
PREVIOUS = "previous_response_id"


def referenced_ids(dialect: str, body: dict[str, Any], outline: str) -> list[tuple[str, str]]:
    """The (field, id) pairs of provider state in a request, in document order without duplicates; `outline` is that of
    `body.outline_of`."""
    for hint in _HINTS[dialect]:
        if hint in outline:
            break
    else:
        if (
            dialect != "responses"
            or _ID not in outline
            or not any(is_reference(item) for item in _objects(body.get("input")))
        ):
            return []
    found = ((field, value) for field, value in _references(dialect, body) if isinstance(value, str) and value)
    return list(dict.fromkeys(found))


def looked_up_ids(dialect: str, body: dict[str, Any], outline: str) -> list[tuple[str, list[str]]]:
    """By field, the ids of what a provider looks up because the request does not send it along: reasoning, the audio of
    an answer, an approval request, an answer to compare caches with. `outline` is that of `body.outline_of`."""
    if not (_ID in outline or _COMPARED in outline) or not any(mark in outline for mark in _LOOKED_UP.get(dialect, ())):
        return []
    if dialect == "chat":
        found = [("messages.audio", [_id_of(message.get("audio")) for message in _objects(body.get("messages"))])]
    else:
        items = _objects(body.get("input"))
        reasoning = [each for each in items if each.get("type") == "reasoning" and not each.get("encrypted_content")]
        caching = _objects([body.get("prompt_cache_options")])
        found = [
            ("prompt_cache_options.comparison_response_id", [each.get("comparison_response_id") for each in caching]),
            ("input.approval_request_id", _sent_approval_requests(items)),
            ("input.reasoning", [each.get("id") for each in reasoning]),
        ]
    return [(field, [each for each in ids if isinstance(each, str) and each]) for field, ids in found]


def keeps_thread(dialect: str, body: dict[str, Any]) -> bool:
    """Whether a messages request asks its provider to store the conversation (`thread`), so that later requests send
    only what is new."""
    return dialect == "messages" and isinstance(body.get("thread"), dict)


def may_mint(dialect: str, body: dict[str, Any]) -> bool:
    """Whether the answer to a native request may create such ids; in chat only an answer with audio does."""
    return dialect != "chat" or isinstance(body.get("audio"), dict)


def minted_ids(body: dict[str, Any], *, thread: bool = False) -> list[str]:
    """The ids of provider state in a native answer: the response, its items, its container, its audio; with `thread`,
    the message itself."""
    found: list[Any] = [body.get("id")] if thread else []
    for choice in _objects(body.get("choices")):
        message = choice.get("message") or choice.get("delta")
        found.append(_id_of(message.get("audio")) if isinstance(message, dict) else None)
    if body.get("object") == "response" and body.get("store") is not False:
        found.append(body.get("id"))
        found.extend(item.get("id") for item in _objects(body.get("output")))
        conversation = body.get("conversation")
        found.append(conversation.get("id") if isinstance(conversation, dict) else None)
    if body.get("object") == "response":  # containers are stored even if the response is not
        found.extend(_container_of(item) for item in _objects(body.get("output")))
    container = body.get("container")
    if isinstance(container, dict):
        found.append(container.get("id"))
    return [each for each in found if isinstance(each, str) and each]


def _references(dialect: str, body: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The fields of a request that may hold such ids, with their values, which may be None or no text."""
    if dialect == "responses":
        yield from _of_responses_request(body)
        return
    if dialect == "messages":
        yield "container", _id_of(body.get("container"))
        if keeps_thread(dialect, body):
            yield THREAD, body["thread"].get("previous_message_id")
    for message in _objects(body.get("messages")):
        for part in _parts(message.get("content")):
            source = part.get("source") if isinstance(part.get("source"), dict) else part.get("file")
            if isinstance(source, dict) and not (dialect == "chat" and _is_address(source.get("file_id"))):
                yield "messages.file_id", source.get("file_id")
            if part.get("type") == "container_upload":
                yield "messages.file_id", part.get("file_id")


def _is_address(file_id: Any) -> bool:
    """Whether a chat client wrote a file's address in place of an id, as `is_address` of the chat mapping reads it."""
    return isinstance(file_id, str) and "://" in file_id[:16]


def _of_responses_request(body: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield PREVIOUS, body.get(PREVIOUS)
    yield "conversation", _id_of(body.get("conversation"))
    prompt = body["prompt"] if isinstance(body.get("prompt"), dict) else {}
    yield "prompt.id", prompt.get("id")
    for variable in prompt["variables"].values() if isinstance(prompt.get("variables"), dict) else ():
        yield "prompt.variables.file_id", variable.get("file_id") if isinstance(variable, dict) else None
    resumes = False
    for tool in _objects(body.get("tools")):
        environment = tool["environment"] if isinstance(tool.get("environment"), dict) else {}
        resumes = resumes or tool.get("type") == "code_interpreter" or bool(environment)
        yield from _of_tool(tool, environment)
    items = _objects(body.get("input"))
    sent = frozenset(_sent_approval_requests(items))
    for item in items:
        if is_reference(item):
            yield ITEM, item.get("id")
        elif item.get("type") == "image_generation_call" and not item.get("result"):
            yield "input.image_generation_call", item.get("id")
        elif item.get("type") == "mcp_approval_response":
            approved = item.get("approval_request_id")
            yield "input.approval_request_id", approved if isinstance(approved, str) and approved not in sent else None
        if resumes:  # a tool continues in the container of its earlier calls
            yield "input.container_id", _container_of(item)
        output = item.get("output")
        for part in (*_objects(item.get("content")), *_objects([output] if isinstance(output, dict) else output)):
            yield "input.file_id", part.get("file_id")


def _of_tool(tool: dict[str, Any], environment: dict[str, Any]) -> Iterator[tuple[str, Any]]:
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


def _sent_approval_requests(items: list[dict[str, Any]]) -> list[str]:
    """Ids of the approval requests among `items`, where clients that store nothing send them along: an approval of one
    of them refers to no state."""
    return [
        each for item in items if item.get("type") == "mcp_approval_request" and isinstance(each := item.get("id"), str)
    ]


def is_reference(item: dict[str, Any]) -> bool:
    """Whether an input item refers to a stored one. Its type may be missing (`ItemReferenceParam`), like that of a
    message, which has content."""
    kind = item.get("type")
    return kind == "item_reference" or (not kind and item.get("content") is None and "id" in item)


def _parts(content: Any) -> Iterator[dict[str, Any]]:
    """The parts of a message, and those inside tool results and composed documents."""
    for part in _objects(content):
        yield part
        source = part if part.get("type") == "tool_result" else part.get("source")
        if isinstance(source, dict):
            yield from _parts(source.get("content"))


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in _items(value) if isinstance(each, dict)]


def _container_of(item: dict[str, Any]) -> Any:
    """The container in which a call of a provider's tool ran."""
    environment = item.get("environment")
    return environment.get("container_id") if isinstance(environment, dict) else item.get("container_id")


def _id_of(value: Any) -> Any:
    return value.get("id") if isinstance(value, dict) else value
