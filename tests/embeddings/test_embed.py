"""POST /v1/embeddings through a whole gateway; providers are in-process apps."""

import array
import asyncio
import base64
import contextlib
import json
from decimal import Decimal
from operator import itemgetter

import pytest

from support.image_provider import Provider
from support.inprocess import Leaving, inprocess, write_unused_mappings
from support.stores import available_to
from support.usage_files import rows
from support.waiting import SECONDS
from tollgate.embeddings.attempt import count_items

ACME = """
provider: acme
url: app://acme/v1
speaks: {embeddings: {path: /embeddings, batch: 4}}
models:
  acme/embed: {upstream: embed-1, type: embedding, encoding: cl100k_base, max_inputs: 100, price: {prompt: "1", unit: 1000000}}
"""  # noqa: E501
BEMO = """
provider: bemo
url: app://bemo/v2
speaks: {embeddings: {path: /embed, mapping: cohere-embeddings, batch: 3}}
priority: 5
models:
  acme/embed: {upstream: embed-b, type: embedding, price: {prompt: "1", unit: 1000000}}
"""
ONE = {"model": "acme/embed", "input": "Hello"}


def vector(text, size=4):
    return [float(len(text)), *[0.25] * (size - 1)]


def answering(*, usage=True, base64_wanted=None, fail=None, shuffle=False):
    """An embeddings server like OpenAI's; `fail(body)` may return (status, body)."""

    def answer(method, path, body):
        if fail and (found := fail(body)):
            return found
        inputs = (
            body["input"]
            if isinstance(body["input"], list) and not isinstance(body["input"][0], int)
            else [body["input"]]
        )
        packed = body.get("encoding_format") == "base64" if base64_wanted is None else base64_wanted
        data = []
        for index, text in enumerate(inputs):
            numbers = vector(text)
            data.append(
                {
                    "object": "embedding",
                    "index": index,
                    "embedding": base64.b64encode(array.array("f", numbers).tobytes()).decode() if packed else numbers,
                }
            )
        if shuffle:
            data.reverse()
        content = {"object": "list", "data": data, "model": "embed-1", "id": "emb_1"}
        if usage:
            content["usage"] = {"prompt_tokens": 2 * len(inputs), "total_tokens": 2 * len(inputs)}
        return 200, content

    return answer


@contextlib.asynccontextmanager
async def gateway(folder, *, acme=None, bemo=None, **options):
    write_unused_mappings(folder, but="embeddings")
    providers = {"acme": ACME, **({"bemo": BEMO} if bemo else {}), **options.pop("providers", {})}
    apps = {
        "acme": Provider(acme or answering()),
        **({"bemo": Provider(bemo)} if bemo else {}),
        **options.pop("apps", {}),
    }
    async with inprocess(folder, providers=providers, apps=apps, **options) as here:
        here.apps = apps
        yield here


async def test_a_native_float_answer_passes_byte_for_byte(tmp_path):
    answer = (
        b'{ "object":"list", "own": 1, "data":[{"object":"embedding","index":0,"embedding":[0.10, -1e-5]}],'
        b'"model":"embed-1","usage":{"prompt_tokens":2,"total_tokens":2, "x":null} }'
    )
    async with gateway(tmp_path, acme=lambda *_: (200, answer)) as here:
        body = b'{"model": "acme/embed","input":"Hello", "own_field": 1.50}'
        reply = await here.post("/v1/embeddings", body)
        assert (reply.status_code, reply.content) == (200, answer)
        assert here.apps["acme"].bodies == [b'{"model": "embed-1","input":"Hello", "own_field": 1.50}']
        assert here.balance() == Decimal("99.999998")
        assert reply.headers["x-tollgate-provider"] == "acme"


async def test_a_request_that_no_edit_changes_passes_byte_for_byte(tmp_path):
    """OpenAI's file has an edit for models with one size of vectors, and all requests were written anew."""
    edited = ACME.replace("models:", "request: [{rename: {size: dimensions}}]\nmodels:")
    async with gateway(tmp_path, providers={"acme": edited}) as here:
        await here.post("/v1/embeddings", b'{"model": "acme/embed","input":"Hello", "own_field": 1.50}')
        await here.post("/v1/embeddings", b'{"model": "acme/embed","input":"Hello", "size": 4}')
        assert here.apps["acme"].bodies == [
            b'{"model": "embed-1","input":"Hello", "own_field": 1.50}',
            b'{"model":"embed-1","input":"Hello","dimensions":4}',
        ]


