"""Decides the answer: text, reasoning, tool calls, finish and token counts; the same for every protocol.

The answer is an echo: `hi` gives `You said: hi`. Only ids and times differ between two runs.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import orjson

from tollgate.sandbox import counting
from tollgate.sandbox.caching import Cached
from tollgate.sandbox.controls import Call
from tollgate.sandbox.faults import Fault
from tollgate.sandbox.prompt import Prompt, Tool
from tollgate.sandbox.samples import sample

Finish = Literal["stop", "length", "tool_calls", "content_filter"]

BAD = "\ue000"
"""Stands for two bytes that are invalid UTF-8; replaced when the event is written."""
BAD_BYTES = b"\xff\xfe"

_ROUNDS = {"none": 0, "minimal": 0, "low": 1, "medium": 2, "high": 4, "xhigh": 6, "max": 8}
_MOST_CHARACTERS = 2_000_000
"""Of all choices together: the longest answer that a marker can ask for has a third of it."""
_MOST_LOGPROBS = 50_000
"""Of one answer: they take a tenth of a second and 25 MB. A marker in a short request can ask for 60 million."""
_REFUSAL = "I'm sorry, but I can't help with that."


def tier_given(body: Mapping[str, object]) -> str:
    """The service tier of the answer: the requested one, if it exists."""
    tier = body.get("service_tier")
    return tier if isinstance(tier, str) and tier in ("flex", "priority", "scale") else "default"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call; `arguments` is JSON text, or free text for a custom tool."""

    name: str
    arguments: str
    kind: Literal["function", "custom"] = "function"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts(Cached):
    """Token counts: `prompt` includes cache reads and writes, `completion` includes `reasoning`."""

    prompt: int
    completion: int
    reasoning: int

    @property
    def uncached(self) -> int:
        """Tokens of the prompt that were neither read from nor written to the cache."""
        return max(0, self.prompt - self.read - self.written)


@dataclass(frozen=True, slots=True)
class Answer:
    """One choice, complete."""

    text: str
    reasoning: str
    calls: tuple[ToolCall, ...]
    finish: Finish
    counts: Counts
    refusal: str | None = None
    stop_sequence: str | None = None


def answer(prompt: Prompt, cached: Cached, number: int = 0) -> Answer:
    """The answer to a prompt; `number` is the choice's index (the text of later choices contains it)."""
    controls = prompt.controls
    reasoning = _reasoning(prompt)
    calls = () if controls.refuse or controls.empty else _calls(prompt)
    text = "" if controls.empty or controls.refuse or (calls and not controls.preface) else _text(prompt, number)
    refusal = _REFUSAL if controls.refuse else None
    finish: Finish = "tool_calls" if calls else "stop"
    text, stopped = _until_stop(text, prompt.stop)
    thought = counting.count(reasoning)
    text, finish = _limited(text, prompt.limit, thought, finish, bool(calls))
    if controls.finish in ("stop", "length", "content_filter", "tool_calls"):
        finish = controls.finish  # type: ignore[assignment]
    generated = thought + counting.count(text) + counting.count(refusal or "")
    generated += sum(counting.count(c.name) + counting.count(c.arguments) for c in calls)
    if controls.bad_utf8 and text:
        text = text[:1] + BAD + text[1:]
    return Answer(
        text,
        reasoning,
        calls,
        finish,
        _counts(prompt, cached, generated, thought),
        refusal,
        stopped if finish == "stop" else None,
    )


def choices(prompt: Prompt, cached: Cached) -> list[Answer]:
    """The answers to a prompt that asks for several. Raises `Fault` 400 if they are too long together."""
    answers: list[Answer] = []
    for number in range(prompt.n):
        answers.append(answer(prompt, cached, number))
        if sum(len(each.text) for each in answers) > _MOST_CHARACTERS:
            raise Fault(400, f"Invalid 'n': {prompt.n} choices of this length are too much.", param="n")
    return answers


def total(answers: Sequence[Answer]) -> Counts:
    """The counts of several choices of one prompt: the prompt once, the output of all."""
    first = answers[0].counts
    if len(answers) == 1:
        return first
    return replace(
        first, completion=sum(a.counts.completion for a in answers), reasoning=sum(a.counts.reasoning for a in answers)
    )


def check_logprobs(texts: Sequence[str], top: int) -> None:
    """Raise `Fault` 400 if one answer would have too many log probabilities, with `top` for each token."""
    if sum(map(counting.count, texts)) * (1 + top) > _MOST_LOGPROBS:
        raise Fault(
            400,
            f"Invalid 'top_logprobs': an answer has at most {_MOST_LOGPROBS} log probabilities here.",
            param="top_logprobs",
        )


