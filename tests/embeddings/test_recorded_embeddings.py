"""Recorded embeddings traffic through a whole gateway: native bytes, decoded base64, other formats, errors."""

import array
import base64
import contextlib
import json
from collections import Counter

import pytest

from support.inprocess import inprocess, write_unused_mappings
from support.places import TRAFFIC

if not TRAFFIC.is_dir():
    pytest.skip(f"no recorded traffic beside the repository ({TRAFFIC})", allow_module_level=True)

UPSTREAM = """
provider: recorded
url: app://recorded/v1
speaks: {embeddings: {path: /embeddings, mapping: MAPPING}}
errors: {message: {$first: [$.error.message, $.detail, $.message]}}
models:
  rec/embed: {upstream: UPSTREAM, type: embedding, encoding: cl100k_base, price: {prompt: "1", unit: 1000000}}
"""


def exchanges(protocol):
    return [json.loads(path.read_text()) for path in sorted((TRAFFIC / "exchanges" / protocol).glob("*.json"))]


@contextlib.asynccontextmanager
async def gateway(folder, mapping, upstream="embed-1"):
    write_unused_mappings(folder, but="embeddings")
    state = {"answer": None, "calls": []}

    async def app(method, path, headers, body):
        state["calls"].append(json.loads(body))
        status, answer = state["answer"]

        async def chunks():
            yield answer if isinstance(answer, bytes) else json.dumps(answer).encode()

        return status, {"content-type": "application/json"}, chunks()

    text = UPSTREAM.replace("MAPPING", mapping).replace("UPSTREAM", upstream)
    async with inprocess(folder, providers={"recorded": text}, apps={"recorded": app}) as here:
        here.state = state
        yield here


def floats(vector):
    if isinstance(vector, list):
        return vector
    return array.array("f", base64.b64decode(vector)).tolist()


async def test_recorded_exchanges_of_the_same_format_pass_unchanged(tmp_path):
    outcomes = Counter()
    async with gateway(tmp_path, "embeddings") as here:
        for each in exchanges("openai-embeddings"):
            request, status, answer = each["request"]["body"], each["response"]["status"], each["response"]["body"]
            here.state["calls"].clear()
            here.state["answer"] = (status, answer)
            reply = await here.post("/v1/embeddings", {**request, "model": "rec/embed"})
            if request.get("encoding_format") == "invalid_format":
                assert (reply.status_code, here.state["calls"]) == (400, [])
                outcomes["rejected here"] += 1
                continue
            assert here.state["calls"] == [{**request, "model": "embed-1"}], each["id"]
            if status >= 400:
                # our key, or a model that the provider does not have: not the caller's fault
                assert reply.status_code == (500 if status in (401, 403, 404) else 400), each["id"]
                assert reply.json()["success"] is False
                outcomes["errors"] += 1
                continue
            assert reply.status_code == 200, reply.text
            found = reply.json()
            assert [item["embedding"] for item in found["data"]] == [
                floats(item["embedding"]) for item in answer["data"]
            ], each["id"]
            assert [item["index"] for item in found["data"]] == list(range(len(answer["data"])))
            assert found["model"] == answer["model"]
            usage = answer["usage"]
            if usage["total_tokens"]:
                assert (found["usage"]["prompt_tokens"], found["usage"]["total_tokens"]) == (
                    usage.get("prompt_tokens", usage["total_tokens"]),
                    usage["total_tokens"],
                )
            else:
                assert found["usage"]["prompt_tokens"] > 0, "a count of zero for text is replaced"
            if all(isinstance(item["embedding"], list) for item in answer["data"]) and "prompt_tokens" in usage:
                assert found == answer
                outcomes["native unchanged"] += 1
            else:
                outcomes["decoded"] += 1
    assert sum(outcomes.values()) == len(exchanges("openai-embeddings"))
    assert outcomes["native unchanged"] >= 10 and outcomes["decoded"] >= 10, outcomes


CASES = {
    "cohere-embed": (
        "cohere-embeddings",
        lambda body: (body["texts"], body.get("output_dimension"), body["input_type"]),
        lambda answer: answer["embeddings"].get("float"),
        lambda answer: answer["meta"]["billed_units"]["input_tokens"],
    ),
    "gemini-embeddings": (
        "gemini-embeddings",
        lambda body: (
            [part["content"]["parts"][0]["text"] for part in body["requests"]],
            body["requests"][0].get("outputDimensionality"),
            body["requests"][0].get("taskType"),
        ),
        lambda answer: [item["values"] for item in answer["embeddings"]],
        lambda answer: answer.get("usageMetadata", {}).get("promptTokenCount"),
    ),
    "vertex-embeddings": (
        "vertex-embeddings",
        lambda body: ([item["content"] for item in body["instances"]], None, body["instances"][0].get("task_type")),
        lambda answer: [item["embeddings"]["values"] for item in answer["predictions"]],
        lambda answer: sum(item["embeddings"]["statistics"]["token_count"] for item in answer["predictions"]),
    ),
}


@pytest.mark.parametrize("protocol", CASES)
async def test_recorded_answers_of_other_formats_become_vectors_and_usage(tmp_path, protocol):
    mapping, request_fields, vectors, counted = CASES[protocol]
    outcomes = Counter()
    async with gateway(tmp_path, mapping) as here:
        for each in exchanges(protocol):
            request, status, answer = each["request"]["body"], each["response"]["status"], each["response"]["body"]
            if protocol == "gemini-embeddings" and "requests" not in request:
                request = {"requests": [{"content": request["content"]}]}  # embedContent: one text, one vector
            texts, dimensions, kind = request_fields(request)
            here.state["calls"].clear()
            here.state["answer"] = (status, answer)
            reply = await here.post(
                "/v1/embeddings",
                {
                    "model": "rec/embed",
                    "input": texts,
                    **({"dimensions": dimensions} if dimensions else {}),
                    **({"input_type": kind} if kind else {}),
                },
            )
            assert request_fields(here.state["calls"][0])[:2] == (texts, dimensions), each["id"]
            if kind in ("search_query", "search_document", "RETRIEVAL_QUERY", "RETRIEVAL_DOCUMENT"):
                assert request_fields(here.state["calls"][0])[2] == kind
            if status >= 400:
                assert (reply.status_code, reply.json()["success"]) == (500 if status in (401, 403) else 400, False), (
                    each["id"]
                )
                outcomes["errors"] += 1
                continue
            wanted = [answer["embedding"]["values"]] if "embedding" in answer else vectors(answer)
            if wanted is None:
                assert reply.status_code == 500, "another type than requested"
                outcomes["another type"] += 1
                continue
            assert reply.status_code == 200, (each["id"], reply.text)
            assert [item["embedding"] for item in reply.json()["data"]] == wanted, each["id"]
            tokens = counted(answer) if "embedding" not in answer else answer["usageMetadata"]["promptTokenCount"]
            if tokens:
                assert reply.json()["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
            else:
                assert reply.json()["usage"]["prompt_tokens"] > 0
            outcomes["converted"] += 1
    assert sum(outcomes.values()) == len(exchanges(protocol))
    assert outcomes["converted"] >= 3, outcomes