async def test_base64_is_requested_upstream_and_floats_are_returned(tmp_path):
    async with gateway(tmp_path) as here:
        reply = await here.post("/v1/embeddings", {**ONE, "encoding_format": "base64"})
        assert here.apps["acme"].calls[0][2]["encoding_format"] == "base64"
        assert reply.json() == {
            "object": "list",
            "data": [{"object": "embedding", "index": 0, "embedding": [5.0, 0.25, 0.25, 0.25]}],
            "id": "emb_1",
            "model": "embed-1",
            "usage": {"prompt_tokens": 2, "total_tokens": 2},
        }


@pytest.mark.parametrize("upstream", [True, False], ids=["from base64", "from floats"])
@pytest.mark.parametrize("inputs", [["Hello"], ["a", "bb", "ccc", "dddd", "eeeee"]], ids=["one call", "several calls"])
@pytest.mark.parametrize(
    "client",
    [
        {"x_stainless_lang": "js"},
        {"user_agent": "OpenAI/2.1.0 (.NET 8.0.10; Unix)"},
        {"user_agent": "Semantic-Kernel OpenAI/2.7.0 (.NET Framework 4.8; Windows)"},
    ],
    ids=["JavaScript", ".NET", ".NET behind another name"],
)
async def test_clients_that_always_decode_base64_receive_it(tmp_path, upstream, inputs, client):
    """openai 6.49 for JavaScript requests base64 by default and silently decodes float arrays to zeros; the SDK for
    .NET always requests it and raises on numbers."""
    async with gateway(tmp_path, acme=answering(base64_wanted=upstream)) as here:
        request = {**ONE, "input": inputs, "encoding_format": "base64"}
        reply = await here.post("/v1/embeddings", request, **client)
        found = [array.array("f", base64.b64decode(item["embedding"])).tolist() for item in reply.json()["data"]]
        assert found == [vector(text) for text in inputs]
        assert reply.json()["usage"] == {"prompt_tokens": 2 * len(inputs), "total_tokens": 2 * len(inputs)}
        floats = await here.post("/v1/embeddings", {**request, "encoding_format": "float"}, **client)
        assert [item["embedding"] for item in floats.json()["data"]] == found


@pytest.mark.parametrize("given", [[1, 2, 3], [[1, 2], [3]]], ids=["one", "many"])
async def test_token_arrays_go_to_providers_that_accept_them(tmp_path, given):
    async with gateway(tmp_path, bemo=lambda *_: (200, {})) as here:
        reply = await here.post("/v1/embeddings", {**ONE, "input": given})
        assert reply.status_code == 200
        assert here.apps["acme"].calls[0][2]["input"] == given


async def test_token_arrays_go_to_a_dialect_that_says_that_it_takes_them(tmp_path):
    (tmp_path / "mappings").mkdir()
    (tmp_path / "mappings" / "bare.yaml").write_text(
        "mapping: bare\nhub: embeddings\nrequest: {from_hub: {ids: $.inputs}}\nresponse: {to_hub: {vectors: $}}\n"
    )
    cemo = BEMO.replace("bemo", "cemo").replace("mapping: cohere-embeddings", "mapping: bare")
    takes = cemo.replace("models:", "can: {token_ids: true}\nmodels:")
    acme = ACME.replace("models:", "can: {token_ids: false}\nmodels:")
    answer = Provider(lambda method, path, body: (200, [[float(len(ids))] for ids in body["ids"]]))
    async with gateway(tmp_path, providers={"acme": acme, "cemo": takes}, apps={"cemo": answer}) as here:
        reply = (await here.post("/v1/embeddings", {**ONE, "input": [[1, 2], [3]]})).json()
        assert [item["embedding"] for item in reply["data"]] == [[2.0], [1.0]] and reply["usage"]["prompt_tokens"] == 3


async def test_token_arrays_are_counted_by_their_length():
    assert await count_items([[1, 2], [3]], None) == 3
    assert await count_items([[1, 2], "hi"], None) == 3


