"""SPEC, resources: every field of the catalog and of the image model list, with its type, and who sees which model."""

from __future__ import annotations

import json
from typing import Any

import pytest
import pytest_asyncio

from conformance.shapes import shape
from support.inprocess import inprocess
from support.places import SANDBOX_IMAGES
from support.usage_files import rows_by_id

pytestmark = pytest.mark.asyncio(loop_scope="module")

ACME = """
provider: acme
url: app://sandbox/v1
speaks: {chat: /chat/completions, embeddings: /embeddings}
models:
  acme/priced:
    upstream: echo
    aliases: [priced]
    name: Acme Priced
    description: "**bold** text"
    created: 1700000000
    context: 200000
    hugging_face_id: acme/priced-hf
    instruct_type: chatml
    tokenizer: GPT
    modalities: {input: [text, image], output: [text]}
    parameters: [temperature, tools]
    price:
      prompt: "0.300"
      completion: "4.50"
      input_cache_read: "0.0300"
      input_cache_write: ""
      request: "0.001"
      image: "0.0005"
      web_search: "0.01"
      internal_reasoning: "0"
      unit: 1000000
      currency: CNY
      volumes: [{min_prompt_tokens: 128000, prompt: "0.60", completion: "9.00"}]
  acme/bare: {upstream: echo, context: 1000}
  acme/embed: {upstream: embed, type: embedding, context: 8192, dimensions: [256, 1024], max_dimension: 1024, price: {prompt: "0.02", unit: 1000000}}
  acme/embed-fixed: {upstream: embed, type: embedding, context: 8192}
  acme/hidden: {upstream: echo, context: 1000, public: false}
"""  # noqa: E501
TEXT_OR_NONE = (str, type(None))
MODEL: dict[str, Any] = {
    "id": str,
    "canonical_slug": str,
    "hugging_face_id": TEXT_OR_NONE,
    "name": str,
    "type": str,
    "created": int,
    "description": str,
    "context_length": int,
    "architecture": {
        "modality": str,
        "input_modalities": [str],
        "output_modalities": [str],
        "tokenizer": str,
        "instruct_type": TEXT_OR_NONE,
    },
    "pricing": {
        "prompt": str,
        "completion": str,
        "input_cache_read": str,
        "input_cache_write": str,
        "request": str,
        "image": str,
        "web_search": str,
        "internal_reasoning": str,
        "unit": int,
        "currency": str,
        "volumes": [dict],
    },
    "supported_parameters": [str],
    "model_provider": str,
    "object": str,
    "owned_by": str,  # of the chat API: its typed clients require them
    "display_name": str,
    "created_at": str,  # of the messages API, as the limits
    "max_input_tokens": (int, type(None)),
    "max_tokens": (int, type(None)),
}
EMBEDDING = MODEL | {"dimensions": [int], "max_dimension": int}
IMAGE = {
    "id": str,
    "name": str,
    "model_provider": str,
    "description": str,
    "tags": [str],
    "pricing": {"price": (int, float), "currency": str, "unit": int},
    "input_schema": dict,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory):
    async with inprocess(
        tmp_path_factory.mktemp("catalog"), providers={"acme": ACME, "sandbox-images": SANDBOX_IMAGES}
    ) as opened:
        yield opened


async def test_the_catalog_has_every_field_with_its_type_sorted_by_id(here):
    body = (await here.get("/v1/models")).json()
    assert list(body) == ["object", "data"] and body["object"] == "list"
    ids = [model["id"] for model in body["data"]]
    assert ids == sorted(ids) and "acme/priced" in ids and "sandbox/draw" not in ids
    for model in body["data"]:
        wanted = dict(EMBEDDING if model["type"] == "embedding" else MODEL)
        if model["id"] == "acme/embed-fixed":
            del wanted["max_dimension"]  # none is configured
        assert shape(model, wanted, model["id"]) == []


async def test_a_models_facts_are_those_of_its_file_and_prices_keep_their_digits(here):
    model = next(model for model in (await here.get("/v1/models")).json()["data"] if model["id"] == "acme/priced")
    assert model == {
        "id": "acme/priced",
        "object": "model",
        "canonical_slug": "acme/priced",
        "hugging_face_id": "acme/priced-hf",
        "name": "Acme Priced",
        "display_name": "Acme Priced",
        "type": "chat",
        "created": 1700000000,
        "created_at": "2023-11-14T22:13:20Z",
        "description": "**bold** text",
        "context_length": 200000,
        "max_input_tokens": 200000,
        "max_tokens": None,
        "architecture": {
            "modality": "text+image->text",
            "input_modalities": ["text", "image"],
            "output_modalities": ["text"],
            "tokenizer": "GPT",
            "instruct_type": "chatml",
        },
        "pricing": {
            "prompt": "0.300",
            "completion": "4.50",
            "input_cache_read": "0.0300",
            "input_cache_write": "",
            "request": "0.001",
            "image": "0.0005",
            "web_search": "0.01",
            "internal_reasoning": "0",
            "unit": 1000000,
            "currency": "CNY",
            "volumes": [{"min_prompt_tokens": 128000, "prompt": "0.60", "completion": "9.00"}],
        },
        "supported_parameters": ["temperature", "tools"],
        "model_provider": "acme",
        "owned_by": "acme",
    }


