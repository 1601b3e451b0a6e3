"""Upstreams whose answer is polled, that take form bodies, or that never stream."""

import asyncio
import json
from decimal import Decimal
from urllib.parse import parse_qsl

import pytest

from completions.invented import ASK, MAPPING, events_of, text_of, write_mapping
from providers.shipped import offers
from support.inprocess import inprocess, write_config
from support.usage_files import rows
from support.waiting import SECONDS, until
from tollgate.config.build import load_gateway
from tollgate.errors import ConfigErrors
from tollgate.mapping.provider import run_provider_examples
from tollgate.runtime import build_runtime

POLL = """
      while: $.status in ['queued', 'running']
      call: GET /jobs/{{ $.id }}
      every: [0.01]
"""
PROVIDER = """
provider: acme
url: app://acme
headers: {authorization: Bearer k1}
speaks:
  slow:
    path: /jobs
    poll:POLL
errors: {rules: [{status: 200, when: $.status == 'broken', verdict: next, message: $.reason}]}
models:
  acme/one: {upstream: up-1, price: {prompt: "0.001", completion: "0.002"}}
"""
DONE = {"id": "j/1", "status": "done", "output": "hi there", "reason": "end", "tokens_in": 10, "tokens_out": 5}
QUEUED = {"id": "j/1", "status": "queued", "urls": {"get": "https://elsewhere.example/jobs/1"}}


def provider(poll=POLL, more=""):
    return PROVIDER.replace("POLL", poll) + more


class Jobs:
    """An upstream that gives these answers (status, body, headers) in order and repeats the last; its requests are in
    `seen`."""

    def __init__(self, *answers):
        self.answers, self.seen = list(answers), []

    async def __call__(self, method, path, headers, body):
        self.seen.append((method, path, headers, body))
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        status, document, *headers = answer if isinstance(answer, tuple) else (200, answer)

        async def blocks():
            yield json.dumps(document).encode() if document is not None else b""

        return status, {"content-type": "application/json", **(headers[0] if headers else {})}, blocks()

    @property
    def requests(self):
        return [f"{method} {path}" for method, path, _, _ in self.seen]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_is_polled_until_it_is_ready(tmp_path, stream):
    write_mapping(tmp_path, "slow", MAPPING)
    jobs = Jobs((202, QUEUED), QUEUED, {**QUEUED, "status": "running"}, DONE)
    async with inprocess(tmp_path, providers={"acme": provider()}, apps={"acme": jobs}) as here:
        reply = await here.post("/v1/chat/completions", {**ASK, "stream": stream})
        if stream:
            assert (
                text_of(reply) == "hi there"
                and reply.text.endswith("data: [DONE]\n\n")
                and events_of(reply)[-1]["usage"]["total_tokens"] == 15
            )
        else:
            assert (
                reply.json()["choices"][0]["message"]["content"] == "hi there"
                and reply.json()["usage"]["total_tokens"] == 15
            )
        assert jobs.requests == ["POST /jobs", *["GET /jobs/j%2F1"] * 3]
        assert {headers["authorization"] for _, _, headers, _ in jobs.seen} == {"Bearer k1"}
        assert [("content-type" in headers, body) for _, _, headers, body in jobs.seen[1:]] == [(False, b"")] * 3
        assert here.balance() == Decimal("99.98") and reply.headers["x-tollgate-attempts"] == "1"
        row = (await rows(here, tmp_path))[0]
    assert (row["outcome"], row["status"], row["output_tokens"], row["estimated"], row["stream"]) == (
        "ok",
        200,
        5,
        False,
        stream,
    )
    assert row["total_ms"] >= row["ttfb_ms"] >= 25  # three pauses precede the answer


async def test_an_answer_that_is_ready_at_once_is_not_polled(tmp_path):
    write_mapping(tmp_path, "slow", MAPPING)
    jobs = Jobs(DONE)
    async with inprocess(tmp_path, providers={"acme": provider()}, apps={"acme": jobs}) as here:
        assert (await here.post("/v1/messages", {**ASK, "max_tokens": 5})).json()["content"] == [
            {"type": "text", "text": "hi there"}
        ]
    assert jobs.requests == ["POST /jobs"]