async def test_token_arrays_that_no_provider_accepts_are_rejected(tmp_path):
    async with gateway(
        tmp_path, providers={"acme": ACME.replace("models:", "can: {token_ids: false}\nmodels:")}
    ) as here:
        reply = await here.post("/v1/embeddings", {**ONE, "input": [1, 2]})
        assert reply.json() == {
            "success": False,
            "code": 400,
            "message": "failed to bind request: input holds token ids, which no provider of acme/embed takes; send "
            "text",
        }


@pytest.mark.parametrize("shuffle", [False, True], ids=["in order", "shuffled"])
async def test_a_large_batch_is_split_and_joined_in_order(tmp_path, shuffle):
    texts = ["x" * n for n in range(1, 11)]
    async with gateway(tmp_path, acme=answering(shuffle=shuffle)) as here:
        reply = await here.post("/v1/embeddings", {**ONE, "input": texts, "user": "u"})
        found = reply.json()
        assert [item["embedding"][0] for item in found["data"]] == [float(n) for n in range(1, 11)]
        assert [item["index"] for item in found["data"]] == list(range(10))
        assert found["usage"] == {"prompt_tokens": 20, "total_tokens": 20}
        assert sorted(len(call[2]["input"]) for call in here.apps["acme"].calls) == [2, 4, 4]
        assert all(call[2]["user"] == "u" for call in here.apps["acme"].calls)
        assert here.balance() == Decimal("99.99998")


async def test_one_failed_part_fails_the_whole_request_and_costs_nothing(tmp_path):
    def fail(body):
        return (500, {"error": {"message": "boom"}}) if "bad" in body["input"] else None

    async with gateway(tmp_path, acme=answering(fail=fail)) as here:
        reply = await here.post("/v1/embeddings", {**ONE, "input": ["a"] * 8 + ["bad"]})
        assert reply.json() == {"success": False, "code": 500, "message": "internal error, please try again later"}
        assert here.balance() == Decimal(100)


async def test_a_client_that_leaves_pays_for_the_parts_in_flight(tmp_path):
    async def answer(method, path, body):
        await asyncio.sleep(600)

    async with gateway(tmp_path, acme=answer) as here:
        client = Leaving(
            {**ONE, "input": ["x"] * 40}, here.key, reached=lambda: len(here.apps["acme"].calls) >= 8, seconds=0.1
        )
        client.scope["path"] = "/v1/embeddings"
        await asyncio.wait_for(here.opened.app(client.scope, client.receive, client.send), SECONDS)
        (row,) = await rows(here, tmp_path)
        assert len(here.apps["acme"].calls) == 8
        assert (row["outcome"], row["status"], row["input_tokens"], row["estimated"]) == ("client_gone", 499, 32, True)
        assert await available_to(here.services.ledger, "default") == here.balance() == Decimal("99.999968")


async def test_the_next_route_answers_in_its_own_format(tmp_path):
    def cohere(method, path, body):
        return 200, {
            "embeddings": {"float": [vector(text) for text in body["texts"]]},
            "meta": {"billed_units": {"input_tokens": 3 * len(body["texts"])}},
        }

    async with gateway(tmp_path, acme=lambda *_: (503, {"error": {"message": "busy"}}), bemo=cohere) as here:
        reply = await here.post(
            "/v1/embeddings",
            {**ONE, "input": ["a", "bb", "ccc", "dddd"], "dimensions": 4, "user": "u", "input_type": "search_query"},
        )
        assert [item["embedding"][0] for item in reply.json()["data"]] == [1.0, 2.0, 3.0, 4.0]
        assert reply.json()["usage"] == {"prompt_tokens": 12, "total_tokens": 12}
        assert reply.json()["model"] == "embed-b"
        assert here.apps["bemo"].calls[0] == (
            "POST",
            "/v2/embed",
            {
                "model": "embed-b",
                "input_type": "search_query",
                "embedding_types": ["float"],
                "texts": ["a", "bb", "ccc"],
                "output_dimension": 4,
            },
        )
        assert (reply.headers["x-tollgate-attempts"], reply.headers["x-tollgate-provider"]) == ("2", "bemo")
        assert "user" in reply.headers["x-tollgate-dropped"]
        assert "input_type" not in reply.headers["x-tollgate-dropped"]


