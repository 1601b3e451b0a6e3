"""The image endpoints over HTTP, with the sandbox's jobs: envelopes, statuses and messages to the letter."""

import asyncio
import contextlib
import errno
from decimal import Decimal
from pathlib import Path

import pytest

from support.inprocess import inprocess, unspoken
from support.stores import available_to
from support.usage_files import rows_by_id

SANDBOX = (Path(__file__).resolve().parents[2] / "providers" / "sandbox-images.yaml").read_text()
JOB = {"model": "sandbox/draw", "input": {"prompt": "a cat"}}


def deep(levels):
    inner = 1
    for _ in range(levels):
        inner = [inner]
    return inner


@contextlib.asynccontextmanager
async def gateway(folder):
    (folder / "mappings").mkdir()
    for name in ("chat", "responses", "messages", "gemini"):
        (folder / "mappings" / f"{name}.yaml").write_text(unspoken(name))
    async with inprocess(folder, providers={"sandbox-images": SANDBOX}) as here:
        yield here


async def test_the_whole_way(tmp_path):
    async with gateway(tmp_path) as here:
        models = await here.get("/v1/images/models", key=None)
        assert [model["id"] for model in models.json()["data"]] == ["sandbox/draw", "sandbox/paint"]
        assert {"id", "name", "model_provider", "description", "tags", "pricing", "input_schema"} == set(
            models.json()["data"][0]
        )
        made = await here.post(
            "/v1/images/generations",
            {**JOB, "input": {"prompt": "a cat", "count": 2}, "webhook": "https://hook.example"},
        )
        job = made.json()["data"]
        assert made.json() == {
            "success": True,
            "code": 200,
            "data": {"id": job["id"], "model": "sandbox/draw", "status": "starting"},
        }
        assert (await here.get("/v1/images/generations")).json()["data"] == []
        assert "tollgate_image_jobs_running 1.0" in (await here.get("/metrics")).text
        seen = []
        while not seen or seen[-1]["status"] in ("starting", "processing"):
            await asyncio.sleep(0.05)
            seen.append((await here.get(f"/v1/images/generations/{job['id']}")).json()["data"])
        assert [each["status"] for each in seen][-1] == "succeeded"
        assert seen[-1]["cost"] == 0.02
        assert [sorted(image) for image in seen[-1]["images"]] == [["context_type", "data", "height", "width"]] * 2
        assert (await here.get("/v1/images/generations")).json()["data"] == [seen[-1]]
        assert "tollgate_image_jobs_running 0.0" in (await here.get("/metrics")).text
        assert here.balance() == Decimal("99.98")


async def test_answers_about_a_job_name_its_provider_its_attempts_and_what_it_cost_once_that_is_known(tmp_path):
    def told(reply):
        return {
            name.removeprefix("x-tollgate-"): value
            for name, value in reply.headers.items()
            if name.startswith("x-tollgate-")
        }

    async with gateway(tmp_path) as here:
        made = await here.post("/v1/images/generations", JOB)
        assert told(made) == {"provider": "sandbox-images", "attempts": "1"}
        looked = made
        async with asyncio.timeout(10):
            while looked.json()["data"]["status"] in ("starting", "processing"):
                await asyncio.sleep(0.05)
                looked = await here.get(f"/v1/images/generations/{made.json()['data']['id']}")
        assert told(looked) == {"provider": "sandbox-images", "attempts": "1", "cost": "0.010000000000"}
        at_once = await here.post("/v1/images/generations", {"model": "paint", "input": {"prompt": "a cat"}})
        assert told(at_once) == {"provider": "sandbox-images", "attempts": "1", "cost": "0.020000000000"}


async def test_a_job_that_holds_the_whole_balance_can_be_looked_at(tmp_path):
    async with gateway(tmp_path) as here:
        await here.services.ledger.grant("default", Decimal("-99.98"))
        made = (
            await here.post(
                "/v1/images/generations", {**JOB, "input": {"prompt": "a cat [[duration=60s]]", "count": 2}}
            )
        ).json()["data"]
        assert await available_to(here.services.ledger, "default") == 0
        looked = await here.get(f"/v1/images/generations/{made['id']}")
        assert (looked.status_code, looked.json()["data"]["status"]) == (200, "starting")
        assert (await here.get("/v1/images/generations")).status_code == 200
        assert (await here.post("/v1/images/generations", JOB)).status_code == 403
        await here.services.ledger.grant("default", Decimal("-0.011"))
        assert (await here.get(f"/v1/images/generations/{made['id']}")).json() == {
            "success": False,
            "code": 403,
            "message": "insufficient quota",
        }


