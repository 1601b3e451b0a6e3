"""Every recorded answer, in each client's format, sent back as history to every upstream format: nothing is rejected,
and what does not arrive is reported as lost."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from replay import traffic

if not traffic.present():
    pytest.skip(traffic.ABSENT, allow_module_level=True)

from replay import compare, read_bedrock, read_cohere, read_ollama
from replay.assembled import ASSEMBLE
from replay.cells import CLIENTS, READERS, UPSTREAMS, answered, context, mapping, spoken
from tollgate.mapping import Refused, convert_request, convert_response

REQUEST_READERS = {**READERS, "bedrock": read_bedrock, "cohere": read_cohere, "ollama": read_ollama}
TARGETS = (*UPSTREAMS, "bedrock", "cohere", "ollama")


def answers(upstream: str) -> list[tuple[str, dict[str, Any]]]:
    """All whole answers of one format, including those assembled from streams."""
    found = []
    for x in map(traffic.exchange, traffic.ids(upstream)):
        whole = x.body if answered(x) else ASSEMBLE[upstream](x.events) if spoken(x) else None
        if (
            upstream == "chat"
            and whole
            and not isinstance(whole["choices"][0].get("message", {}).get("content", {}), str | list | None)
        ):
            continue  # an old text completion, or an object that no client can send back
        if whole:
            found.append((x.id, whole))
    return found


def next_request(client: str, answer: dict[str, Any]) -> dict[str, Any]:
    """The next request of a client that appends the unchanged answer to the conversation, with results for its
    calls."""
    answer = copy.deepcopy(answer)
    first, last = {"role": "user", "content": "Hi"}, {"role": "user", "content": "go on"}
    if client == "chat":
        message = answer["choices"][0]["message"]
        results: list[Any] = [
            {"role": "tool", "tool_call_id": call["id"], "content": "done"} for call in message.get("tool_calls") or []
        ]
        if message.get("function_call"):
            results.append({"role": "function", "name": message["function_call"]["name"], "content": "done"})
        return {"model": "m", "messages": [first, message, *results, last]}
    if client == "responses":
        outputs = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
        results = [
            {"type": outputs[item["type"]], "call_id": item["call_id"], "output": "done"}
            for item in answer["output"]
            if item["type"] in outputs
        ]
        return {"model": "m", "input": [first, *answer["output"], *results, last]}
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "done"}
        for block in answer["content"]
        if block["type"] == "tool_use"
    ]
    turn = [{"role": "assistant", "content": answer["content"]}] if answer["content"] else []
    return {
        "model": "m",
        "max_tokens": 64000,
        "messages": [first, *turn, {"role": "user", "content": [*results, {"type": "text", "text": "go on"}]}],
    }


def expected(miss: compare.Miss) -> bool:
    """Bedrock requires a called tool to be declared; the older form of a call has no id."""
    return miss.member == "tools" or miss.member == "call id" and str(miss.wanted).startswith("legacy")


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_an_answer_can_be_sent_back_to_every_upstream(client: str, upstream: str) -> None:
    faults = []
    for name, whole in answers(upstream):
        answer = (
            whole
            if client == upstream
            else convert_response(mapping(upstream), mapping(client), copy.deepcopy(whole), context()).body
        )
        body = next_request(client, answer)
        wanted = READERS[client].request_facts(body)
        for target in TARGETS:
            if target == client:
                continue
            try:
                done = convert_request(mapping(client), mapping(target), copy.deepcopy(body), context())
            except Refused as no:
                faults.append(f"{name} to {target}: {no}")
                continue
            misses = compare.requests(wanted, REQUEST_READERS[target].request_facts(done.body), target, done.lost)
            faults += [f"{name} to {target}: {miss}, lost {done.lost}" for miss in misses if not expected(miss)]
    assert not faults, f"{len(faults)}: " + "\n".join(faults[:20])
