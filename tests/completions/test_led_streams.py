"""Streams in two steps: the first answer of an upstream says where the stream is (`poll: {stream: ...}`)."""

import asyncio
import json

import pytest

from completions.test_invented_upstreams import ASK, OWN, STREAM, events_of, text_of, write_mapping
from support.inprocess import inprocess, write_config
from support.usage_files import rows
from tollgate.config.build import load_gateway
from tollgate.errors import ConfigErrors
from tollgate.mapping.provider import run_provider_examples
from tollgate.runtime import build_runtime

ONLY_STREAM = OWN[: OWN.index("response:")] + OWN[OWN.index("error:") :] + STREAM
LED = "poll: {stream: 'GET /streams/{{ $.id }}'}"
BOTH = """poll:
      while: $.status == 'queued'
      call: GET /jobs/{{ $.id }}
      stream: GET /streams/{{ $.id }}
      cancel: DELETE /jobs/{{ $.id }}
      every: [0.01]"""
QUEUED = {"id": "j/1", "status": "queued"}
DONE = {"id": "j/1", "status": "done", "said": "hi there", "why": "end", "heard": 10, "spoken": 5}
BITS = [{"bit": "hi"}, {"bit": " there"}, {"why": "end", "heard": 10, "spoken": 5}]


def provider(poll, *, name="acme", more="", priority=0):
    return f"""
provider: {name}
url: app://{name}
priority: {priority}
headers: {{authorization: Bearer k1, x-live: {{$when: $stream, $value: 'on', $else: 'off'}}}}
speaks:
  led:
    path: /jobs
    {poll}
errors: {{rules: [{{status: 200, when: $.status == 'broken', verdict: next, message: $.why}}]}}
models:
  acme/one: {{upstream: up-1, price: {{prompt: "0.001", completion: "0.002"}}}}
{more}"""


class Led:
    """An upstream that takes jobs with `taken` and streams `bits` elsewhere, then waits where it is to `hang`, with
    `head` False before it answers there at all."""

    def __init__(self, taken=QUEUED, bits=BITS, *, status=200, kind="text/event-stream", hang=False, head=True):
        self.taken, self.bits, self.status, self.kind, self.hang, self.head = taken, bits, status, kind, hang, head
        self.seen = []

    async def __call__(self, method, path, headers, body):
        self.seen.append((f"{method} {path}", headers, body))
        if not self.head and path.startswith("/streams/"):
            await asyncio.sleep(60)

        async def blocks():
            if path.startswith("/streams/"):
                for bit in self.bits:
                    yield f"data: {json.dumps(bit)}\n\n".encode()
                if self.hang:
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
    def asked(self):
        return [asked for asked, _, _ in self.seen]


@pytest.mark.parametrize("stream", [False, True])
async def test_the_stream_that_the_first_answer_leads_to_is_the_answer(tmp_path, stream):
    write_mapping(tmp_path, "led", ONLY_STREAM)
    led = Led()
    async with inprocess(tmp_path, providers={"acme": provider(LED)}, apps={"acme": led}) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": stream})
        text = text_of(reply) if stream else reply.json()["choices"][0]["message"]["content"]
        (row,) = await rows(here, tmp_path)
    usage = events_of(reply)[-1]["usage"] if stream else reply.json()["usage"]
    assert text == "hi there" and usage["total_tokens"] == 15
    assert led.asked == ["POST /jobs", "GET /streams/j%2F1"]
    assert [headers["authorization"] for _, headers, _ in led.seen] == ["Bearer k1"] * 2
    assert [headers["x-live"] for _, headers, _ in led.seen] == ["on"] * 2 and led.seen[1][2] == b""
    assert (row["outcome"], row["estimated"], row["output_tokens"], row["stream"]) == ("ok", False, 5, stream)


@pytest.mark.parametrize(
    ("stream", "asked"), [(True, ["POST /jobs", "GET /streams/j%2F1"]), (False, ["POST /jobs", "GET /jobs/j%2F1"])]
)
async def test_beside_asking_again_it_is_for_those_who_want_a_stream(tmp_path, stream, asked):
    write_mapping(tmp_path, "led", OWN + STREAM)
    led = Led()
    async with inprocess(tmp_path, providers={"acme": provider(BOTH)}, apps={"acme": led}) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": stream})
        assert reply.status_code == 200 and ("there" in reply.text)
    assert led.asked == asked