async def test_a_provider_that_is_done_at_once(tmp_path):
    async with gateway(tmp_path) as here:
        made = (await here.post("/v1/images/generations", {"model": "paint", "input": {"prompt": "a cat"}})).json()[
            "data"
        ]
        assert (made["model"], made["status"]) == ("sandbox/paint", "succeeded")
        assert here.balance() == Decimal("99.98")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            b"{",
            "input validation failed: the request body is not valid JSON: unexpected end of data at line 1 column 2",
        ),
        ({"input": {}}, "input validation failed: model is required"),
        ({**JOB, "model": 5}, "input validation failed: model is required and must be text"),
        ({"model": "sandbox/draw"}, "input validation failed: input is required"),
        (
            {"model": "sandbox/draw", "prompt": "a cat", "n": 1},  # as OpenAI's images.generate sends it
            "input validation failed: input is required: an object that holds prompt, n",
        ),
        ({**JOB, "input": 5}, "input validation failed: input is required and must be an object"),
        ({**JOB, "input": {}}, "input validation failed: input.prompt: is required"),
        (
            {**JOB, "input": {"prompt": "a", "aspect_ratio": "2:1"}},
            'input validation failed: input.aspect_ratio: "2:1" is not one of "1:1", "16:9"',
        ),
        (
            {"model": "sandbox/paint", "input": {"prompt": "a", "more": deep(300)}},
            "input validation failed: input is nested more than 199 levels deep",
        ),
        (
            {"model": "sandbox/paint", "input": {"prompt": "a", "more": [1] * 2001}},
            "input validation failed: input holds more than 2000 values",
        ),
        (
            {"model": "sandbox/paint", "input": {"prompt": "a", "more": [[{"b": 1}]] * 700}},
            "input validation failed: input holds more than 2000 values",
        ),
        ({**JOB, "more": [[]] * 20_000}, "input validation failed: the request body holds more than 20000 values"),
        ({**JOB, "model": "sandbox/none"}, "input validation failed: model not found: sandbox/none"),
        (
            {**JOB, "model": "sandbox/echo"},
            "input validation failed: model not found: sandbox/echo (it is for /v1/chat/completions, ",
        ),
    ],
)
async def test_a_wrong_request_is_a_400_that_names_the_field(tmp_path, body, message):
    async with gateway(tmp_path) as here:
        reply = await here.post("/v1/images/generations", body)
        assert (reply.status_code, reply.json()["success"], reply.json()["code"]) == (400, False, 400)
        assert reply.json()["message"].startswith(message)


async def test_fields_that_a_job_has_no_place_for_are_named(tmp_path):
    async with gateway(tmp_path) as here:
        more = {
            **JOB,
            "model": "sandbox/paint",
            "input": {"prompt": "a"},
            "n": 4,
            "size": "L",
            "webhook": "https://example.com/hook",
        }
        made = await here.post("/v1/images/generations", more)
        assert (made.status_code, made.headers["x-tollgate-dropped"]) == (200, "n, size")
        assert "x-tollgate-dropped" not in (await here.post("/v1/images/generations", JOB)).headers
        strict = await here.post("/v1/images/generations", more, x_tollgate_strict="true")
        assert (strict.status_code, strict.json()["message"]) == (
            400,
            "input validation failed: strict mode: an image job has no n, size; what a model takes stands in `input`",
        )
        assert (await rows_by_id(here, tmp_path))[made.headers["x-request-id"]]["lost"] == "n; size"


async def test_an_input_as_deep_as_a_body_may_be_becomes_a_job(tmp_path):
    async with gateway(tmp_path) as here:
        for more in (deep(198), 2**70):  # 200 levels with the body and its input
            made = (
                await here.post(
                    "/v1/images/generations", {"model": "sandbox/paint", "input": {"prompt": "a", "more": more}}
                )
            ).json()
            assert made["success"], made
            assert (await here.get(f"/v1/images/generations/{made['data']['id']}")).status_code == 200


async def test_unknown_jobs_missing_keys_and_empty_accounts_are_refused(tmp_path):
    async with gateway(tmp_path) as here:
        for job_id in ("nonsense", "00000000-0000-4000-8000-000000000000"):
            reply = await here.get(f"/v1/images/generations/{job_id}")
            assert (reply.status_code, reply.json()) == (
                404,
                {"success": False, "code": 404, "message": "missing ID parameter"},
            )
        assert (await here.get("/v1/images/generations", key=None)).status_code == 401
        await here.services.ledger.grant("default", Decimal("-99.995"))
        reply = await here.post("/v1/images/generations", JOB)
        assert (reply.status_code, reply.json()) == (
            403,
            {"success": False, "code": 403, "message": "insufficient quota"},
        )


async def test_a_job_for_which_no_file_can_be_opened_may_be_tried_again(tmp_path, monkeypatch, caplog):
    """The first job imports what checks its input, and nothing may be left to open that with."""

    def opens(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files", "jsonschema/__init__.py")

    async with gateway(tmp_path) as here:
        with monkeypatch.context() as full:
            full.setattr("tollgate.mapping.images.schema._with_defaults", opens)
            reply = await here.post("/v1/images/generations", JOB)
        assert reply.status_code == 503 and reply.headers["retry-after"] == "5"
        assert reply.headers["x-tollgate-error"] == "out_of_sockets" and "Too many open files" in caplog.text
        assert (await here.post("/v1/images/generations", JOB)).status_code == 200