def logprobs(text: str, top: int) -> list[dict[str, object]]:
    """Log probabilities of each piece: small, negative, and always the same for a piece."""
    found = []
    for piece in counting.pieces(text):
        value = -(zlib.crc32(piece.encode()) % 1000) / 10000 - 0.0001
        entry: dict[str, object] = {"token": piece, "logprob": value, "bytes": list(piece.encode())}
        rivals = [piece, *(f"{piece}{mark}" for mark in "'\"-_~*+=^`|<>/"[:19])][:top]
        entry["top_logprobs"] = [
            {"token": r, "logprob": value - index, "bytes": list(r.encode())} for index, r in enumerate(rivals)
        ]
        found.append(entry)
    return found


def _text(prompt: Prompt, number: int) -> str:
    controls = prompt.controls
    if prompt.schema is not None and not (prompt.results and not prompt.settled):
        return orjson.dumps(sample(prompt.schema, prompt.text, prompt.budget)).decode()
    if prompt.json_mode:
        return orjson.dumps({"you_said": prompt.text}).decode()
    if prompt.settled:
        text = f"The tool said: {'; '.join(prompt.results)}"
    else:
        text = f"You said: {prompt.text}" if prompt.text else "You said nothing."
    if prompt.images:
        text += f" (with {prompt.images} attachment{'s' if prompt.images > 1 else ''})"
    if number:
        text += f" (choice {number + 1})"
    return counting.fitted(text, controls.tokens) if controls.tokens is not None else text


def _reasoning(prompt: Prompt) -> str:
    if not (prompt.thinks or prompt.controls.think):
        return ""
    rounds = _ROUNDS.get(prompt.effort or "medium", 2)
    if prompt.controls.think:
        rounds = max(1, rounds)
    words = prompt.text[:60] or "nothing"
    line = f'The user says "{words}". Repeating it is what they expect.'
    return " ".join([line, *(["Let me look at it once more."] * (rounds - 1))]) if rounds else ""


def _calls(prompt: Prompt) -> tuple[ToolCall, ...]:
    """The tool calls of this turn: none if there are new tool results, so that loops end."""
    if prompt.settled or prompt.choice == "none":
        return ()
    controls = prompt.controls
    wanted = list(controls.calls)
    if controls.tools is not None:
        wanted = [wanted[i] if i < len(wanted) else Call() for i in range(min(controls.tools, 128))]
    if not wanted and prompt.tools and (prompt.choice == "required" or prompt.choice.startswith("=")):
        wanted = [Call()]
    if not prompt.parallel:
        wanted = wanted[:1]
    forced = prompt.choice[1:] if prompt.choice.startswith("=") else None
    found = []
    for index, call in enumerate(wanted):
        name = call.name or forced or (prompt.tools[index % len(prompt.tools)].name if prompt.tools else None)
        if name is None:
            continue
        tool = next((t for t in prompt.tools if t.name == name), Tool(name, {}))
        arguments = (
            call.arguments
            if call.arguments is not None
            else sample(tool.schema or {"type": "object"}, prompt.text, prompt.budget)
        )
        if tool.kind == "custom":
            found.append(ToolCall(name, prompt.text or "text", "custom"))
        else:
            found.append(ToolCall(name, orjson.dumps(arguments).decode()))
    return tuple(found)


def _until_stop(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    hits = [(text.find(stop), stop) for stop in stops if stop and stop in text]
    if not hits:
        return text, None
    at, stop = min(hits)
    return text[:at], stop


def _limited(text: str, limit: int | None, thought: int, finish: Finish, calling: bool) -> tuple[str, Finish]:
    """The text within the token limit; reasoning counts against it."""
    if limit is None or calling or thought + counting.count(text) <= limit:
        return text, finish
    return counting.fitted(text, max(0, limit - thought)), "length"


def _counts(prompt: Prompt, cached: Cached, generated: int, thought: int) -> Counts:
    controls = prompt.controls
    total_in = prompt.tokens if controls.prompt_tokens is None else controls.prompt_tokens
    read = min(cached.read, total_in) if controls.cached_tokens is None else controls.cached_tokens
    written_5m, written_1h = cached.written_5m, cached.written_1h
    if controls.cache_write_tokens is not None:
        written_5m, written_1h = controls.cache_write_tokens, 0
    out = generated if controls.completion_tokens is None else controls.completion_tokens
    reasoned = min(thought, out) if controls.reasoning_tokens is None else controls.reasoning_tokens
    if controls.reasoning_tokens is not None and controls.completion_tokens is None:
        out = generated - thought + reasoned
    if controls.prompt_tokens is None:
        total_in = max(total_in, read + written_5m + written_1h)
    return Counts(read, written_5m, written_1h, prompt=total_in, completion=out, reasoning=reasoned)