async def test_an_edit_that_drops_encoding_format_loses_nothing(tmp_path):
    """Vectors are decoded here, and the SDKs send `encoding_format` with every request."""
    dropping = ACME.replace("batch: 4", "batch: 4, request: [{drop: [encoding_format, user]}]")
    asked = {**ONE, "encoding_format": "base64"}
    async with gateway(tmp_path, providers={"acme": dropping}) as here:
        reply = await here.post("/v1/embeddings", asked, x_tollgate_strict="true")
        assert (reply.status_code, reply.json()["data"][0]["embedding"]) == (200, vector("Hello"))
        assert "encoding_format" not in here.apps["acme"].calls[0][2]
        refused = await here.post("/v1/embeddings", {**asked, "user": "u"}, x_tollgate_strict="true")
        assert "strict mode: this model cannot take user" in refused.text
        reply = await here.post("/v1/embeddings", {**asked, "user": "u"})
        assert reply.headers["x-tollgate-dropped"] == "user"


@pytest.mark.parametrize("template", ["{inputs: $.inputs}", "$.inputs"])
async def test_a_request_may_be_a_bare_list_of_texts_and_an_answer_one_of_vectors(tmp_path, template):
    (tmp_path / "mappings").mkdir()
    (tmp_path / "mappings" / "bare.yaml").write_text(
        f"mapping: bare\nhub: embeddings\nrequest: {{from_hub: {template}}}\nresponse: {{to_hub: {{vectors: $}}}}\n"
    )
    cemo = BEMO.replace("bemo", "cemo").replace("mapping: cohere-embeddings", "mapping: bare")
    texts = itemgetter("inputs") if ":" in template else list
    answer = Provider(lambda method, path, body: (200, [vector(text) for text in texts(body)]))
    async with gateway(tmp_path, acme=lambda *_: (500, {}), providers={"cemo": cemo}, apps={"cemo": answer}) as here:
        reply = (await here.post("/v1/embeddings", {**ONE, "input": ["a", "bb", "ccc", "dddd"]})).json()
        assert [item["embedding"] for item in reply["data"]] == [vector(text) for text in ("a", "bb", "ccc", "dddd")]
        assert reply["usage"] == {"prompt_tokens": 4, "total_tokens": 4}  # estimated, one token for each


async def test_a_refusal_in_the_mapping_of_an_answer_is_no_error_of_the_client(tmp_path):
    (tmp_path / "mappings").mkdir()
    (tmp_path / "mappings" / "shy.yaml").write_text(
        "mapping: shy\nhub: embeddings\nrequest: {from_hub: {inputs: $.inputs}}\nresponse:\n  to_hub:\n"
        "    $refuse: [{when: $.partial, say: a partial answer}]\n    vectors: $.rows\n"
    )
    cemo = BEMO.replace("bemo", "cemo").replace("mapping: cohere-embeddings", "mapping: shy")
    answer = Provider(lambda method, path, body: (200, {"partial": True, "rows": [vector(x) for x in body["inputs"]]}))
    async with gateway(tmp_path, acme=lambda *_: (500, {}), providers={"cemo": cemo}, apps={"cemo": answer}) as here:
        reply = await here.post("/v1/embeddings", ONE)
        assert (reply.status_code, reply.json()["data"][0]["embedding"]) == (200, vector("Hello"))


async def test_parts_cancelled_at_one_route_do_not_count_as_sent_to_the_next(tmp_path):
    (tmp_path / "mappings").mkdir()
    (tmp_path / "mappings" / "shy.yaml").write_text(
        "mapping: shy\nhub: embeddings\n"
        "request: {from_hub: {$refuse: [{when: $.user, say: no user}], inputs: $.inputs}}\n"
        "response: {to_hub: {vectors: $}}\n"
    )
    shy = BEMO.replace("bemo", "cemo").replace("mapping: cohere-embeddings", "mapping: shy").replace("5", "3")

    async def fails(method, path, body):
        if "bad" not in body["input"]:
            await asyncio.sleep(SECONDS)
        return 503, {}

    def last(method, path, body):
        return 200, {"embeddings": {"float": [vector(text) for text in body["texts"]]}}

    async with gateway(
        tmp_path, acme=fails, bemo=last, providers={"cemo": shy}, apps={"cemo": Provider(answering())}
    ) as here:
        reply = await here.post("/v1/embeddings", {**ONE, "input": ["bad"] * 4 + ["a"] * 5, "user": "u"})
        assert (reply.status_code, reply.headers.get("x-tollgate-provider")) == (200, "bemo")