async def test_the_answer_may_be_at_a_separate_url(tmp_path):
    write_mapping(tmp_path, "slow", MAPPING)
    jobs = Jobs(QUEUED, {"status": "running"}, {"status": "done"}, DONE)
    async with inprocess(
        tmp_path, providers={"acme": provider(POLL + "      fetch: GET /jobs/{{ $.id }}/result\n")}, apps={"acme": jobs}
    ) as here:
        assert (await here.post("/v1/chat/completions", ASK)).json()["choices"][0]["message"]["content"] == "hi there"
    assert jobs.requests == ["POST /jobs", "GET /jobs/j%2F1", "GET /jobs/j%2F1", "GET /jobs/j%2F1/result"]


KEEP = (
    POLL
    + """      fetch: "GET /results/{{ $last.result }}"
      keep: {tokens_in: $.used.in, tokens_out: $.used.out, output: nothing}
"""
)


async def test_fields_of_the_last_poll_are_kept_for_the_fetched_answer_and_billed(tmp_path):
    write_mapping(tmp_path, "slow", MAPPING)
    ended = {"status": "done", "result": "r/7", "used": {"in": 10, "out": 5}}
    jobs = Jobs(QUEUED, ended, {"output": "hi there", "reason": "end"})
    async with inprocess(tmp_path, providers={"acme": provider(KEEP)}, apps={"acme": jobs}) as here:
        reply = (await here.post("/v1/chat/completions", ASK)).json()
        assert reply["choices"][0]["message"]["content"] == "hi there" and reply["usage"]["total_tokens"] == 15
        (row,) = await rows(here, tmp_path)
    assert jobs.requests[2] == "GET /results/r%2F7" and not row["estimated"] and row["cost"] == Decimal("0.02")


async def test_fields_of_the_first_answer_are_kept_where_the_usage_is_in_a_second_one(tmp_path):
    write_mapping(tmp_path, "slow", MAPPING)
    poll = POLL.replace("$.status in ['queued', 'running']", "$.tokens_in is absent")
    jobs = Jobs({"id": "j1", "output": "hi there", "reason": "end"}, {"tokens_in": 10, "tokens_out": 5})
    keep = "      keep: {output: $first.output, reason: $first.reason}\n"
    async with inprocess(tmp_path, providers={"acme": provider(poll + keep)}, apps={"acme": jobs}) as here:
        reply = (await here.post("/v1/chat/completions", ASK)).json()
    assert reply["choices"][0]["message"]["content"] == "hi there" and reply["usage"]["total_tokens"] == 15


async def test_an_answer_is_fetched_though_the_last_poll_lacks_the_fields_to_keep(tmp_path):
    write_mapping(tmp_path, "slow", MAPPING)
    poll = KEEP.replace(", output: nothing", "")
    jobs = Jobs(QUEUED, {"status": "done", "result": "r/7"}, DONE)
    async with inprocess(tmp_path, providers={"acme": provider(poll)}, apps={"acme": jobs}) as here:
        reply = (await here.post("/v1/chat/completions", ASK)).json()
    assert reply["choices"][0]["message"]["content"] == "hi there"


BODIES = """
      while: $.status in ['queued', 'running']
      call: POST /rpc
      body: {method: get, params: {id: $.id}}
      fetch: POST /rpc
      fetch_body: {method: result, params: {id: $.id, of: $last.status}}
      every: [0.01]
"""


async def test_polls_may_have_a_body(tmp_path):
    write_mapping(tmp_path, "slow", MAPPING)
    jobs = Jobs(QUEUED, QUEUED, {"id": "j/1", "status": "ready"}, DONE)
    async with inprocess(tmp_path, providers={"acme": provider(BODIES)}, apps={"acme": jobs}) as here:
        reply = await here.post("/v1/chat/completions", ASK)
    assert reply.json()["choices"][0]["message"]["content"] == "hi there"
    assert jobs.requests == ["POST /jobs", "POST /rpc", "POST /rpc", "POST /rpc"]
    assert [json.loads(body) for _, _, _, body in jobs.seen[1:]] == [
        {"method": "get", "params": {"id": "j/1"}},
        {"method": "get", "params": {"id": "j/1"}},
        {"method": "result", "params": {"id": "j/1", "of": "ready"}},
    ]
    assert {headers["content-type"] for _, _, headers, _ in jobs.seen} == {"application/json"}


