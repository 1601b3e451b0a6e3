"""Streams in two steps: the upstream's first answer says where the stream is (`poll: {stream: ...}`)."""

import asyncio
import json

import pytest

from completions.invented import ASK, MAPPING, STREAM, events_of, text_of, write_mapping
from support.inprocess import inprocess, write_config
from support.usage_files import rows
from support.waiting import SECONDS
from tollgate.config.build import load_gateway
from tollgate.errors import ConfigErrors
from tollgate.mapping.provider import run_provider_examples
from tollgate.runtime import build_runtime

ONLY_STREAM = MAPPING[: MAPPING.index("response:")] + MAPPING[MAPPING.index("error:") :] + STREAM
STREAM_POLL = "poll: {stream: 'GET /streams/{{ $.id }}'}"
BOTH = """poll:
      while: $.status == 'queued'
      call: GET /jobs/{{ $.id }}
      stream: GET /streams/{{ $.id }}
      cancel: DELETE /jobs/{{ $.id }}
      every: [0.01]"""
QUEUED = {"id": "j/1", "status": "queued"}
DONE = {"id": "j/1", "status": "done", "output": "hi there", "reason": "end", "tokens_in": 10, "tokens_out": 5}
BITS = [{"bit": "hi"}, {"bit": " there"}, {"reason": "end", "tokens_in": 10, "tokens_out": 5}]


def provider(poll, *, name="acme", more="", priority=0):
    return f"""
provider: {name}
url: app://{name}
priority: {priority}
headers: {{authorization: Bearer k1, x-live: {{$when: $stream, $value: 'on', $else: 'off'}}}}
speaks:
  jobs:
    path: /jobs
    {poll}
errors: {{rules: [{{status: 200, when: $.status == 'broken', verdict: next, message: $.reason}}]}}
models:
  acme/one: {{upstream: up-1, price: {{prompt: "0.001", completion: "0.002"}}}}
{more}"""


class StreamingJobs:
    """An upstream that accepts jobs with the answer `taken` and streams `bits` at another URL. With `hang` it never
    ends the stream; with `head` false it never answers there."""

    def __init__(self, taken=QUEUED, bits=BITS, *, status=200, kind="text/event-stream", hang=False, head=True):
        self.taken, self.bits, self.status, self.kind, self.hang, self.head = taken, bits, status, kind, hang, head
        self.seen = []
        self.hanging = asyncio.Event()

    async def __call__(self, method, path, headers, body):
        self.seen.append((f"{method} {path}", headers, body))
        if not self.head and path.startswith("/streams/"):
            self.hanging.set()
            await asyncio.sleep(60)

        async def blocks():
            if path.startswith("/streams/"):
                for bit in self.bits:
                    yield f"data: {json.dumps(bit)}\n\n".encode()
                if self.hang:
                    self.hanging.set()
                    await asyncio.sleep(60)
            else:
                yield json.dumps(DONE if method == "GET" else self.taken).encode()

        streams = path.startswith("/streams/")
        return (
            self.status if streams else 200,
            {"content-type": self.kind if streams else "application/json"},
            blocks(),
        )

    @property
    def requests(self):
        return [request for request, _, _ in self.seen]


@pytest.mark.parametrize("stream", [False, True])
async def test_the_stream_named_by_the_first_answer_is_the_answer(tmp_path, stream):
    write_mapping(tmp_path, "jobs", ONLY_STREAM)
    jobs = StreamingJobs()
    async with inprocess(tmp_path, providers={"acme": provider(STREAM_POLL)}, apps={"acme": jobs}) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": stream})
        text = text_of(reply) if stream else reply.json()["choices"][0]["message"]["content"]
        (row,) = await rows(here, tmp_path)
    usage = events_of(reply)[-1]["usage"] if stream else reply.json()["usage"]
    assert text == "hi there" and usage["total_tokens"] == 15
    assert jobs.requests == ["POST /jobs", "GET /streams/j%2F1"]
    assert [headers["authorization"] for _, headers, _ in jobs.seen] == ["Bearer k1"] * 2
    assert [headers["x-live"] for _, headers, _ in jobs.seen] == ["on"] * 2 and jobs.seen[1][2] == b""
    assert (row["outcome"], row["estimated"], row["output_tokens"], row["stream"]) == ("ok", False, 5, stream)