async def test_missing_usage_is_estimated(tmp_path):
    async with gateway(tmp_path, acme=answering(usage=False)) as here:
        reply = await here.post("/v1/embeddings", {**ONE, "input": "The quick brown fox jumps over the lazy dog"})
        assert reply.json()["usage"] == {"prompt_tokens": 9, "total_tokens": 9}
        assert reply.json()["id"] == "emb_1"
        tokens = await here.post("/v1/embeddings", {**ONE, "input": [[1, 2], [3]]})
        assert tokens.json()["usage"] == {"prompt_tokens": 3, "total_tokens": 3}


async def test_an_impossible_token_count_is_replaced_by_an_estimate(tmp_path):
    answer = {
        "data": [{"index": 0, "embedding": [1.0]}],
        "model": "m",
        "usage": {"prompt_tokens": 10**9, "total_tokens": 10**9},
    }
    async with gateway(tmp_path, acme=lambda *_: (200, answer)) as here:
        reply = await here.post("/v1/embeddings", {**ONE, "input": "The quick brown fox jumps over the lazy dog"})
        assert reply.json()["usage"] == {"prompt_tokens": 9, "total_tokens": 9}


async def test_a_total_alone_is_reported_as_both_counts(tmp_path):
    answer = {"data": [{"index": 0, "embedding": [1.0]}], "model": "m", "usage": {"total_tokens": 7}}
    async with gateway(tmp_path, acme=lambda *_: (200, answer)) as here:
        assert (await here.post("/v1/embeddings", ONE)).json()["usage"] == {"total_tokens": 7, "prompt_tokens": 7}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "failed to bind request: the request body is not valid JSON"),
        ({"input": "a"}, "failed to bind request: model is required and must be text"),
        ({**ONE, "input": []}, "failed to bind request: input is an empty list"),
        (
            {**ONE, "encoding_format": "int8"},
            'failed to bind request: encoding_format is "int8", wanted float or base64',
        ),
        ({**ONE, "model": "acme/none"}, "failed to bind request: model not found: acme/none"),
        (
            {**ONE, "input": ["a"] * 101},
            "failed to bind request: input has 101 entries, the most for this model is 100",
        ),
    ],
)
async def test_an_invalid_request_is_a_400_that_costs_nothing(tmp_path, body, message):
    async with gateway(tmp_path) as here:
        reply = await here.post("/v1/embeddings", body)
        assert (reply.status_code, reply.json()["success"], reply.json()["code"]) == (400, False, 400)
        assert reply.json()["message"].startswith(message)
        assert here.apps["acme"].calls == []
        assert here.balance() == Decimal(100)


async def test_a_request_that_the_provider_rejects_is_a_400(tmp_path):
    fail = lambda body: (400, {"error": {"message": "-1 is less than the minimum of 1 - 'dimensions'"}})
    async with gateway(tmp_path, acme=answering(fail=fail), bemo=lambda *_: (200, {})) as here:
        reply = await here.post("/v1/embeddings", ONE)
        assert reply.json() == {
            "success": False,
            "code": 400,
            "message": "failed to bind request: -1 is less than the minimum of 1 - 'dimensions'",
        }
        assert here.apps["bemo"].calls == []


@pytest.mark.parametrize(
    "answer",
    [
        {"data": [{"embedding": "###"}], "usage": {"total_tokens": 1}},
        {"data": []},
        {"object": "list"},
        {"data": [{"embedding": None}]},
        [1],
        b"<html>",
        b'{"data":[{"embedding":[0.25,0.5',
    ],
    ids=["invalid base64", "too few", "no data", "no vector", "not an object", "HTML", "truncated"],
)
async def test_an_invalid_answer_is_a_500_that_costs_nothing(tmp_path, answer):
    async with gateway(tmp_path, acme=lambda *_: (200, answer)) as here:
        reply = await here.post("/v1/embeddings", ONE)
        assert reply.json() == {"success": False, "code": 500, "message": "internal error, please try again later"}
        assert here.balance() == Decimal(100)


