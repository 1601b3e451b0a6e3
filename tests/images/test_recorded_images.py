"""Recorded image traffic: the bytes that a provider really sent pass through the whole gateway with the provider's
file."""

import asyncio
import contextlib
import json
from collections import Counter

import pytest

from support.inprocess import inprocess, write_unused_mappings
from support.places import ROOT, TRAFFIC

SECRETS = {name: "test-secret" for name in ("REPLICATE_API_TOKEN", "FAL_KEY", "BFL_API_KEY", "OPENAI_API_KEY")}

if not TRAFFIC.is_dir():
    pytest.skip(f"no recorded traffic beside the repository ({TRAFFIC})", allow_module_level=True)


def exchanges(protocol, provider=None):
    found = [json.loads(path.read_text()) for path in sorted((TRAFFIC / "exchanges" / protocol).glob("*.json"))]
    return [each for each in found if provider is None or each["provider"] == provider]


@contextlib.asynccontextmanager
async def gateway(folder, provider, answers):
    """A gateway with one provider file, whose calls are answered from a list in order. `.calls` are the received
    calls."""
    write_unused_mappings(folder)
    calls = []

    async def upstream(method, path, headers, body):
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
    async with inprocess(folder, providers={provider: file}, environ=SECRETS) as app:
        opened = app.services.client.open

        async def reroute(call):
            if call.url.startswith("https://"):
                call.url = "app://recorded/" + call.url.removeprefix("https://")
            return await opened(call)

        app.services.client.register_app("recorded", upstream)
        app.services.client.open = reroute
        app.calls, app.answers = calls, answers
        yield app


async def submit(app, model, given):
    reply = await app.post("/v1/images/generations", {"model": model, "input": given})
    return reply.status_code, reply.json()


async def poll(app, job_id):
    reply = await app.get(f"/v1/images/generations/{job_id}")
    return reply.status_code, reply.json()


async def test_every_recorded_prediction_of_replicate_is_read(tmp_path):
    """Each recorded prediction is the answer to a submission or to a poll."""
    counts = Counter()
    async with gateway(tmp_path, "replicate", []) as app:
        for each in exchanges("replicate"):
            answer, status = each["response"].get("body"), each["response"]["status"]
            method = (each.get("request") or {}).get("method")
            if (
                not isinstance(answer, dict)
                or method not in ("GET", "POST")
                or (status < 400 and "status" not in answer)
            ):
                counts["of another kind"] += 1
                continue
            app.answers[:] = (
                [(status, answer)]
                if method == "POST"
                else [(201, {"id": "p0", "status": "starting"}), (status, answer)]
            )
            app.calls.clear()
            code, first = await submit(app, "black-forest-labs/flux-schnell", {"prompt": "a corgi"})
            if status >= 400:
                assert code == (500 if status in (401, 402, 403, 404) else 400), (status, answer)
                counts["rejected"] += 1
                continue
            assert code == 200, first
            if method == "POST":
                assert first["data"]["status"] == answer["status"]
                assert answer["id"] in [job.upstream_id for job in await app.services.ledger.generations.pending()]
                counts["submitted"] += 1
                continue
            code, found = await poll(app, first["data"]["id"])
            assert code == 200, found
            assert found["data"]["status"] == {"canceled": "failed", "aborted": "failed"}.get(
                answer["status"], answer["status"]
            )
            assert app.calls[1][:2] == ("GET", "https://api.replicate.com/v1/predictions/p0")
            if answer["status"] == "succeeded":
                output = answer["output"] if isinstance(answer["output"], list) else [answer["output"]]
                assert [image["url"] for image in found["data"]["images"]] == output
                assert found["data"]["cost"] == 0.003 * len(output)
            counts["polled"] += 1
    assert counts["submitted"] + counts["polled"] + counts["rejected"] >= 15, counts


async def test_every_recorded_queue_answer_of_fal_is_read(tmp_path):
    queue = {
        "status": "IN_QUEUE",
        "request_id": "r1",
        "status_url": "https://queue.fal.run/fal-ai/flux/requests/r1/status",
        "response_url": "https://queue.fal.run/fal-ai/flux/requests/r1",
    }
    async with gateway(tmp_path, "fal", []) as app:
        for each in exchanges("fal"):
            status, answer = each["response"]["status"], each["response"]["body"]
            app.answers[:] = [(200, queue), (200, {"status": "COMPLETED"}), (status, answer)]
            app.calls.clear()
            _, first = await submit(
                app, "black-forest-labs/flux-dev", {"prompt": each["request"]["body"].get("prompt", "x")}
            )
            code, found = await poll(app, first["data"]["id"])
            assert [call[:2] for call in app.calls] == [
                ("POST", "https://queue.fal.run/fal-ai/flux/dev"),
                ("GET", queue["status_url"]),
                ("GET", queue["response_url"]),
            ]
            assert app.calls[0][3]["authorization"] == "Key test-secret"
            if status in (400, 404, 422):
                assert (code, found["data"]["status"]) == (200, "failed"), found
                continue
            assert status == 200
            assert found["data"]["status"] == "succeeded"
            for shown, recorded in zip(found["data"]["images"], answer["images"], strict=True):
                assert (shown["width"], shown["height"]) == (recorded["width"], recorded["height"])
                if recorded["url"].startswith("data:"):
                    assert shown["data"] == recorded["url"].partition(",")[2]
                else:
                    assert shown["url"] == recorded["url"]


async def test_recorded_answers_of_black_forest_labs_are_read(tmp_path):
    recorded = {each["id"]: each["response"]["body"] for each in exchanges("bfl")}
    by_kind = sorted(
        recorded.values(), key=lambda body: (body.get("status") == "Ready", body.get("status") == "Pending")
    )
    async with gateway(tmp_path, "black-forest-labs", [(200, body) for body in by_kind]) as app:
        _, first = await submit(app, "black-forest-labs/flux-1.1-pro", {"prompt": "A raccoon driving a truck"})
        assert first["data"]["status"] == "starting"
        assert (await poll(app, first["data"]["id"]))[1]["data"]["status"] == "processing"
        found = (await poll(app, first["data"]["id"]))[1]["data"]
        assert found["images"] == [{"url": by_kind[2]["result"]["sample"]}]
        assert found["cost"] == 0.04
        assert [call[:2] for call in app.calls] == [
            ("POST", "https://api.bfl.ai/v1/flux-pro-1.1"),
            ("GET", by_kind[0]["polling_url"]),
            ("GET", by_kind[0]["polling_url"]),
        ]
        assert app.calls[1][3]["x-key"] == "test-secret"


async def test_every_recorded_image_answer_of_openai_is_read(tmp_path):
    counts = Counter()
    async with gateway(tmp_path, "openai-images", []) as app:
        for each in exchanges("openai-images", "openai"):
            status, answer = each["response"]["status"], each["response"]["body"]
            app.answers[:] = [(status, answer)]
            code, first = await submit(app, "openai/gpt-image-2", {"prompt": "An isolated stop sign."})
            assert (code, first["data"]["status"]) == (200, "starting")
            await asyncio.gather(*app.services.settlements._tasks)
            found = (await poll(app, first["data"]["id"]))[1]["data"]
            if status >= 400:
                assert (found["status"], found["error"]) == ("failed", answer["error"]["message"])
                counts["refused"] += 1
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
            counts["by tokens" if usage else "by picture"] += 1
    assert sum(counts.values()) == len(exchanges("openai-images", "openai"))
    assert counts["by tokens"] >= 4
