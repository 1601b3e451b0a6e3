"""Image jobs: submit, poll, fetch. The state of a job depends on the time alone.

A job is `starting` for the first fifth of its time, then `processing`, then `succeeded` with one small PNG per
requested picture (or `failed`). `input.output` decides how a picture is returned: `url` (default) or `base64`.
"""

from __future__ import annotations

import base64
import struct
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from secrets import token_hex

from tollgate.remembered.bounded import BoundedMemory
from tollgate.sandbox import counting
from tollgate.sandbox.controls import read_controls
from tollgate.sandbox.faults import Fault, missing

DEFAULT_SECONDS = 0.5
_REMEMBERED = 2000
_LONGEST_FAILURE = 500
_RATIOS = {"1:1": (8, 8), "16:9": (16, 9), "9:16": (9, 16), "4:3": (8, 6), "3:4": (6, 8)}


@dataclass(frozen=True, slots=True)
class Job:
    """A submitted job, and when it will be done. It does not keep its prompt, which may have megabytes."""

    id: str
    model: str
    prompt_tokens: int
    inline: bool
    """Its pictures are returned as base64."""
    begun: float
    seconds: float
    pictures: tuple[bytes, ...]
    size: tuple[int, int]
    failure: str | None


class Jobs:
    """The jobs of one sandbox; the least recently used are dropped first. `clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._jobs: BoundedMemory[str, Job] = BoundedMemory(_REMEMBERED)

    def submit(self, body: Mapping[str, object], headers: Mapping[str, str]) -> Job:
        """Start a job from `{model, input: {prompt, count, aspect_ratio, output}}`; raises `Fault` 400."""
        given = body.get("input")
        if not isinstance(body.get("model"), str):
            raise missing("model")
        if not isinstance(given, Mapping):
            raise missing("input")
        if not isinstance(given.get("prompt"), str) or not given["prompt"]:
            raise missing("input.prompt")
        model, prompt = str(body["model"]), str(given["prompt"])
        controls, plain = read_controls(prompt, headers, model)
        many = given.get("count", 1)
        if not isinstance(many, int) or not 1 <= many <= 8:
            raise Fault(400, f"Invalid 'input.count': {many!r}. Expected an integer from 1 to 8.", param="input.count")
        size = _RATIOS.get(str(given.get("aspect_ratio", "1:1")))
        if size is None:
            raise Fault(
                400, f"Invalid 'input.aspect_ratio': expected one of {', '.join(_RATIOS)}.", param="input.aspect_ratio"
            )
        job = Job(
            token_hex(12),
            model,
            counting.count(prompt),
            given.get("output") == "base64",
            self._clock(),
            DEFAULT_SECONDS if controls.duration is None else controls.duration,
            () if controls.fail else tuple(png(f"{plain}{i}", *size) for i in range(many)),
            size,
            controls.fail and controls.fail[:_LONGEST_FAILURE],
        )
        self._jobs.keep(job.id, job, 1)
        return job

    def get(self, job_id: str) -> Job:
        """The job, or `Fault` 404."""
        job = self._jobs.find(job_id)
        if job is None:
            raise Fault(404, f"There is no job '{job_id}'.", code="not_found")
        return job

    def show(self, job: Job, base: str | None) -> dict[str, object]:
        """The job in its present state. `base` is this server's address; without one (in-process) pictures are data
        URLs."""
        passed = self._clock() - job.begun
        if passed < job.seconds:
            status = "starting" if passed < job.seconds / 5 else "processing"
        else:
            status = "failed" if job.failure else "succeeded"
        shown: dict[str, object] = {"id": job.id, "model": job.model, "status": status, "images": [], "error": None}
        if status == "succeeded":
            shown["images"] = [self._picture(job, i, base) for i in range(len(job.pictures))]
            shown["seconds"] = job.seconds
            shown["usage"] = {"images": len(job.pictures), "prompt_tokens": job.prompt_tokens}
        elif status == "failed":
            shown["error"] = job.failure
        return shown

    def _picture(self, job: Job, number: int, base: str | None) -> dict[str, object]:
        data = base64.b64encode(job.pictures[number]).decode()
        frame: dict[str, object] = {"content_type": "image/png", "width": job.size[0], "height": job.size[1]}
        if job.inline:
            return {"data": data, **frame}
        url = f"data:image/png;base64,{data}" if base is None else f"{base}/images/{job.id}/{number}.png"
        return {"url": url, **frame}


def generate(body: Mapping[str, object], headers: Mapping[str, str]) -> dict[str, object]:
    """The synchronous form: `{prompt, n, response_format}` to `{created, data: [{b64_json} or {url}], usage}`."""
    prompt = body.get("prompt")
    if not isinstance(prompt, str) or not prompt:
        raise missing("prompt")
    controls, plain = read_controls(prompt, headers, str(body.get("model")))
    if controls.fail:
        raise Fault(400, controls.fail, code="moderation_blocked", kind="image_generation_user_error")
    many = body.get("n") or 1
    if not isinstance(many, int) or not 1 <= many <= 10:
        raise Fault(400, f"Invalid 'n': {many!r}. Expected an integer from 1 to 10.", param="n")
    found = [base64.b64encode(png(f"{plain}{i}", 8, 8)).decode() for i in range(many)]
    wants_url = body.get("response_format") == "url"
    tokens = counting.count(prompt)
    return {
        "created": int(time.time()),
        "data": [{"url": f"data:image/png;base64,{data}"} if wants_url else {"b64_json": data} for data in found],
        "usage": {
            "input_tokens": tokens,
            "output_tokens": 64 * many,
            "total_tokens": tokens + 64 * many,
            "input_tokens_details": {"text_tokens": tokens, "image_tokens": 0},
        },
    }


def png(seed: str, width: int, height: int) -> bytes:
    """A valid PNG of one colour that depends on the seed."""
    colour = zlib.crc32(seed.encode("utf-8", "replace")).to_bytes(4, "big")[:3]
    rows = (b"\0" + colour * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")
        for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    )