async def test_an_answer_that_an_edit_fails_on_is_a_500_and_unreadable_usage_is_estimated(tmp_path):
    edited = ACME + "response: [{set: {n: '{{ $.data[0].index - 1 }}'}}]\nusage: {read: {input: '{{ $.model - 1 }}'}}\n"
    bad, good = ({"model": "m", "data": [{"index": at, "embedding": [0.5]}]} for at in ("first", 0))
    answers = {"ab": bad, "c": good}
    providers = {"acme": edited}
    async with gateway(tmp_path, acme=lambda _, __, body: (200, answers[body["input"]]), providers=providers) as here:
        assert (await here.post("/v1/embeddings", {**ONE, "input": "ab"})).status_code == 500
        assert here.balance() == Decimal(100)
        assert (await here.post("/v1/embeddings", {**ONE, "input": "c"})).json()["usage"]["total_tokens"] == 1


async def test_a_provider_s_own_usage_is_read_after_its_edits(tmp_path):
    edited = ACME + "response: [{set: {meter: $.own.in}}]\nusage: {read: {input: $.meter}}\n"
    answer = {"model": "m", "data": [{"index": 0, "embedding": [0.5]}], "own": {"in": 70}}
    async with gateway(tmp_path, acme=lambda *_: (200, answer), providers={"acme": edited}) as here:
        assert (await here.post("/v1/embeddings", ONE)).json()["usage"]["total_tokens"] == 70


async def test_a_native_answer_with_fewer_vectors_than_inputs_is_a_500(tmp_path):
    """SPEC: one embedding per entry. A client that pairs texts with vectors would pair the wrong ones."""
    few = {"object": "list", "data": [{"index": 0, "embedding": [0.25]}], "usage": {"prompt_tokens": 1}}
    async with gateway(tmp_path, acme=lambda *_: (200, few)) as here:
        assert (await here.post("/v1/embeddings", {**ONE, "input": ["a"]})).json()["data"] == few["data"]
        reply = await here.post("/v1/embeddings", {**ONE, "input": ["a", "b"]})
        assert reply.json() == {"success": False, "code": 500, "message": "internal error, please try again later"}


async def test_a_request_without_credits_is_a_403(tmp_path):
    async with gateway(tmp_path) as here:
        await here.services.ledger.grant("default", Decimal("-99.995"))
        reply = await here.post("/v1/embeddings", ONE)
        assert reply.json() == {"success": False, "code": 403, "message": "user quota exceeded"}


async def test_an_answer_whose_row_cannot_be_written_is_not_to_be_retried(tmp_path):
    from tollgate.errors import Unavailable

    async with gateway(tmp_path) as here:

        async def refuse(row, hold=None):
            raise Unavailable("disk full")

        here.services.ledger.record = refuse
        reply = await here.post("/v1/embeddings", ONE)
        assert reply.json() == {"success": False, "code": 500, "message": "internal error, please try again later"}
        assert reply.headers["x-should-retry"] == "false"


async def test_a_large_answer_is_sent_in_blocks(tmp_path):
    numbers = json.dumps([0.123456789] * 1536)
    answer = (
        '{"object":"list","data":['
        + ",".join(f'{{"object":"embedding","index":{n},"embedding":{numbers}}}' for n in range(90))
        + '],"model":"m","usage":{"prompt_tokens":90,"total_tokens":90}}'
    ).encode()
    wide = ACME.replace("batch: 4", "batch: 100")
    async with gateway(tmp_path, acme=lambda *_: (200, answer), providers={"acme": wide}) as here:
        reply = await here.post("/v1/embeddings", {**ONE, "input": ["a"] * 90})
        assert reply.content == answer
        assert reply.headers["content-type"] == "application/json"


