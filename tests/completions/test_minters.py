"""Encrypted content of one service is not sent to another service of the same format: reasoning is dropped and
reported, compacted history goes to providers that can read it."""

import json

import pytest

from support.inprocess import SSE, inprocess
from support.usage_files import rows_by_id

PROVIDER = """
provider: {name}
priority: {priority}
speaks: {{responses: /responses}}
url: app://{name}
can: {{{can}}}
models:
  {model}: {{upstream: up, context: 1000, max_output: 100, price: {{prompt: "1", completion: "1", unit: 1000000, currency: USD}}}}
"""  # noqa: E501
USAGE = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
ASK = {"model": "acme/one", "store": False, "include": ["reasoning.encrypted_content"]}
LOST = "reasoning of another provider"


class Service:
    """An upstream that encrypts its reasoning, and answers 400 to content that others encrypted."""

    def __init__(self, name: str) -> None:
        self.name, self.seen, self.down, self.kind = name, [], False, "reasoning"
        self.down_without = False
        self.refusal = {"error": {"code": "invalid_encrypted_content", "message": "could not be verified"}}

    async def __call__(self, method, path, headers, body):
        request = json.loads(body)
        self.seen.append(request)
        answer = {"id": "resp_1", "object": "response", "status": "completed", "store": False, "usage": USAGE}
        encrypted = [each["encrypted_content"] for each in request["input"] if "encrypted_content" in each]
        foreign = [each for each in encrypted if not each.startswith(self.name)]
        status = 500 if self.down or self.down_without and not encrypted else 400 if foreign else 200
        blocks = (
            self._events(answer)
            if request.get("stream") and status == 200
            else [json.dumps(self.refusal if status != 200 else {**answer, "output": [self._item("whole")]}).encode()]
        )

        async def out():
            for each in blocks:
                yield each

        return status, SSE if request.get("stream") and status == 200 else {"content-type": "application/json"}, out()

    def _item(self, which):
        return {"type": self.kind, "id": "rs_1", "summary": [], "encrypted_content": f"{self.name} {which}"}

    def _events(self, answer):
        """As the live API: the encrypted content differs between the item's own event and the last event, and both are
        valid."""
        events = [
            {"type": "response.created", "response": {**answer, "status": "in_progress", "output": []}},
            {"type": "response.output_item.added", "output_index": 0, "item": self._item("begun")},
            {"type": "response.output_item.done", "output_index": 0, "item": self._item("done")},
            {"type": "response.completed", "response": {**answer, "output": [self._item("completed")]}},
        ]
        return [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in events]


def two_services(tmp_path, model="acme/one", can="signatures_of: b", settings=""):
    a, b = Service("a"), Service("b")
    providers = {
        "a": PROVIDER.format(name="a", priority=0, can="", model="acme/one"),
        "b": PROVIDER.format(name="b", priority=1, can=can, model=model),
    }
    return a, b, inprocess(tmp_path, providers=providers, apps={"a": a, "b": b}, settings=settings)


def history(*encrypted, kind="reasoning"):
    return [
        {"role": "user", "content": "hi"},
        *({"type": kind, "summary": [], "encrypted_content": each} for each in encrypted),
        {"role": "user", "content": "go on"},
    ]


@pytest.mark.parametrize(
    ("stream", "forms"), [(False, ["whole"]), (True, ["done", "completed"])], ids=["whole", "streamed"]
)
async def test_a_failover_drops_reasoning_of_the_other_service_and_keeps_its_own(tmp_path, stream, forms):
    a, b, gateway = two_services(tmp_path)
    async with gateway as here:
        ask = {**ASK, "stream": stream}
        assert (await here.post("/v1/responses", {**ask, "input": history()})).status_code == 200
        a.down = True
        for form in forms:
            moved = await here.post("/v1/responses", {**ask, "input": history(f"a {form}")})
            assert (moved.status_code, moved.headers["x-tollgate-dropped"]) == (200, LOST)
            assert b.seen[-1]["input"] == history()
        both = history(f"a {forms[0]}", f"b {forms[0]}", "b before")
        mixed = await here.post("/v1/responses", {**ask, "input": both})
        assert mixed.headers["x-tollgate-dropped"] == LOST
        assert b.seen[-1]["input"] == history(f"b {forms[0]}", "b before"), "content of unknown origin is passed"


