"""Recorded image traffic, replayed: the bytes a provider really answered go through the whole gateway with its own
file."""

import asyncio
import contextlib
import json
from collections import Counter
from pathlib import Path

import pytest

from support.inprocess import inprocess, unspoken

ROOT = Path(__file__).resolve().parents[2]
TRAFFIC = ROOT.parent / "shared" / "traffic"
SECRETS = {name: "test-secret" for name in ("REPLICATE_API_TOKEN", "FAL_KEY", "BFL_API_KEY", "OPENAI_API_KEY")}

if not TRAFFIC.is_dir():
    pytest.skip(f"no recorded traffic beside the repository ({TRAFFIC})", allow_module_level=True)


def exchanges(protocol, provider=None):
    found = [json.loads(path.read_text()) for path in sorted((TRAFFIC / "exchanges" / protocol).glob("*.json"))]
    return [each for each in found if provider is None or each["provider"] == provider]


@contextlib.asynccontextmanager
async def gateway(folder, provider, answers):
    """A gateway with one provider file whose calls are answered from a list, in order; gives it and what was called."""
    for name in ("chat", "responses", "messages", "gemini", "embeddings"):
        (folder / "mappings").mkdir(exist_ok=True)
        (folder / "mappings" / f"{name}.yaml").write_text(unspoken(name))
    calls = []

    async def app(method, path, headers, body):
        host = path.split("/")[1]
        calls.append(
            (method, f"https://{host}{path[1 + len(host) :]}", json.loads(body) if body[:1] == b"{" else body, headers)
        )
        status, answer = answers.pop(0)
        data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()

        async def chunks():
            yield data

        return status, {"content-type": "application/json"}, chunks()

    file = (ROOT / "providers" / f"{provider}.yaml").read_text().replace("shared: ", f"shared: {ROOT}/providers/")
    async with inprocess(folder, providers={provider: file}, environ=SECRETS) as here:
        opened = here.services.client.open

        async def reroute(call):
            if call.url.startswith("https://"):
                call.url = "app://recorded/" + call.url.removeprefix("https://")
            return await opened(call)

        here.services.client.register_app("recorded", app)
        here.services.client.open = reroute
        here.calls, here.answers = calls, answers
        yield here


async def made(here, model, given):
    reply = await here.post("/v1/images/generations", {"model": model, "input": given})
    return reply.status_code, reply.json()


async def looked(here, job_id):
    reply = await here.get(f"/v1/images/generations/{job_id}")
    return reply.status_code, reply.json()


async def test_every_recorded_prediction_of_replicate_is_read(tmp_path):
    """Every recorded prediction as the answer to a submission or a poll."""
    told = Counter()
    async with gateway(tmp_path, "replicate", []) as here:
        for each in exchanges("replicate"):
            answer, status = each["response"].get("body"), each["response"]["status"]
            method = (each.get("request") or {}).get("method")
            if (
                not isinstance(answer, dict)
                or method not in ("GET", "POST")
                or (status < 400 and "status" not in answer)
            ):
                told["of another kind"] += 1
                continue
            here.answers[:] = (
                [(status, answer)]
                if method == "POST"
                else [(201, {"id": "p0", "status": "starting"}), (status, answer)]
            )
            here.calls.clear()
            code, first = await made(here, "black-forest-labs/flux-schnell", {"prompt": "a corgi"})
            if status >= 400:
                assert code in (400, 500)
                told["refused"] += 1
                continue
            assert code == 200, first
            if method == "POST":
                assert first["data"]["status"] == answer["status"]
                assert answer["id"] in [job.upstream_id for job in await here.services.ledger.generations.pending()]
                told["submitted"] += 1
                continue
            code, found = await looked(here, first["data"]["id"])
            assert code == 200, found
            assert found["data"]["status"] == {"canceled": "failed", "aborted": "failed"}.get(
                answer["status"], answer["status"]
            )
            assert here.calls[1][:2] == ("GET", "https://api.replicate.com/v1/predictions/p0")
            if answer["status"] == "succeeded":
                output = answer["output"] if isinstance(answer["output"], list) else [answer["output"]]
                assert [image["url"] for image in found["data"]["images"]] == output
                assert found["data"]["cost"] == 0.003 * len(output)
            told["polled"] += 1
    assert told["submitted"] + told["polled"] + told["refused"] >= 15, told