@pytest.mark.parametrize("packed", [False, True], ids=["floats", "base64"])
async def test_a_part_of_a_split_batch_without_all_its_vectors_is_an_error(tmp_path, packed):
    whole = answering(base64_wanted=packed)

    def lacking(method, path, body):
        status, content = whole(method, path, body)
        return status, {**content, "data": content["data"][: 1 if len(body["input"]) == 2 else None]}

    async with gateway(tmp_path, acme=lacking) as here:
        assert (await here.post("/v1/embeddings", {**ONE, "input": ["a"] * 4})).status_code == 200
        before = here.balance()
        reply = await here.post("/v1/embeddings", {**ONE, "input": ["a"] * 6})
        assert (reply.status_code, reply.json()["message"]) == (500, "internal error, please try again later")
        assert here.balance() == before


async def test_a_large_decoded_answer_is_sent_in_blocks_and_in_order(tmp_path):
    """The text of 60 such vectors is larger than what is written at once."""
    wanted = [array.array("f", [n + 0.1] * 1536) for n in range(60)]
    data = [
        {"object": "embedding", "index": n, "embedding": base64.b64encode(vector.tobytes()).decode()}
        for n, vector in enumerate(wanted)
    ]
    answer = {"object": "list", "data": data, "model": "m", "usage": {"prompt_tokens": 60, "total_tokens": 60}}
    wide = ACME.replace("batch: 4", "batch: 100")
    async with gateway(tmp_path, acme=lambda *_: (200, answer), providers={"acme": wide}) as here:
        reply = await here.post("/v1/embeddings", {**ONE, "input": ["a"] * 60})
    assert len(reply.content) > 1024 * 1024 and reply.headers["content-type"] == "application/json"
    assert reply.json() == {
        **answer,
        "data": [{**item, "embedding": vector.tolist()} for item, vector in zip(data, wanted, strict=True)],
        "model": reply.json()["model"],
    }


async def test_the_sandbox_returns_embeddings_of_the_requested_size(tmp_path):
    async with gateway(tmp_path) as here:
        reply = await here.post("/v1/embeddings", {"model": "embed", "input": ["a", "b"], "dimensions": 256})
        assert [len(item["embedding"]) for item in reply.json()["data"]] == [256, 256]


WORDED = ACME.replace("speaks:", "usage: {words: $.input_type}\nspeaks:").replace(
    'price: {prompt: "1", unit: 1000000}',
    'price: {prompt: "1", unit: 1000000, volumes: [{word: document, prompt: "5"}], multipliers: {bulk: "0.5"}, '
    'service_tiers: {flex: {prompt: "0.25"}}}',
)


@pytest.mark.parametrize(
    ("fields", "edit", "millionths"),
    [
        pytest.param({}, "", "2", id="no word"),
        pytest.param({"input_type": "document"}, "", "10", id="a word with a price of its own"),
        pytest.param({"input_type": "bulk"}, "", "1", id="a word that is a factor"),
        pytest.param({"kind": "document"}, "request: [{rename: {kind: input_type}}]\n", "10", id="an edited word"),
        pytest.param({"service_tier": "flex"}, "", "0.5", id="a tier"),
        pytest.param({"service_tier": "flex"}, "request: [{drop: [service_tier]}]\n", "2", id="a dropped tier"),
    ],
)
async def test_words_and_the_tier_of_the_request_as_sent_select_prices(tmp_path, fields, edit, millionths):
    """Embeddings ignored `usage: words`, and had the price of a tier that an edit dropped."""
    acme = WORDED.replace("models:", f"{edit}models:")
    async with gateway(tmp_path, providers={"acme": acme}) as here:
        reply = await here.post("/v1/embeddings", {**ONE, **fields})
        assert Decimal(reply.headers["x-tollgate-cost"]) * 1000000 == Decimal(millionths)


async def test_a_tier_that_the_providers_format_lacks_is_not_billed(tmp_path):
    def answer(method, path, body):
        assert "service_tier" not in body
        return 200, {"embeddings": {"float": [[0.5]]}, "meta": {"billed_units": {"input_tokens": 2}}}

    bemo = BEMO.replace("unit: 1000000}", 'unit: 1000000, service_tiers: {flex: {prompt: "0.25"}}}')
    bemo = bemo.replace("acme/embed", "bemo/embed")
    async with gateway(tmp_path, bemo=answer, providers={"bemo": bemo}) as here:
        reply = await here.post("/v1/embeddings", {**ONE, "model": "bemo/embed", "service_tier": "flex"})
        assert Decimal(reply.headers["x-tollgate-cost"]) * 1000000 == 2