async def test_fields_missing_in_a_file_have_the_defaults_of_the_specification(here):
    model = next(model for model in (await here.get("/v1/models")).json()["data"] if model["id"] == "acme/bare")
    assert (
        model["created"],
        model["supported_parameters"],
        model["pricing"]["unit"],
        model["pricing"]["currency"],
        model["pricing"]["volumes"],
    ) == (0, [], 1, "USD", [])
    assert model["name"] and model["architecture"]["modality"] == "text->text"


@pytest.mark.parametrize(
    "path", ["/models", "/v1/models/", "/v1/v1/models", "//v1/models", "/v1//models", "/v1/models?limit=1"]
)
async def test_other_spellings_give_the_same_catalog(here, path):
    first, second = await here.get("/v1/models", key=None), await here.get(path, key=None)
    assert (second.status_code, second.content) == (200, first.content)
    assert second.headers["content-type"] == "application/json"


async def test_without_a_key_the_catalog_has_public_models_only_and_a_key_sees_its_own(here):
    anonymous = {model["id"] for model in (await here.get("/v1/models", key=None)).json()["data"]}
    everything = {model["id"] for model in (await here.get("/v1/models")).json()["data"]}
    assert everything - anonymous == {"acme/hidden"}
    _, narrow = await here.services.ledger.create_key("default", allowed_models=("acme/*", "sandbox/paint"))
    seen = {model["id"] for model in (await here.get("/v1/models", key=narrow)).json()["data"]}
    assert seen == {"acme/priced", "acme/bare", "acme/embed", "acme/embed-fixed", "acme/hidden"}
    assert [model["id"] for model in (await here.get("/v1/images/models", key=narrow)).json()["data"]] == [
        "sandbox/paint"
    ]


@pytest.mark.parametrize("path", ["/v1/models", "/models", "/v1/images/models", "/v1/models/acme/priced"])
async def test_no_key_is_required_but_a_wrong_one_is_rejected(here, path):
    assert (await here.get(path, key=None)).status_code == 200
    wrong = await here.get(path, key="sk-tg-" + "a" * 49)
    assert wrong.status_code == 401 and "a" * 8 not in wrong.text


@pytest.mark.parametrize("path", ["/v1/models", "/v1/images/models"])
@pytest.mark.parametrize("written", ["TAG", "W/TAG", '"old", W/TAG', "*"])  # nginx makes the tag weak if it compresses
async def test_the_catalog_supports_conditional_requests(here, written, path):
    first = await here.get(path, key=None)
    tag = written.replace("TAG", first.headers["etag"])
    again = await here.http.get(path, headers={"if-none-match": tag})
    assert (again.status_code, again.content) == (304, b"")
    assert (await here.http.get(path, headers={"if-none-match": tag[:-2] or '"x"'})).status_code == 200
    assert "authorization" in first.headers["vary"]


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [("gzip, deflate", True), ("br;q=1.0, GZIP;q=0.5", True), ("gzip;q=0", False), ("identity", False), ("", False)],
)
@pytest.mark.parametrize("path", ["/v1/models", "/v1/images/models"])
async def test_the_catalog_is_compressed_for_clients_that_accept_gzip(here, accepted, packed, path):
    plain = await here.http.get(path, headers={"accept-encoding": "identity"})
    compressed = await here.http.get(path, headers={"accept-encoding": accepted})
    assert compressed.headers.get("content-encoding") == ("gzip" if packed else None)
    assert compressed.json() == plain.json()  # the client has decompressed it
    assert "accept-encoding" in compressed.headers["vary"]
    assert (compressed.headers["etag"] != plain.headers["etag"]) == packed
    again = await here.http.get(
        path, headers={"accept-encoding": accepted, "if-none-match": compressed.headers["etag"]}
    )
    assert again.status_code == 304


@pytest.mark.parametrize("path", ["/v1/models", "/models", "/v1/images/models", "/"])
async def test_head_is_get_without_the_body(here, path):
    head, get = await here.http.head(path), await here.http.get(path)
    assert (head.status_code, head.content, head.headers["content-type"]) == (
        get.status_code,
        b"",
        get.headers["content-type"],
    )
    assert head.headers["content-length"] == get.headers["content-length"]


async def test_the_image_model_list_is_an_envelope_of_descriptors(here):
    reply = await here.get("/v1/images/models", key=None)
    body = reply.json()
    assert {**body, "data": 0} == {"success": True, "code": 200, "data": 0}
    assert [model["id"] for model in body["data"]] == ["sandbox/draw", "sandbox/paint"]
    for model in body["data"]:
        assert shape(model, IMAGE, model["id"]) == []
        for name, about in model["input_schema"]["properties"].items():
            assert isinstance(about["type"], str), name
    assert json.dumps(body["data"][0]["pricing"]) == '{"price": 0.01, "currency": "USD", "unit": 1}'


async def test_an_alias_reaches_its_model_and_the_row_has_the_canonical_id(here):
    for name in ("priced", "acme/priced"):
        assert (
            await here.post("/v1/chat/completions", {"model": name, "messages": [{"role": "user", "content": "hi"}]})
        ).status_code == 200
    rows = list((await rows_by_id(here, here.services.runtime.current.gateway.store.directory.parent)).values())
    assert [(row["model"], row["asked_model"]) for row in rows] == [
        ("acme/priced", "priced"),
        ("acme/priced", "acme/priced"),
    ]
    assert (await here.get("/v1/models/priced")).json()["id"] == "acme/priced"
