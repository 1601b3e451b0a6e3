"""The image parts of providers/: every file compiles and its examples pass."""

import functools
import json
import re
from decimal import Decimal

import pytest

from support.places import ROOT
from tollgate.config.included import read_whole
from tollgate.config.load import plain
from tollgate.config.provider import read_provider
from tollgate.config.secrets import Secrets
from tollgate.config.shape import check_shape
from tollgate.errors import BadRequest
from tollgate.mapping.images import IMAGE_EXAMPLES
from tollgate.mapping.provider import compile_provider, run_provider_examples

FILES = sorted(path for path in (ROOT / "providers").glob("*.yaml") if "images" in read_whole(path).root.entries)


@functools.cache
def compiled(path):
    document = read_whole(path)
    assert document.problems == []
    problems, tree = check_shape(document, "provider")
    assert [problem.render() for problem in problems] == []
    provider, problems = read_provider(document, tree)
    assert [problem.render() for problem in problems if problem.level == "error"] == []
    return provider, compile_provider(provider, {}, Secrets())


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_file_compiles_and_its_examples_pass(path):
    provider, made = compiled(path)
    assert made.images
    assert [problem.render() for problem in run_provider_examples(made)] == []
    examples = [plain(node)["of"] for node in provider.examples.items]
    assert len([of for of in examples if of in IMAGE_EXAMPLES]) >= 2


def test_there_are_enough_services_and_models():
    offers = [offer for path in FILES for offer in compiled(path)[1].images]
    assert len(FILES) >= 12
    assert len(offers) >= 40
    assert all(offer.price.price > 0 for offer in offers)
    assert all(offer.schema.document["properties"] for offer in offers)
    # SPEC, image model descriptor
    assert [
        name for offer in offers for name, rule in offer.schema.document["properties"].items() if "type" not in rule
    ] == []


def sent(offer, given):
    return json.dumps(
        offer.submit.body(offer.values(answer={"input": given, "model": "up"}, input=given, job={"uuid": "u"}))
    )


OFFERS = {f"{offer.provider}-{offer.model.id}": offer for path in FILES for offer in compiled(path)[1].images}


@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)
def test_every_field_of_an_input_is_sent_or_rejected(offer):
    for name, rule in offer.schema.document["properties"].items():
        assert sent(
            offer, {name: ["data:image/png;base64,AAAA"] if rule.get("type") == "array" else "a-value"}
        ) != sent(offer, {}), name
    if "a-value" not in sent(offer, {"unheard_of": "a-value"}):
        assert offer.schema.document.get("additionalProperties") is False


@pytest.mark.parametrize("model", ["seedream-4.0", "seedream-4.5", "seedream-5.0-lite"])
def test_a_series_of_images_is_held_at_its_maximum_length(model):
    offer = OFFERS[f"volcengine-images-bytedance-seed/{model}"]
    for given, pictures in (
        ({}, 1),
        ({"sequential_image_generation": "auto"}, 15),
        ({"sequential_image_generation": "auto", "sequential_image_generation_options": {"max_images": 4}}, 4),
    ):
        assert offer.price.expected(offer.values(answer={}, input=given)) == offer.price.price * pictures


@pytest.mark.parametrize(
    ("offer", "given", "held"),
    [
        ("openai-images-openai/gpt-image-2", {"quality": "auto", "size": "auto", "n": 2}, "0.422"),
        ("openai-images-openai/gpt-image-2", {"quality": "high", "size": "3840x2160"}, "0.401"),
        ("openai-images-openai/gpt-image-1.5", {"quality": "high", "size": "auto"}, "0.2"),
        ("azure-openai-images-openai/gpt-image-1", {"quality": "auto", "size": "auto"}, "0.25"),
        ("gemini-images-google/gemini-3-pro-image", {"resolution": "4K"}, "0.24"),
        ("gemini-images-google/gemini-3.1-flash-image", {"resolution": "4K"}, "0.151"),
    ],
)
def test_an_image_billed_by_tokens_is_held_at_its_maximum_price(offer, given, held):
    price = OFFERS[offer].price
    assert price.expected(OFFERS[offer].values(answer={}, input=given)) == Decimal(held)
    answer = {"data": [{}], "usage": {"output_tokens": 100}, "usageMetadata": {"candidatesTokenCount": 100}}
    assert price.charge(OFFERS[offer].values(answer=answer, input=given), ({},)) < Decimal("0.02")