@pytest.mark.parametrize(
    ("stream", "requests"), [(True, ["POST /jobs", "GET /streams/j%2F1"]), (False, ["POST /jobs", "GET /jobs/j%2F1"])]
)
async def test_with_polling_the_stream_is_used_only_for_clients_that_stream(tmp_path, stream, requests):
    write_mapping(tmp_path, "jobs", MAPPING + STREAM)
    jobs = StreamingJobs()
    async with inprocess(tmp_path, providers={"acme": provider(BOTH)}, apps={"acme": jobs}) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": stream})
        text = text_of(reply) if stream else reply.json()["choices"][0]["message"]["content"]
    assert text == "hi there"
    assert jobs.requests == requests


FAILURES = {
    "the first answer reports a failure": StreamingJobs({"status": "broken", "reason": "full"}),
    "the first answer names no stream": StreamingJobs({"status": "queued"}),
    "the stream is not found": StreamingJobs(status=404),
    "the stream is an HTML page": StreamingJobs(kind="text/html"),
    "the stream starts with an error": StreamingJobs(bits=[{"trouble": "no"}]),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_a_stream_that_does_not_start_falls_back_to_the_next_route(tmp_path, case):
    write_mapping(tmp_path, "jobs", ONLY_STREAM)
    first, second = FAILURES[case], StreamingJobs()
    providers = {"acme": provider(STREAM_POLL), "bemo": provider(STREAM_POLL, name="bemo", priority=1)}
    async with inprocess(tmp_path, providers=providers, apps={"acme": first, "bemo": second}) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": True})
    assert text_of(reply) == "hi there" and reply.headers["x-tollgate-provider"] == "bemo"


async def test_an_error_of_the_second_step_is_not_blamed_on_the_callers_request(tmp_path):
    write_mapping(tmp_path, "jobs", ONLY_STREAM)
    async with inprocess(
        tmp_path, providers={"acme": provider(STREAM_POLL)}, apps={"acme": StreamingJobs(status=400)}
    ) as here:
        assert (await here.post("/v1/chat/completions", {**ASK, "stream": True})).status_code == 500


CANCELLED = STREAM_POLL.replace("}}'}", "}}', cancel: 'DELETE /jobs/{{ $.id }}'}")
HANGING = {
    "before the stream answers": {"head": False},
    "before its first event": {"hang": True, "bits": []},
    "in the middle": {"hang": True, "bits": BITS[:1]},
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("when", HANGING)
async def test_the_job_of_a_client_that_leaves_is_cancelled(tmp_path, when, stream):
    write_mapping(tmp_path, "jobs", ONLY_STREAM)
    jobs = StreamingJobs(**HANGING[when])
    async with inprocess(tmp_path, providers={"acme": provider(CANCELLED)}, apps={"acme": jobs}) as here:
        request = asyncio.ensure_future(here.post("/v1/chat/completions", {**ASK, "stream": stream}))
        await asyncio.wait_for(jobs.hanging.wait(), SECONDS)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        await here.services.settlements.drain(SECONDS)
        (row,) = await rows(here, tmp_path)
    assert jobs.requests == ["POST /jobs", "GET /streams/j%2F1", "DELETE /jobs/j%2F1"]
    assert row["outcome"] == "client_gone" and row["cost"] > 0


async def test_a_job_with_a_stalled_stream_is_cancelled(tmp_path):
    write_mapping(tmp_path, "jobs", ONLY_STREAM)
    jobs = StreamingJobs(hang=True, bits=BITS[:1])
    impatient = provider(CANCELLED, more="timeouts: {idle: 0.1}")
    async with inprocess(tmp_path, providers={"acme": impatient}, apps={"acme": jobs}) as here:
        await here.post("/v1/chat/completions", {**ASK, "stream": True})
        await here.services.settlements.drain(SECONDS)
        (row,) = await rows(here, tmp_path)
    assert jobs.requests[2:] == ["DELETE /jobs/j%2F1"] and row["outcome"] == "timeout"


async def test_a_job_without_a_stream_is_cancelled_before_the_next_route_answers(tmp_path):
    write_mapping(tmp_path, "jobs", ONLY_STREAM)
    first, second = StreamingJobs(head=False), StreamingJobs()
    providers = {
        "acme": provider(CANCELLED, more="timeouts: {first_byte: 0.1}"),
        "bemo": provider(CANCELLED, name="bemo", priority=1),
    }
    async with inprocess(tmp_path, providers=providers, apps={"acme": first, "bemo": second}) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": True})
        await here.services.settlements.drain(SECONDS)
    assert text_of(reply) == "hi there"
    assert first.requests[2:] == ["DELETE /jobs/j%2F1"] and second.requests == ["POST /jobs", "GET /streams/j%2F1"]


async def test_a_job_whose_answer_names_no_stream_is_cancelled(tmp_path):
    """As a job whose answer names no address to poll."""
    write_mapping(tmp_path, "jobs", ONLY_STREAM)
    jobs = StreamingJobs()
    async with inprocess(
        tmp_path, providers={"acme": provider(CANCELLED.replace("$.id", "$.at", 1))}, apps={"acme": jobs}
    ) as here:
        assert (await here.post("/v1/chat/completions", {**ASK, "stream": True})).status_code == 500
        await here.services.settlements.drain(SECONDS)
    assert jobs.requests == ["POST /jobs", "DELETE /jobs/j%2F1"]


MISTAKES = {
    "a format without a stream": (MAPPING, STREAM_POLL, "has no stream.to_hub"),
    "polling in a format that is only streamed": (ONLY_STREAM, BOTH, "has no response.to_hub"),
    "a condition without a call": (
        MAPPING + STREAM,
        STREAM_POLL.replace("{", "{while: $.wait, ", 1),
        "found no `call`",
    ),
    "the last answer, which does not exist yet": (
        ONLY_STREAM,
        STREAM_POLL.replace("$.id", "$last.id"),
        "unknown name `$last`",
    ),
    "a URL without hosts": (ONLY_STREAM, "poll: {stream: 'GET {{ $.at | raw }}'}", "add `hosts: [example.com]`"),
}


@pytest.mark.parametrize("case", MISTAKES)
async def test_a_config_error_names_its_place(tmp_path, case):
    mapping, poll, words = MISTAKES[case]
    write_mapping(tmp_path, "jobs", mapping)
    with pytest.raises(ConfigErrors) as caught:
        async with inprocess(tmp_path, providers={"acme": provider(poll)}):
            pass
    assert words in str(caught.value) and "providers/acme.yaml:" in str(caught.value)


@pytest.mark.parametrize(
    ("address", "words"), [("GET app://acme/streams/a%2Fb", ""), ("GET app://acme/streams/x", "differs")]
)
def test_examples_of_the_two_steps_are_checked(tmp_path, address, words):
    write_mapping(tmp_path, "jobs", ONLY_STREAM)
    example = f"examples: [{{of: poll, given: {{id: a/b}}, expect: {{waits: false, stream: '{address}'}}}}]"
    path = write_config(tmp_path, providers={"acme": provider(STREAM_POLL, more=example)}, sandbox=False)
    problems = run_provider_examples(build_runtime(load_gateway(path, environ={}, everything=True)).providers["acme"])
    assert [words in problem.message for problem in problems] == ([True] if words else [])
