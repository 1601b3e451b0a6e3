"""A model provider that costs almost nothing: prepared bytes over a raw asyncio protocol, in a process of its own.

    python bench/upstream.py [--port 0] [--pace 0.02]      prints its port

Chat (1 KB whole, a stream of 100 events in one write, or paced when the model's name holds `paced`, five times slower
with `slowly`), messages the same way, embeddings of 1,536 numbers. Connections are kept; requests may come in pieces.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random

from listen import run

EVENTS = 100
"""Text events in a stream; the frame around them (start, finish, usage, end) comes on top."""

_USAGE = {
    "prompt_tokens": 20,
    "completion_tokens": EVENTS,
    "total_tokens": 20 + EVENTS,
    "prompt_tokens_details": {"cached_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0},
}
_WORDS = "The quick brown fox jumps over the lazy dog. "


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _chat_whole() -> bytes:
    text = (_WORDS * 20)[:620]
    return _dump(
        {
            "id": "chatcmpl-bench",
            "object": "chat.completion",
            "created": 1767225600,
            "model": "bench",
            "system_fingerprint": "fp_bench",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text, "refusal": None},
                    "logprobs": None,
                    "finish_reason": "stop",
                }
            ],
            "usage": _USAGE,
        }
    )


def _chat_events() -> list[bytes]:
    def chunk(choices: list, **more: object) -> bytes:
        return (
            b"data: "
            + _dump(
                {
                    "id": "chatcmpl-bench",
                    "object": "chat.completion.chunk",
                    "created": 1767225600,
                    "model": "bench",
                    "service_tier": "default",
                    "system_fingerprint": "fp_bench",
                    "choices": choices,
                    **more,
                }
            )
            + b"\n\n"
        )

    def delta(found: dict, finish: str | None = None) -> list:
        return [{"index": 0, "delta": found, "logprobs": None, "finish_reason": finish}]

    events = [chunk(delta({"role": "assistant", "content": "", "refusal": None}), usage=None)]
    events += [chunk(delta({"content": f" word{i}"}), usage=None) for i in range(EVENTS)]
    events += [chunk(delta({}, "stop"), usage=None), chunk([], usage=_USAGE), b"data: [DONE]\n\n"]
    return events


def _messages_whole() -> bytes:
    return _dump(
        {
            "id": "msg_bench",
            "type": "message",
            "role": "assistant",
            "model": "bench",
            "content": [{"type": "text", "text": (_WORDS * 20)[:620]}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {
                "input_tokens": 20,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": EVENTS,
            },
        }
    )


def _messages_events() -> list[bytes]:
    def event(name: str, **rest: object) -> bytes:
        return f"event: {name}\ndata: ".encode() + _dump({"type": name, **rest}) + b"\n\n"

    message = {
        "id": "msg_bench",
        "type": "message",
        "role": "assistant",
        "model": "bench",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 20,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 1,
        },
    }
    events = [
        event("message_start", message=message),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        event("ping"),
    ]
    events += [
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": f" word{i}"}) for i in range(EVENTS)
    ]
    return [
        *events,
        event("content_block_stop", index=0),
        event(
            "message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": EVENTS}
        ),
        event("message_stop"),
    ]


def _embeddings() -> bytes:
    numbers = random.Random(7)
    vector = [round(numbers.uniform(-0.1, 0.1), 8) for _ in range(1536)]
    return _dump(
        {
            "object": "list",
            "data": [{"object": "embedding", "index": 0, "embedding": vector}],
            "model": "bench",
            "usage": {"prompt_tokens": 8, "total_tokens": 8},
        }
    )


def _whole(body: bytes) -> bytes:
    return (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-request-id: req_bench\r\ncontent-length: %d\r\n\r\n%b"
        % (len(body), body)
    )


_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nx-request-id: req_bench\r\n"
    b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
)
_LAST = b"0\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


CHAT_EVENTS, MESSAGES_EVENTS = _chat_events(), _messages_events()
WHOLE = {
    b"/v1/chat/completions": _whole(_chat_whole()),
    b"/v1/messages": _whole(_messages_whole()),
    b"/v1/embeddings": _whole(_embeddings()),
}
BURST = {
    path: _STREAM_HEAD + b"".join(map(_chunk, events)) + _LAST
    for path, events in ((b"/v1/chat/completions", CHAT_EVENTS), (b"/v1/messages", MESSAGES_EVENTS))
}
PACED = {
    path: [*map(_chunk, events)]
    for path, events in ((b"/v1/chat/completions", CHAT_EVENTS), (b"/v1/messages", MESSAGES_EVENTS))
}
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\ncontent-type: application/json\r\n\r\n{}"


class Upstream(asyncio.Protocol):
    """One client connection."""

    pace = 0.02

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.held = b""
        self.timer: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timer:
            self.timer.cancel()

    def data_received(self, data: bytes) -> None:
        self.held += data
        while (end := self.held.find(b"\r\n\r\n")) >= 0:
            head = self.held[:end]
            at = head.lower().find(b"content-length:")
            size = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self.held) < end + 4 + size:
                return
            body = self.held[end + 4 : end + 4 + size]
            self.held = self.held[end + 4 + size :]
            self.answer(head.split(b" ", 2)[1].split(b"?")[0], body)

    def answer(self, path: bytes, body: bytes) -> None:
        if path not in WHOLE:
            self.transport.write(_NOT_FOUND)  # type: ignore[attr-defined]
        elif b'"stream":true' not in body and b'"stream": true' not in body:
            self.transport.write(WHOLE[path])  # type: ignore[attr-defined]
        elif b"paced" in body:
            self.transport.write(_STREAM_HEAD)  # type: ignore[attr-defined]
            loop = asyncio.get_running_loop()
            self.play(loop, PACED[path], 0, loop.time(), self.pace * (5 if b"slowly" in body else 1))
        else:
            self.transport.write(BURST[path])  # type: ignore[attr-defined]

    def play(
        self, loop: asyncio.AbstractEventLoop, events: list[bytes], number: int, began: float, pace: float
    ) -> None:
        if number == len(events):
            self.transport.write(_LAST)  # type: ignore[attr-defined]
            return
        self.transport.write(events[number])  # type: ignore[attr-defined]
        self.timer = loop.call_at(began + (number + 1) * pace, self.play, loop, events, number + 1, began, pace)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The bench's upstream.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--pace", type=float, default=0.02, help="seconds between two events of a paced stream")
    options = parser.parse_args()
    Upstream.pace = options.pace
    run(Upstream, options.port)