@pytest.mark.parametrize(
    ("given", "held"),
    [
        ({}, "0.03"),
        ({"n": 2, "resolution": "4K"}, "0.15"),
        ({"input_references": [{"type": "image_url"}]}, "0.135"),
        ({"input_references": [{"type": "image_url"}] * 4}, "0.255"),
    ],
    ids=["the lowest price", "two large pictures", "a reference", "many references"],
)
def test_a_resold_image_is_held_at_the_vendor_s_price(given, held):
    offer = OFFERS["openrouter-images-black-forest-labs/flux.2-pro"]
    assert offer.price.expected(offer.values(answer={}, input=given)) == Decimal(held)
    assert offer.price.charge(offer.values(answer={"data": [{}]}, input=given), ({},)) == Decimal("0.03")


@pytest.mark.parametrize(
    ("model", "given", "held"),
    [
        ("runware/flux-schnell", {"steps": 4}, "0.0006"),
        ("runware/flux-schnell", {"steps": 1, "numberResults": 3}, "0.0018"),
        ("runware/flux-schnell", {"steps": 40, "width": 2048, "height": 2048}, "0.024"),
        ("runware/flux-dev", {"steps": 28}, "0.0038"),
    ],
    ids=["usual", "three, of one step", "large, with many steps", "another model"],
)
def test_a_price_that_grows_with_size_and_steps_is_held_as_estimated(model, given, held):
    offer = OFFERS[f"runware-{model}"]
    given = {"width": 512, "height": 512, **given}
    assert offer.price.expected(offer.values(answer={}, input=given)) == Decimal(held)


@pytest.mark.parametrize(
    ("given", "held", "charged"),
    [
        ({}, "0.03", "0.03"),
        ({"input_image": "x"}, "0.09", "0.03"),
        ({"input_image": "x", "input_image_2": "y", "width": 2048, "height": 2048}, "0.195", "0.075"),
        ({"input_image": "x", "input_image_2": "y", "input_image_3": "z", "input_image_4": "z"}, "0.21", "0.03"),
        ({"width": None, "height": None}, "0.03", "0.03"),
        ({"width": 2048, "height": None}, "0.045", "0.045"),
        ({"input_image": "x", "width": None, "height": None}, "0.135", "0.03"),
    ],
    ids=["no image", "one", "two, and a large picture", "four", "no size", "a width", "one, whose size it has"],
)
def test_input_images_are_held_at_their_maximum_price(given, held, charged):
    """Each has up to four megapixels. What they cost is in the answer; without it, the picture is charged."""
    offer = OFFERS["black-forest-labs-black-forest-labs/flux-2-pro"]
    given = {"width": 1024, "height": 1024, **given}
    assert offer.price.expected(offer.values(answer={}, input=given)) == Decimal(held)
    job = {"images": [{"url": "https://x"}]}
    assert offer.price.charge(offer.values(answer={}, input=given, job=job), ({"url": "https://x"},)) == Decimal(
        charged
    )
    assert offer.price.charge(offer.values(input=given, job={**job, "cost": 16.5}), ({},)) == Decimal("0.165")


def test_a_picture_keeps_the_size_of_its_input_image():
    schema = OFFERS["black-forest-labs-black-forest-labs/flux-2-pro"].schema
    assert not {"width", "height"} & schema.filled({"prompt": "as a stamp", "input_image": "x"}).keys()


@pytest.mark.parametrize(
    ("offer", "field", "value"),
    [
        ("black-forest-labs-black-forest-labs/flux-2-pro", "webhook_url", "https://me.example/pictures"),
        ("black-forest-labs-black-forest-labs/flux-1.1-pro-ultra", "webhook_url", "https://me.example/pictures"),
        ("black-forest-labs-black-forest-labs/flux-1.1-pro", "webhook_url", "https://me.example/pictures"),
        ("recraft-recraft/recraft-v3", "response_format", "multipart"),
        ("recraft-recraft/recraft-v2", "response_format", "multipart"),
    ],
)
def test_a_field_that_keeps_the_picture_out_of_the_answer_is_refused(offer, field, value):
    """The job would fail, free of charge, and the provider have made the picture: with a webhook the answer has no
    address to poll, and one of several parts cannot be read."""
    with pytest.raises(BadRequest, match=field):
        OFFERS[offer].schema.admit({"prompt": "a fox", field: value})


def test_an_image_service_uses_the_same_key_as_the_chat_provider_of_its_host():
    secret = re.compile(r"\$secret\.(\w*(?:API_KEY|TOKEN|SECRET|BEDROCK)\b)")
    host = re.compile(r"(?:https://|host: )([a-z0-9.-]+\.[a-z]+)")
    files = {path.stem: path.read_text() for path in (ROOT / "providers").glob("*.yaml")}
    chat = {
        found: set(secret.findall(text))
        for name, text in files.items()
        if "\nspeaks:" in text
        for found in host.findall(text.partition("\nexamples:")[0])
    }
    for path in FILES:
        text = files[path.stem].partition("\nmodels:")[0]
        for address in set(host.findall(text)) & chat.keys():
            assert set(secret.findall(text)) <= chat[address], f"{path.name}: {address}"