FAILURES = {
    "the first answer tells a failure": Led({"status": "broken", "why": "full"}),
    "the first answer says no place": Led({"status": "queued"}),
    "there is nothing": Led(status=404),
    "there is no stream": Led(kind="text/html"),
    "the stream begins with a failure": Led(bits=[{"trouble": "no"}]),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_where_it_does_not_begin_another_route_answers(tmp_path, case):
    write_mapping(tmp_path, "led", ONLY_STREAM)
    first, second = FAILURES[case], Led()
    providers = {"acme": provider(LED), "bemo": provider(LED, name="bemo", priority=1)}
    async with inprocess(tmp_path, providers=providers, apps={"acme": first, "bemo": second}) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": True})
    assert text_of(reply) == "hi there" and reply.headers["x-tollgate-provider"] == "bemo"


async def test_the_callers_request_is_not_blamed_for_what_the_second_step_answers(tmp_path):
    write_mapping(tmp_path, "led", ONLY_STREAM)
    async with inprocess(tmp_path, providers={"acme": provider(LED)}, apps={"acme": Led(status=400)}) as here:
        assert (await here.post("/v1/chat/completions", {**ASK, "stream": True})).status_code == 500


CANCELLED = LED.replace("}}'}", "}}', cancel: 'DELETE /jobs/{{ $.id }}'}")
STAYS = {
    "before the stream answers": Led(head=False),
    "before its first event": Led(hang=True, bits=[]),
    "in the midst": Led(hang=True, bits=BITS[:1]),
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("when", STAYS)
async def test_a_client_that_leaves_has_the_job_cancelled(tmp_path, when, stream):
    write_mapping(tmp_path, "led", ONLY_STREAM)
    led = STAYS[when]
    led.seen.clear()
    async with inprocess(tmp_path, providers={"acme": provider(CANCELLED)}, apps={"acme": led}) as here:
        asking = asyncio.ensure_future(here.post("/v1/chat/completions", {**ASK, "stream": stream}))
        while len(led.seen) < 2:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await here.services.settlements.drain(5)
        (row,) = await rows(here, tmp_path)
    assert led.asked == ["POST /jobs", "GET /streams/j%2F1", "DELETE /jobs/j%2F1"]
    assert row["outcome"] == "client_gone" and row["cost"] > 0


async def test_a_job_whose_stream_stops_coming_is_cancelled(tmp_path):
    write_mapping(tmp_path, "led", ONLY_STREAM)
    led = Led(hang=True, bits=BITS[:1])
    patience = provider(CANCELLED, more="timeouts: {idle: 0.1}")
    async with inprocess(tmp_path, providers={"acme": patience}, apps={"acme": led}) as here:
        await here.post("/v1/chat/completions", {**ASK, "stream": True})
        await here.services.settlements.drain(5)
        (row,) = await rows(here, tmp_path)
    assert led.asked[2:] == ["DELETE /jobs/j%2F1"] and row["outcome"] == "timeout"


async def test_a_job_whose_stream_does_not_begin_is_cancelled_before_another_route_answers(tmp_path):
    write_mapping(tmp_path, "led", ONLY_STREAM)
    first, second = Led(head=False), Led()
    providers = {
        "acme": provider(CANCELLED, more="timeouts: {first_byte: 0.1}"),
        "bemo": provider(CANCELLED, name="bemo", priority=1),
    }
    async with inprocess(tmp_path, providers=providers, apps={"acme": first, "bemo": second}) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": True})
        await here.services.settlements.drain(5)
    assert text_of(reply) == "hi there"
    assert first.asked[2:] == ["DELETE /jobs/j%2F1"] and second.asked == ["POST /jobs", "GET /streams/j%2F1"]


MISTAKES = {
    "a format without a stream": (OWN, LED, "has no stream.to_hub"),
    "asking again for what is never whole": (ONLY_STREAM, BOTH, "has no response.to_hub"),
    "half of asking again": (OWN + STREAM, LED.replace("{", "{while: $.wait, ", 1), "found no `call`"),
    "the last answer, which there is none of": (ONLY_STREAM, LED.replace("$.id", "$last.id"), "unknown name `$last`"),
    "an address without hosts": (ONLY_STREAM, "poll: {stream: 'GET {{ $.at | raw }}'}", "add `hosts: [example.com]`"),
}


@pytest.mark.parametrize("case", MISTAKES)
async def test_mistakes_are_told_with_their_place(tmp_path, case):
    mapping, poll, words = MISTAKES[case]
    write_mapping(tmp_path, "led", mapping)
    with pytest.raises(ConfigErrors) as told:
        async with inprocess(tmp_path, providers={"acme": provider(poll)}):
            pass
    assert words in str(told.value) and "providers/acme.yaml:" in str(told.value)


@pytest.mark.parametrize(
    ("address", "words"), [("GET app://acme/streams/a%2Fb", ""), ("GET app://acme/streams/x", "differs")]
)
def test_a_file_may_hold_examples_of_it(tmp_path, address, words):
    write_mapping(tmp_path, "led", ONLY_STREAM)
    example = f"examples: [{{of: poll, given: {{id: a/b}}, expect: {{waits: false, stream: '{address}'}}}}]"
    path = write_config(tmp_path, providers={"acme": provider(LED, more=example)}, sandbox=False)
    problems = run_provider_examples(build_runtime(load_gateway(path, environ={}, everything=True)).providers["acme"])
    assert [words in problem.message for problem in problems] == ([True] if words else [])