async def test_nothing_is_fetched_for_a_failed_job(tmp_path):
    write_mapping(tmp_path, "slow", MAPPING)
    jobs = Jobs(QUEUED, {"status": "broken", "reason": "no room"}, DONE)
    async with inprocess(
        tmp_path, providers={"acme": provider(POLL + "      fetch: GET /jobs/{{ $.id }}/result\n")}, apps={"acme": jobs}
    ) as here:
        assert (await here.post("/v1/chat/completions", ASK)).status_code == 500
        (row,) = await rows(here, tmp_path)
        assert here.balance() == Decimal(100)
    assert jobs.requests == ["POST /jobs", "GET /jobs/j%2F1"] and row["outcome"] == "upstream_error"


async def test_polling_may_depend_on_the_status_and_headers(tmp_path):
    write_mapping(tmp_path, "slow", MAPPING)
    poll = """
      while: $http.status == 202
      call: "GET /jobs/{{ $http.headers['x-job'] }}"
      every: [0.01]
"""
    jobs = Jobs((202, None, {"x-job": "7"}), (202, None), DONE)
    async with inprocess(tmp_path, providers={"acme": provider(poll)}, apps={"acme": jobs}) as here:
        assert (await here.post("/v1/chat/completions", ASK)).json()["choices"][0]["message"]["content"] == "hi there"
    assert jobs.requests == ["POST /jobs", "GET /jobs/7", "GET /jobs/7"]