async def test_reasoning_is_not_sent_to_another_service_and_returns_unchanged_to_its_own(tmp_path):
    a, _, gateway = two_services(tmp_path, model="acme/two_services")
    async with gateway as here:
        await here.post("/v1/responses", {**ASK, "input": history()})
        moved = await here.post("/v1/responses", {**ASK, "model": "acme/two_services", "input": history("a whole")})
        assert (moved.status_code, moved.headers["x-tollgate-dropped"]) == (200, LOST)
        again = await here.post("/v1/responses", {**ASK, "input": history("a whole")})
        assert again.status_code == 200 and "x-tollgate-dropped" not in again.headers
        assert a.seen[-1]["input"] == history("a whole")


async def test_services_that_share_their_keys_receive_each_others_reasoning(tmp_path):
    a, b, gateway = two_services(tmp_path, can="signatures_of: ''")
    async with gateway as here:
        await here.post("/v1/responses", {**ASK, "input": history()})
        a.down = True
        await here.post("/v1/responses", {**ASK, "input": history("a whole")})
        assert b.seen[0]["input"] == history("a whole")


@pytest.mark.parametrize("kind", ["compaction", "context_compaction"])
async def test_a_compacted_history_is_sent_only_to_providers_that_can_read_it(tmp_path, kind):
    a, b, gateway = two_services(tmp_path)
    a.kind = kind
    async with gateway as here:
        await here.post("/v1/responses", {**ASK, "input": history()})
        past = history("a whole", kind=kind)
        a.down = True
        assert (await here.post("/v1/responses", {**ASK, "input": past})).status_code == 500 and not b.seen
    a, b, gateway = two_services(tmp_path / "other", model="acme/two_services")
    a.kind = kind
    async with gateway as here:
        await here.post("/v1/responses", {**ASK, "input": history()})
        refused = await here.post("/v1/responses", {**ASK, "model": "acme/two_services", "input": past})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input") and not b.seen
        assert "compaction item that no provider of acme/two_services can read" in refused.json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("alone", "code"),
    [(False, True), (True, True), (True, False)],
    ids=["two_services services", "one service", "Grok's error"],
)
async def test_reasoning_from_elsewhere_is_dropped_after_the_provider_rejects_it(tmp_path, stream, alone, code):
    a, b, gateway = two_services(tmp_path, can="" if alone else "signatures_of: b")
    if not code:
        a.refusal = {"code": "invalid-argument", "error": "Could not decrypt the provided encrypted_content. Ensure"}
    async with gateway as here:
        ask = {**ASK, "stream": stream, "input": history("z before", "a before")}
        answered = await here.post("/v1/responses", ask)
        assert (answered.status_code, answered.headers["x-tollgate-dropped"]) == (200, LOST)
        assert [each["input"] for each in a.seen] == [ask["input"], history()] and not b.seen
        assert (answered.headers["x-tollgate-attempts"], answered.headers["x-tollgate-provider"]) == ("2", "a")
        [row] = (await rows_by_id(here, tmp_path)).values()
        [earlier] = json.loads(row["earlier_attempts"])
        assert (row["outcome"], earlier["provider"], earlier["error"]) == ("ok", "a", "upstream_rejected")


async def test_a_route_that_rejects_encrypted_content_is_called_at_most_twice(tmp_path):
    a, b, gateway = two_services(tmp_path)
    async with gateway as here:
        past = history("z before", kind="compaction")
        refused = await here.post("/v1/responses", {**ASK, "input": past})
        assert refused.status_code == 400 and len(a.seen) == 1, "a compacted history cannot be dropped"
        both = [*history("z reasoning"), *past]
        refused = await here.post("/v1/responses", {**ASK, "input": both})
        assert refused.status_code == 400 and [each["input"] for each in a.seen[1:]] == [both, [*history(), *past]]
        a.down_without = True
        answered = await here.post("/v1/responses", {**ASK, "input": history("z before")})
        assert answered.status_code == 200 and [each["input"] for each in b.seen] == [history()]
        assert answered.headers["x-tollgate-attempts"] == "3"


async def test_the_second_request_without_reasoning_counts_as_an_attempt(tmp_path):
    a, b, gateway = two_services(tmp_path, settings="retry: {attempts: 2}\n")
    async with gateway as here:
        a.down_without = True
        answered = await here.post("/v1/responses", {**ASK, "input": history("z before")})
        assert (answered.status_code, len(a.seen), len(b.seen)) == (500, 2, 0)
