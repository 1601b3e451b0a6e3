"""How long the fuzzing tests run, from where, and whether a stream is complete.

`TOLLGATE_FUZZ=20000` makes a long run; `TOLLGATE_FUZZ_SEED=7` another one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

ROUNDS = int(os.environ.get("TOLLGATE_FUZZ", "90"))
SEED = os.environ.get("TOLLGATE_FUZZ_SEED", "1")


def _events(text: str) -> Iterator[tuple[str | None, str]]:
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if lines:
            name = next((line[7:] for line in lines if line.startswith("event: ")), None)
            yield name, "\n".join(line[6:] for line in lines if line.startswith("data: "))


def judge_stream(dialect: str, text: str) -> str | None:
    """The fault of a stream in the client format `dialect`, or None."""
    events = list(_events(text))
    if not events:
        return "an empty stream"
    if dialect == "chat":
        for _, data in events[:-1]:
            json.loads(data)
        return None if events[-1][1] == "[DONE]" or "error" in json.loads(events[-1][1]) else "no end"
    names = [name for name, _ in events]
    types = [json.loads(data)["type"] for _, data in events]
    if names != types:
        return f"events are named {names}, but are {types}"
    ends = (
        ("message_stop", "error")
        if dialect == "messages"
        else ("response.completed", "response.incomplete", "response.failed", "error")
    )
    return None if types[-1] in ends else f"ends with {types[-1]}"