FAILURES = {
    "a job that fails": (Jobs(QUEUED, {"status": "broken", "reason": "no room"}), 2),
    "a job that is not found": (Jobs(QUEUED, (404, {"error": "gone"})), 2),
    "polls that keep failing": (Jobs(QUEUED, (503, {"error": "busy"})), 6),
    "a job that is not accepted": (Jobs((500, {"error": "no"})), 1),
    "an unexpected answer": (Jobs(QUEUED, ["neither"]), 2),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_a_job_without_an_answer_falls_back_to_the_next_route(tmp_path, caplog, case):
    write_mapping(tmp_path, "slow", MAPPING)
    jobs, calls = FAILURES[case]
    other = provider().replace("provider: acme", "provider: other\npriority: 1").replace("app://acme", "app://other")
    async with inprocess(
        tmp_path,
        providers={"acme": provider(), "other": other},
        apps={"acme": jobs, "other": Jobs({**DONE, "output": "instead"})},
    ) as here:
        reply = await here.post("/v1/chat/completions", ASK)
        assert (
            reply.json()["choices"][0]["message"]["content"] == "instead"
            and reply.headers["x-tollgate-attempts"] == "2"
        )
        assert here.balance() == Decimal("99.98")
    assert len(jobs.seen) == calls
    assert not [record for record in caplog.records if record.exc_info], "without `cancel:` nothing is cancelled"


async def test_a_failed_poll_is_retried(tmp_path):
    write_mapping(tmp_path, "slow", MAPPING)
    jobs = Jobs(QUEUED, (503, {}), (502, {}), DONE)
    async with inprocess(tmp_path, providers={"acme": provider()}, apps={"acme": jobs}) as here:
        assert (await here.post("/v1/chat/completions", ASK)).status_code == 200
    assert len(jobs.seen) == 4


CANCEL = POLL + "      cancel: DELETE /jobs/{{ $.id }}\n"


async def test_a_poll_waits_at_least_as_long_as_retry_after(tmp_path):
    write_mapping(tmp_path, "slow", MAPPING)
    waits = [(202, QUEUED, {"retry-after-ms": "100"}), (202, QUEUED, {"retry-after": "0.1"})]
    jobs = Jobs(*waits, (429, {}, {"retry-after": "0.15"}), QUEUED, DONE)
    async with inprocess(tmp_path, providers={"acme": provider()}, apps={"acme": jobs}) as here:
        began = asyncio.get_running_loop().time()
        assert (await here.post("/v1/chat/completions", ASK)).status_code == 200
        assert asyncio.get_running_loop().time() - began >= 0.35
    assert len(jobs.requests) == 5


async def test_a_job_that_takes_too_long_times_out_and_is_cancelled(tmp_path):
    write_mapping(tmp_path, "slow", MAPPING)
    jobs = Jobs(QUEUED)
    async with inprocess(
        tmp_path, providers={"acme": provider(CANCEL, "timeouts: {total: 0.2}\n")}, apps={"acme": jobs}
    ) as here:
        reply = await here.post("/v1/responses", {"model": "acme/one", "input": "hello"})
        await here.services.settlements.drain(SECONDS)
        assert reply.status_code == 504 and here.balance() == 100
        assert (await rows(here, tmp_path))[0]["outcome"] == "timeout"
    assert jobs.requests.count("DELETE /jobs/j%2F1") == 1 and jobs.requests[-1].startswith("DELETE")


async def test_the_job_of_a_client_that_leaves_is_cancelled_and_its_prompt_is_billed(tmp_path):
    write_mapping(tmp_path, "slow", MAPPING)
    jobs = Jobs(QUEUED)
    async with inprocess(tmp_path, providers={"acme": provider(CANCEL)}, apps={"acme": jobs}) as here:
        request = asyncio.ensure_future(here.post("/v1/chat/completions", ASK))
        await until(lambda: len(jobs.seen) >= 3)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        await here.services.settlements.drain(SECONDS)
        row = (await rows(here, tmp_path))[0]
    assert jobs.requests[-1] == "DELETE /jobs/j%2F1"
    assert (row["outcome"], row["estimated"], row["output_tokens"]) == ("client_gone", True, 0) and row["cost"] > 0


async def test_a_url_from_an_answer_is_followed_to_declared_hosts_only(tmp_path, caplog):
    write_mapping(tmp_path, "slow", MAPPING)
    jobs = Jobs(QUEUED)
    poll = POLL.replace("GET /jobs/{{ $.id }}", '"GET {{ $.urls.get | raw }}"') + "      hosts: [acme.example]\n"
    async with inprocess(tmp_path, providers={"acme": provider(poll)}, apps={"acme": jobs}) as here:
        assert (await here.post("/v1/chat/completions", ASK)).status_code == 500
    assert jobs.requests == ["POST /jobs"]
    assert "which is under no host of its file; `hosts` has https://acme.example" in caplog.text


NATIVE = """
provider: acme
url: app://acme
speaks:
  responses:
    path: /responses
    poll: {while: "$.status in ['queued', 'in_progress']", call: "GET /responses/{{ $.id }}", every: [0.01]}
models:
  acme/one: {upstream: up-1, price: {prompt: "0.001", completion: "0.002"}}
"""
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "status": "queued",
    "background": True,
    "model": "up-1",
    "output": [],
    "usage": None,
}
COMPLETED = {
    **RESPONSE,
    "status": "completed",
    "output": [
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Hi", "annotations": []}],
        }
    ],
    "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
    "odd": {"kept": True},
}


async def test_a_native_background_response_is_polled_and_billed_in_full(tmp_path):
    jobs = Jobs(RESPONSE, {**RESPONSE, "status": "in_progress"}, COMPLETED)
    async with inprocess(tmp_path, providers={"acme": NATIVE}, apps={"acme": jobs}) as here:
        reply = await here.post("/v1/responses", {"model": "acme/one", "input": "hello", "background": True})
        assert reply.json() == COMPLETED and here.balance() == Decimal("99.98")
    assert jobs.requests == ["POST /responses", "GET /responses/resp_1", "GET /responses/resp_1"]


async def test_a_native_stream_is_made_from_a_polled_answer(tmp_path):
    jobs = Jobs(RESPONSE, COMPLETED)
    async with inprocess(tmp_path, providers={"acme": NATIVE}, apps={"acme": jobs}) as here:
        reply = await here.post(
            "/v1/responses", {"model": "acme/one", "input": "hello", "stream": True, "background": True}
        )
        assert json.loads(jobs.seen[0][3]) == {"model": "up-1", "input": "hello", "background": True}
        last = json.loads(reply.text.split("data: ")[-1])
        assert last["type"] == "response.completed" and last["response"]["output"][0]["content"][0]["text"] == "Hi"
        assert here.balance() == Decimal("99.98")


