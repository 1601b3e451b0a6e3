"""The `Model` resource of one model."""

from decimal import Decimal

import pytest

from support.offers import model, price
from tollgate.config.pricing import Pricing, Volume
from tollgate.model_entry import model_entry


def test_a_full_entry_has_every_field_of_the_specification():
    entry = model_entry(
        model(
            name="Acme Large",
            description="Text",
            created=1700000000,
            hugging_face_id="acme/large",
            context=131072,
            max_output=8192,
            input_modalities=("text", "image"),
            tokenizer="GPT",
            parameters=("temperature", "tools"),
            price=price(prompt="0.30", completion="0.450", input_cache_read="0.03", unit=1_000_000, currency="CNY"),
        )
    )
    assert entry == {
        "id": "acme/large",
        "object": "model",
        "canonical_slug": "acme/large",
        "hugging_face_id": "acme/large",
        "name": "Acme Large",
        "display_name": "Acme Large",
        "type": "chat",
        "created": 1700000000,
        "created_at": "2023-11-14T22:13:20Z",
        "description": "Text",
        "context_length": 131072,
        "max_input_tokens": 131072,
        "max_tokens": 8192,
        "architecture": {
            "modality": "text+image->text",
            "input_modalities": ["text", "image"],
            "output_modalities": ["text"],
            "tokenizer": "GPT",
            "instruct_type": None,
        },
        "pricing": {
            "prompt": "0.30",
            "completion": "0.450",
            "input_cache_read": "0.03",
            "input_cache_write": "",
            "request": "0",
            "image": "0",
            "web_search": "0",
            "internal_reasoning": "",
            "unit": 1000000,
            "currency": "CNY",
            "volumes": [],
        },
        "supported_parameters": ["temperature", "tools"],
        "model_provider": "acme",
        "owned_by": "acme",
    }


def test_a_minimal_entry_has_defaults():
    bare = model_entry(model())
    assert bare["name"] == bare["display_name"] == bare["canonical_slug"] == "acme/large"
    assert (bare["hugging_face_id"], bare["created"], bare["supported_parameters"]) == (None, 0, [])
    assert (bare["context_length"], bare["max_input_tokens"], bare["max_tokens"]) == (0, None, None)
    assert bare["pricing"]["prompt"] == "0"
    assert bare["pricing"]["unit"] == 1
    assert "dimensions" not in bare
    assert "max_dimension" not in bare


@pytest.mark.parametrize(
    ("created", "written"), [(0, "1970-01-01T00:00:00Z"), (1700000000000000, "9999-12-31T23:59:59Z")]
)
def test_any_publication_time_can_be_formatted(created: int, written: str) -> None:
    entry = model_entry(model(created=created))
    assert (entry["created"], entry["created_at"]) == (created, written)


def test_only_embedding_models_have_dimensions():
    entry = model_entry(model(type="embedding", dimensions=(256, 1024)))
    assert (entry["type"], entry["dimensions"], entry["max_dimension"]) == ("embedding", [256, 1024], 1024)
    assert "max_dimension" not in model_entry(model(type="embedding"))


def test_volume_prices_are_listed_as_written():
    rows = (Volume({"prompt": Decimal("0.60")}, {"prompt": "0.60"}, min_prompt_tokens=200000, thinking=False),)
    entry = model_entry(model(price=Pricing({}, {}, volumes=rows)))
    assert entry["pricing"]["volumes"] == [{"min_prompt_tokens": 200000, "thinking": False, "prompt": "0.60"}]
