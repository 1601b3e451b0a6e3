"""The image endpoints over HTTP with the sandbox's jobs: exact envelopes, statuses and messages."""

import contextlib
import errno
from decimal import Decimal

import pytest

from support.inprocess import inprocess, write_unused_mappings
from support.places import SANDBOX_IMAGES
from support.stores import available_to
from support.usage_files import rows_by_id

JOB = {"model": "sandbox/draw", "input": {"prompt": "a cat"}}


def deep(levels):
    inner = 1
    for _ in range(levels):
        inner = [inner]
    return inner


@contextlib.asynccontextmanager
async def gateway(folder):
    write_unused_mappings(folder)
    async with inprocess(folder, providers={"sandbox-images": SANDBOX_IMAGES}) as app:
        yield app


async def test_a_job_is_created_polled_listed_and_charged(tmp_path):
    async with gateway(tmp_path) as app:
        models = await app.get("/v1/images/models", key=None)
        assert [model["id"] for model in models.json()["data"]] == ["sandbox/draw", "sandbox/paint"]
        assert {"id", "name", "model_provider", "description", "tags", "pricing", "input_schema"} == set(
            models.json()["data"][0]
        )
        made = await app.post(
            "/v1/images/generations",
            {**JOB, "input": {"prompt": "a cat", "count": 2}, "webhook": "https://hook.example"},
        )
        job = made.json()["data"]
        assert made.json() == {
            "success": True,
            "code": 200,
            "data": {"id": job["id"], "model": "sandbox/draw", "status": "starting"},
        }
        assert (await app.get("/v1/images/generations")).json()["data"] == []
        assert "tollgate_image_jobs_running 1.0" in (await app.get("/metrics")).text
        done = (await app.ended_job(job["id"])).json()["data"]
        assert done["status"] == "succeeded"
        assert done["cost"] == 0.02
        assert [sorted(image) for image in done["images"]] == [["context_type", "data", "height", "width"]] * 2
        assert (await app.get("/v1/images/generations")).json()["data"] == [done]
        assert "tollgate_image_jobs_running 0.0" in (await app.get("/metrics")).text
        assert app.balance() == Decimal("99.98")


async def test_responses_about_a_job_have_provider_attempts_and_final_cost_headers(tmp_path):
    def tollgate_headers(reply):
        return {
            name.removeprefix("x-tollgate-"): value
            for name, value in reply.headers.items()
            if name.startswith("x-tollgate-")
        }

    async with gateway(tmp_path) as app:
        made = await app.post("/v1/images/generations", JOB)
        assert tollgate_headers(made) == {"provider": "sandbox-images", "attempts": "1"}
        reply = await app.ended_job(made.json()["data"]["id"])
        assert tollgate_headers(reply) == {"provider": "sandbox-images", "attempts": "1", "cost": "0.010000000000"}
        at_once = await app.post("/v1/images/generations", {"model": "paint", "input": {"prompt": "a cat"}})
        assert tollgate_headers(at_once) == {"provider": "sandbox-images", "attempts": "1", "cost": "0.020000000000"}


async def test_a_job_that_holds_the_whole_balance_can_be_polled(tmp_path):
    async with gateway(tmp_path) as app:
        await app.services.ledger.grant("default", Decimal("-99.98"))
        made = (
            await app.post("/v1/images/generations", {**JOB, "input": {"prompt": "a cat [[duration=60s]]", "count": 2}})
        ).json()["data"]
        assert await available_to(app.services.ledger, "default") == 0
        reply = await app.get(f"/v1/images/generations/{made['id']}")
        assert (reply.status_code, reply.json()["data"]["status"]) == (200, "starting")
        assert (await app.get("/v1/images/generations")).status_code == 200
        assert (await app.post("/v1/images/generations", JOB)).status_code == 403
        await app.services.ledger.grant("default", Decimal("-0.011"))
        assert (await app.get(f"/v1/images/generations/{made['id']}")).json() == {
            "success": False,
            "code": 403,
            "message": "insufficient quota",
        }