WHOLE = """
provider: acme
url: app://acme
speaks: {chat: /chat}
can: {streams: false}
models:
  acme/one: {upstream: up-1, price: {prompt: "0.001", completion: "0.002"}}
"""
CHAT = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "up-1",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
async def test_an_answer_of_a_model_that_never_streams_is_streamed_in_every_format(tmp_path, path):
    chat = Jobs(CHAT)
    async with inprocess(tmp_path, providers={"acme": WHOLE}, apps={"acme": chat}) as here:
        ask = {"model": "acme/one", "input": "hello"} if path.endswith("responses") else {**ASK, "max_tokens": 9}
        reply = await here.post(path, {**ask, "stream": True})
        assert reply.headers["content-type"].startswith("text/event-stream") and "Hi" in reply.text
        assert not {"stream", "stream_options"} & json.loads(chat.seen[0][3]).keys()
        assert here.balance() == Decimal("99.98")
        assert json.loads((await here.post(path, ask)).text)["usage"]
        two_choices = {**ask, "n": 2}
        if path.endswith("completions"):
            assert (await here.post(path, {**two_choices, "stream": True})).status_code == 400
            assert (await here.post(path, two_choices)).status_code == 200


def test_openai_models_that_never_stream_are_declared_as_such():
    never = {offer.model.id for offer in offers("openai") if not offer.streams and offer.protocol == "responses"}
    assert {"openai/o3-pro", "openai/gpt-5-pro", "openai/gpt-5.5-pro"} <= never and not never & {
        "openai/o1",
        "openai/gpt-5",
        "openai/gpt-5.4-pro",
    }


async def test_a_form_body_has_fields_instead_of_json(tmp_path):
    write_mapping(
        tmp_path,
        "slow",
        """
mapping: NAME
request:
  from_hub: {q: "{{ $.turns[*].parts[*].text | join }}", most: $.max_tokens, plain: true, stop: $.stop, style: {tone: dry}, none: $.nowhere}
response:
  to_hub: {parts: [{kind: text, text: $.output}], stop: $.reason, usage: {input: $.tokens_in, output: $.tokens_out}}
""",  # noqa: E501
    )
    jobs = Jobs(DONE)
    text = PROVIDER.replace("    poll:POLL", "    encoding: form")
    async with inprocess(tmp_path, providers={"acme": text}, apps={"acme": jobs}) as here:
        reply = await here.post(
            "/v1/chat/completions",
            {
                "model": "acme/one",
                "messages": [{"role": "user", "content": "a & b=ü"}],
                "max_tokens": 7,
                "stop": ["x", "y"],
            },
        )
        assert reply.status_code == 200
    _, _, headers, body = jobs.seen[0]
    assert headers["content-type"] == "application/x-www-form-urlencoded"
    assert parse_qsl(body.decode()) == [
        ("q", "a & b=ü"),
        ("most", "7"),
        ("plain", "true"),
        ("stop", "x"),
        ("stop", "y"),
        ("style", '{"tone": "dry"}'),
    ]


MISTAKES = {
    "a URL from an answer without hosts": (
        POLL.replace("GET /jobs/{{ $.id }}", '"GET {{ $.url | raw }}"'),
        "add `hosts: [example.com]`",
    ),
    "the last answer before it exists": (POLL.replace("$.id", "$last.id"), "unknown name `$last`"),
    "keep without fetch": (POLL + "      keep: {a: $.b}\n", "`keep` has no effect without `fetch`"),
    "no method": (POLL.replace("GET /jobs", "/jobs"), "wanted a method and an address"),
    "a stray quotation mark": (POLL.replace("$.id }}", "$.id }}'"), "ends in a quotation mark that nothing opens"),
    "no condition": (POLL.replace("while: $.status in ['queued', 'running']", ""), "while"),
    "an unknown name": (POLL.replace("$.id", "$job.id"), "unknown name `$job`"),
    "embeddings": (
        POLL + "  embeddings: {path: /embed, poll: {while: $.wait, call: GET /jobs/1}}\n",
        "vectors are there at once, wanted no `poll`",
    ),
    "the body of a GET": (POLL + "      body: {id: $.id}\n", "`call` is a GET, which has no body"),
    "a body without its call": (POLL + "      cancel_body: {}\n", "`cancel_body` has no effect without `cancel`"),
    "a misspelt key": (POLL.replace("every", "evrey"), "every"),
}


