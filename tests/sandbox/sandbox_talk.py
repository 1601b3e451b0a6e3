"""Clients of the sandbox: complete exchanges in-process, request bodies by protocol, and a server process."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

import orjson

from support.places import ROOT, SHARED
from tollgate import sse
from tollgate.sandbox import Sandbox

SCHEMAS = SHARED / "schemas" / "openai-openapi.json"


@dataclass
class Exchange:
    """A complete exchange with the in-process form. `dropped` tells that the connection would have been dropped."""

    status: int
    headers: dict[str, str]
    raw: bytes
    dropped: bool = False

    @property
    def json(self) -> dict:
        return orjson.loads(self.raw)

    @property
    def events(self) -> list[tuple[str | None, dict | str]]:
        decoder = sse.Decoder()
        found = [*decoder.feed(self.raw), *decoder.finish()]
        return [(e.name, e.data.decode() if e.data == b"[DONE]" else orjson.loads(e.data)) for e in found]

    @property
    def objects(self) -> list[dict]:
        return [data for _, data in self.events if isinstance(data, dict)]


async def exchange(sandbox: Sandbox, path: str, body: object, headers: dict[str, str] | None = None) -> Exchange:
    method = "GET" if body is None else "POST"
    status, found, chunks = await sandbox(method, path, headers or {}, b"" if body is None else orjson.dumps(body))
    raw = b""
    try:
        async for chunk in chunks:
            raw += chunk
    except ConnectionResetError:
        return Exchange(status, found, raw, dropped=True)
    return Exchange(status, found, raw)


def body_of(protocol: str, text: object, /, **more: object) -> tuple[str, dict]:
    """Path and body of a request with one user message."""
    message = {"role": "user", "content": text}
    if protocol == "chat":
        return "/v1/chat/completions", {"model": "echo", "messages": [message], **more}
    if protocol == "responses":
        return "/v1/responses", {"model": "echo", "input": [message], **more}
    return "/v1/messages", {"model": "echo", "max_tokens": 1000, "messages": [message], **more}


def start(*options: str) -> tuple[subprocess.Popen[str], str]:
    """Starts `tollgate sandbox`. Returns the process and its base address (without /v1)."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from tollgate.cli.sandbox import command; command()",
            "--bind",
            "127.0.0.1:0",
            *options,
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    line = process.stdout.readline()  # type: ignore[union-attr]
    assert line.startswith("The sandbox provider is listening on http://"), line
    return process, line.split(" on ")[1].strip().removesuffix("/v1")


PROTOCOLS = ("chat", "responses", "messages")
GET = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 3}},
    "required": ["city"],
}
TOOLS = {
    "chat": [{"type": "function", "function": {"name": n, "parameters": GET}} for n in ("get", "put")],
    "responses": [{"type": "function", "name": n, "parameters": GET} for n in ("get", "put")],
    "messages": [{"name": n, "input_schema": GET} for n in ("get", "put")],
}


def text_of(protocol: str, body: dict) -> str:
    if protocol == "chat":
        return body["choices"][0]["message"]["content"] or ""
    if protocol == "responses":
        return "".join(p.get("text", "") for i in body["output"] if i["type"] == "message" for p in i["content"])
    return "".join(b["text"] for b in body["content"] if b["type"] == "text")


def calls_of(protocol: str, body: dict) -> list[tuple[str, dict]]:
    if protocol == "chat":
        return [
            (c["function"]["name"], orjson.loads(c["function"]["arguments"]))
            for c in body["choices"][0]["message"].get("tool_calls", [])
        ]
    if protocol == "responses":
        return [(i["name"], orjson.loads(i["arguments"])) for i in body["output"] if i["type"] == "function_call"]
    return [(b["name"], b["input"]) for b in body["content"] if b["type"] == "tool_use"]


def finish_of(protocol: str, body: dict) -> str:
    if protocol == "chat":
        return body["choices"][0]["finish_reason"]
    if protocol == "responses":
        return (body["incomplete_details"] or {}).get("reason") or body["status"]
    return body["stop_reason"]


def usage_of(protocol: str, body: dict) -> tuple[int, int]:
    """Input and output tokens, including cached and reasoning ones."""
    usage = body["usage"]
    if protocol == "chat":
        return usage["prompt_tokens"], usage["completion_tokens"]
    if protocol == "responses":
        return usage["input_tokens"], usage["output_tokens"]
    parts = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return sum(usage[p] for p in parts), usage["output_tokens"]