async def test_a_provider_that_finishes_at_once(tmp_path):
    async with gateway(tmp_path) as app:
        made = (await app.post("/v1/images/generations", {"model": "paint", "input": {"prompt": "a cat"}})).json()[
            "data"
        ]
        assert (made["model"], made["status"]) == ("sandbox/paint", "succeeded")
        assert app.balance() == Decimal("99.98")


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
            {"model": "sandbox/draw", "prompt": "a cat", "n": 1},  # as sent by OpenAI's images.generate
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
async def test_an_invalid_request_is_a_400_that_names_the_field(tmp_path, body, message):
    async with gateway(tmp_path) as app:
        reply = await app.post("/v1/images/generations", body)
        assert (reply.status_code, reply.json()["success"], reply.json()["code"]) == (400, False, 400)
        assert reply.json()["message"].startswith(message)


async def test_unknown_fields_of_a_request_are_named(tmp_path):
    async with gateway(tmp_path) as app:
        more = {
            **JOB,
            "model": "sandbox/paint",
            "input": {"prompt": "a"},
            "n": 4,
            "size": "L",
            "webhook": "https://example.com/hook",
        }
        made = await app.post("/v1/images/generations", more)
        assert (made.status_code, made.headers["x-tollgate-dropped"]) == (200, "n, size")
        assert "x-tollgate-dropped" not in (await app.post("/v1/images/generations", JOB)).headers
        strict = await app.post("/v1/images/generations", more, x_tollgate_strict="true")
        assert (strict.status_code, strict.headers["x-tollgate-error"], strict.json()["message"]) == (
            400,
            "cannot_convert",
            "input validation failed: strict mode: an image job has no n, size; what a model takes stands in `input`",
        )
        assert (await rows_by_id(app, tmp_path))[made.headers["x-request-id"]]["lost"] == "n; size"


async def test_an_input_of_maximum_depth_becomes_a_job(tmp_path):
    async with gateway(tmp_path) as app:
        for more in (deep(198), 2**70):  # 200 levels with the body and its input
            made = (
                await app.post(
                    "/v1/images/generations", {"model": "sandbox/paint", "input": {"prompt": "a", "more": more}}
                )
            ).json()
            assert made["success"], made
            assert (await app.get(f"/v1/images/generations/{made['data']['id']}")).status_code == 200


async def test_unknown_jobs_missing_keys_and_accounts_without_credits_are_rejected(tmp_path):
    async with gateway(tmp_path) as app:
        for job_id in ("nonsense", "00000000-0000-4000-8000-000000000000"):
            reply = await app.get(f"/v1/images/generations/{job_id}")
            assert (reply.status_code, reply.json()) == (
                404,
                {"success": False, "code": 404, "message": "missing ID parameter"},
            )
        assert (await app.get("/v1/images/generations", key=None)).status_code == 401
        await app.services.ledger.grant("default", Decimal("-99.995"))
        reply = await app.post("/v1/images/generations", JOB)
        assert (reply.status_code, reply.json()) == (
            403,
            {"success": False, "code": 403, "message": "insufficient quota"},
        )


async def test_a_job_that_fails_for_lack_of_descriptors_can_be_retried(tmp_path, monkeypatch, caplog):
    """The first job imports the input validation, for which there may be no descriptor left."""

    def fail_to_open(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files", "jsonschema/__init__.py")

    async with gateway(tmp_path) as app:
        with monkeypatch.context() as full:
            full.setattr("tollgate.mapping.images.schema._with_defaults", fail_to_open)
            reply = await app.post("/v1/images/generations", JOB)
        assert reply.status_code == 503 and reply.headers["retry-after"] == "5"
        assert reply.headers["x-tollgate-error"] == "out_of_sockets" and "Too many open files" in caplog.text
        assert (await app.post("/v1/images/generations", JOB)).status_code == 200