@pytest.mark.parametrize("case", MISTAKES)
async def test_a_config_error_names_its_place(tmp_path, case):
    write_mapping(tmp_path, "slow", MAPPING)
    poll, words = MISTAKES[case]
    with pytest.raises(ConfigErrors) as caught:
        async with inprocess(tmp_path, providers={"acme": provider(poll)}):
            pass
    assert words in str(caught.value) and "providers/acme.yaml:" in str(caught.value)


EXAMPLES = {
    "a job that waits, and its polling URL": (
        "{of: poll, given: {id: a/b, status: queued}, expect: {waits: true, call: 'GET app://acme/jobs/a%2Fb'}}",
        "",
    ),
    "a fetch, and kept fields": (
        """{of: poll, given: {id: x, status: queued}, with: {last: {result: 7, used: {in: 1}}}, expect: {waits: true,
        call: 'GET app://acme/jobs/x', fetch: 'GET app://acme/results/7', keep: {tokens_in: 1, output: nothing}}}""",
        "",
    ),
    "the body of a poll": (
        """{of: poll, given: {id: x, status: queued}, expect: {waits: true, call: 'POST app://acme/rpc',
        body: {method: get, params: {id: x}}, fetch: 'POST app://acme/rpc',
        fetch_body: {method: result, params: {id: x}}}}
        """,
        "",
    ),
    "a job that is done": ("{of: poll, given: {id: x, status: done}, expect: {waits: false}}", ""),
    "a wrong example": ("{of: poll, given: {id: x, status: done}, expect: {waits: true}}", "differs"),
    "variables that the mapping does not use": (
        "{of: poll, given: {id: x, status: queued}, expect: {call: 'GET app://acme/jobs/x'}, with: {vars: {a: b}}}",
        "",
    ),
    "no URL": (
        "{of: poll, given: {status: queued}, expect: {call: 'GET app://acme/jobs/x'}}",
        "does not say where",
    ),
}


@pytest.mark.usefixtures("shipped_mappings")
@pytest.mark.parametrize("case", EXAMPLES)
def test_examples_of_polling_are_checked(tmp_path, case):
    write_mapping(tmp_path, "slow", MAPPING)
    example, words = EXAMPLES[case]
    text = provider(
        BODIES if "rpc" in example else KEEP if "fetch" in example else POLL, more=f"examples: [{example}]\n"
    )
    path = write_config(tmp_path, providers={"acme": text}, sandbox=False)
    problems = run_provider_examples(build_runtime(load_gateway(path, environ={}, everything=True)).providers["acme"])
    assert [words in problem.message for problem in problems] == ([True] if words else [])


@pytest.mark.parametrize(
    ("encoding", "status", "sent"), [("json", 200, b'["hi",{"most":7}]'), ("form", 400, b"")], ids=["json", "form"]
)
async def test_a_json_request_may_be_a_list_and_a_form_may_not(tmp_path, encoding, status, sent):
    write_mapping(
        tmp_path,
        "slow",
        """
mapping: NAME
request: {from_hub: {$value: [{$each: $t in $.turns, $value: "{{ $t.parts[*].text | join }}"}, {most: $.max_tokens}]}}
response:
  to_hub: {parts: [{kind: text, text: $.output}], stop: $.reason, usage: {input: $.tokens_in, output: $.tokens_out}}
""",
    )
    jobs = Jobs(DONE)
    text = PROVIDER.replace("    poll:POLL", f"    encoding: {encoding}\n    request: [{{set: {{x: 1}}}}]")
    async with inprocess(tmp_path, providers={"acme": text}, apps={"acme": jobs}) as here:
        reply = await here.post(
            "/v1/chat/completions",
            {
                "model": "acme/one",
                "messages": [{"role": "user", "content": "hi"}],
                "max_tokens": 7,
            },
        )
    assert (reply.status_code, b"".join(body for _, _, _, body in jobs.seen)) == (status, sent)
    assert status == 200 or "a form has fields" in reply.text