async def test_every_recorded_queue_answer_of_fal_is_read(tmp_path):
    queue = {
        "status": "IN_QUEUE",
        "request_id": "r1",
        "status_url": "https://queue.fal.run/fal-ai/flux/requests/r1/status",
        "response_url": "https://queue.fal.run/fal-ai/flux/requests/r1",
    }
    async with gateway(tmp_path, "fal", []) as here:
        for each in exchanges("fal"):
            status, answer = each["response"]["status"], each["response"]["body"]
            here.answers[:] = [(200, queue), (200, {"status": "COMPLETED"}), (status, answer)]
            here.calls.clear()
            _, first = await made(
                here, "black-forest-labs/flux-dev", {"prompt": each["request"]["body"].get("prompt", "x")}
            )
            code, found = await looked(here, first["data"]["id"])
            assert [call[:2] for call in here.calls] == [
                ("POST", "https://queue.fal.run/fal-ai/flux/dev"),
                ("GET", queue["status_url"]),
                ("GET", queue["response_url"]),
            ]
            assert here.calls[0][3]["authorization"] == "Key test-secret"
            if status in (400, 404, 422):
                assert (code, found["data"]["status"]) == (200, "failed"), found
                continue
            assert status == 200
            assert found["data"]["status"] == "succeeded"
            for shown, told in zip(found["data"]["images"], answer["images"], strict=True):
                assert (shown["width"], shown["height"]) == (told["width"], told["height"])
                if told["url"].startswith("data:"):
                    assert shown["data"] == told["url"].partition(",")[2]
                else:
                    assert shown["url"] == told["url"]


async def test_black_forest_labs(tmp_path):
    recorded = {each["id"]: each["response"]["body"] for each in exchanges("bfl")}
    by_kind = sorted(
        recorded.values(), key=lambda body: (body.get("status") == "Ready", body.get("status") == "Pending")
    )
    async with gateway(tmp_path, "black-forest-labs", [(200, body) for body in by_kind]) as here:
        _, first = await made(here, "black-forest-labs/flux-1.1-pro", {"prompt": "A raccoon driving a truck"})
        assert first["data"]["status"] == "starting"
        assert (await looked(here, first["data"]["id"]))[1]["data"]["status"] == "processing"
        found = (await looked(here, first["data"]["id"]))[1]["data"]
        assert found["images"] == [{"url": by_kind[2]["result"]["sample"]}]
        assert found["cost"] == 0.04
        assert [call[:2] for call in here.calls] == [
            ("POST", "https://api.bfl.ai/v1/flux-pro-1.1"),
            ("GET", by_kind[0]["polling_url"]),
            ("GET", by_kind[0]["polling_url"]),
        ]
        assert here.calls[1][3]["x-key"] == "test-secret"


async def test_every_recorded_image_answer_of_openai_is_read(tmp_path):
    told = Counter()
    async with gateway(tmp_path, "openai-images", []) as here:
        for each in exchanges("openai-images", "openai"):
            status, answer = each["response"]["status"], each["response"]["body"]
            here.answers[:] = [(status, answer)]
            code, first = await made(here, "openai/gpt-image-2", {"prompt": "An isolated stop sign."})
            assert (code, first["data"]["status"]) == (200, "starting")
            await asyncio.gather(*here.services.settlements._tasks)
            found = (await looked(here, first["data"]["id"]))[1]["data"]
            if status >= 400:
                assert (found["status"], found["error"]) == ("failed", answer["error"]["message"])
                told["refused"] += 1
                continue
            assert found["status"] == "succeeded"
            for shown, sent in zip(found["images"], answer["data"], strict=True):
                assert (shown.get("url"), shown.get("data")) == (sent.get("url"), sent.get("b64_json"))
                if "size" in answer:
                    assert f"{shown['width']}x{shown['height']}" == answer["size"]
                if "b64_json" in sent and "output_format" in answer:
                    assert shown["context_type"] == f"image/{answer['output_format']}"
            usage = answer.get("usage")
            details = usage["input_tokens_details"] if usage else {}
            wanted = (
                (5 * details["text_tokens"] + 8 * details["image_tokens"] + 30 * usage["output_tokens"]) / 1e6
                if usage
                else 0.053 * len(answer["data"])
            )
            assert found["cost"] == pytest.approx(wanted, abs=1e-12)
            told["by tokens" if usage else "by picture"] += 1
    assert sum(told.values()) == len(exchanges("openai-images", "openai"))
    assert told["by tokens"] >= 4
