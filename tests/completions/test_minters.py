"""What one service encrypted is not sent to another of the same format: reasoning stays behind and is named, a
compacted past goes to those who can read it."""

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
    """An upstream that encrypts its reasoning, and answers 400 to what others encrypted."""

    def __init__(self, name: str) -> None:
        self.name, self.seen, self.down, self.kind = name, [], False, "reasoning"
        self.down_without = False
        self.refusal = {"error": {"code": "invalid_encrypted_content", "message": "could not be verified"}}

    async def __call__(self, method, path, headers, body):
        asked = json.loads(body)
        self.seen.append(asked)
        answer = {"id": "resp_1", "object": "response", "status": "completed", "store": False, "usage": USAGE}
        carried = [each["encrypted_content"] for each in asked["input"] if "encrypted_content" in each]
        foreign = [each for each in carried if not each.startswith(self.name)]
        status = 500 if self.down or self.down_without and not carried else 400 if foreign else 200
        said = (
            self._events(answer)
            if asked.get("stream") and status == 200
            else [json.dumps(self.refusal if status != 200 else {**answer, "output": [self._item("whole")]}).encode()]
        )

        async def out():
            for each in said:
                yield each

        return status, SSE if asked.get("stream") and status == 200 else {"content-type": "application/json"}, out()

    def _item(self, which):
        return {"type": self.kind, "id": "rs_1", "summary": [], "encrypted_content": f"{self.name} {which}"}

    def _events(self, answer):
        """As the live API: the item's own event and the last one say it in different words, and both are valid."""
        events = [
            {"type": "response.created", "response": {**answer, "status": "in_progress", "output": []}},
            {"type": "response.output_item.added", "output_index": 0, "item": self._item("begun")},
            {"type": "response.output_item.done", "output_index": 0, "item": self._item("done")},
            {"type": "response.completed", "response": {**answer, "output": [self._item("completed")]}},
        ]
        return [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in events]


def two(tmp_path, model="acme/one", can="signatures_of: b", settings=""):
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
async def test_a_failover_leaves_behind_what_the_other_service_encrypted_and_keeps_its_own(tmp_path, stream, forms):
    a, b, gateway = two(tmp_path)
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
        assert b.seen[-1]["input"] == history(f"b {forms[0]}", "b before"), "what nobody got here passes"


async def test_another_model_of_another_service_is_not_sent_it_and_the_same_service_gets_its_bytes(tmp_path):
    a, _, gateway = two(tmp_path, model="acme/two")
    async with gateway as here:
        await here.post("/v1/responses", {**ASK, "input": history()})
        moved = await here.post("/v1/responses", {**ASK, "model": "acme/two", "input": history("a whole")})
        assert (moved.status_code, moved.headers["x-tollgate-dropped"]) == (200, LOST)
        again = await here.post("/v1/responses", {**ASK, "input": history("a whole")})
        assert again.status_code == 200 and "x-tollgate-dropped" not in again.headers
        assert a.seen[-1]["input"] == history("a whole")


async def test_those_who_share_their_keys_are_sent_it(tmp_path):
    a, b, gateway = two(tmp_path, can="signatures_of: ''")
    async with gateway as here:
        await here.post("/v1/responses", {**ASK, "input": history()})
        a.down = True
        await here.post("/v1/responses", {**ASK, "input": history("a whole")})
        assert b.seen[0]["input"] == history("a whole")


async def test_a_compacted_past_goes_to_who_can_read_it_and_is_refused_where_nobody_can(tmp_path):
    a, b, gateway = two(tmp_path)
    a.kind = "compaction"
    async with gateway as here:
        await here.post("/v1/responses", {**ASK, "input": history()})
        past = history("a whole", kind="compaction")
        a.down = True
        assert (await here.post("/v1/responses", {**ASK, "input": past})).status_code == 500 and not b.seen
    a, b, gateway = two(tmp_path / "other", model="acme/two")
    a.kind = "compaction"
    async with gateway as here:
        await here.post("/v1/responses", {**ASK, "input": history()})
        refused = await here.post("/v1/responses", {**ASK, "model": "acme/two", "input": past})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input") and not b.seen
        assert "compaction item that no provider of acme/two can read" in refused.json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("alone", "code"), [(False, True), (True, True), (True, False)], ids=["two services", "one service", "Grok's words"]
)
async def test_what_a_client_had_elsewhere_is_left_out_once_it_cannot_be_read(tmp_path, stream, alone, code):
    a, b, gateway = two(tmp_path, can="" if alone else "signatures_of: b")
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


async def test_a_route_that_still_cannot_read_it_is_asked_twice_at_most_and_the_next_ones_get_their_turn(tmp_path):
    a, b, gateway = two(tmp_path)
    async with gateway as here:
        past = history("z before", kind="compaction")
        refused = await here.post("/v1/responses", {**ASK, "input": past})
        assert refused.status_code == 400 and len(a.seen) == 1, "a past cannot be left out"
        both = [*history("z thought"), *past]
        refused = await here.post("/v1/responses", {**ASK, "input": both})
        assert refused.status_code == 400 and [each["input"] for each in a.seen[1:]] == [both, [*history(), *past]]
        a.down_without = True
        answered = await here.post("/v1/responses", {**ASK, "input": history("z before")})
        assert answered.status_code == 200 and [each["input"] for each in b.seen] == [history()]
        assert answered.headers["x-tollgate-attempts"] == "3"


async def test_a_second_sending_counts_as_one_of_the_attempts_there_may_be(tmp_path):
    a, b, gateway = two(tmp_path, settings="retry: {attempts: 2}\n")
    async with gateway as here:
        a.down_without = True
        answered = await here.post("/v1/responses", {**ASK, "input": history("z before")})
        assert (answered.status_code, len(a.seen), len(b.seen)) == (500, 2, 0)
