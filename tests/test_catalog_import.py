"""Facts become models files: prices per million tokens with every digit, unambiguous aliases, and keys added by hand
are kept."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner

from tollgate.catalog_import import Source, changes, import_models, write
from tollgate.catalog_import.entries import aliases, digits
from tollgate.cli.catalog import command
from tollgate.cli.init import command as init
from tollgate.config.load import plain, read_text
from tollgate.config.shape import check_shape


def offer(**more):
    return {
        "id": "acme/large-1",
        "provider": "acme",
        "upstream_model": "large-1",
        "name": "Large 1",
        "type": "chat",
        "created": 1_700_000_000,
        "status": "current",
        "context_length": 131072,
        "max_output_tokens": 8192,
        "supported_parameters": ["temperature", "tools"],
        "architecture": {
            "input_modalities": ["text", "image"],
            "output_modalities": ["text"],
            "tokenizer": "Other",
            "instruct_type": None,
        },
        "pricing": {"prompt": "0.0000003", "completion": "0.00000125", "unit": 1, "currency": "USD"},
    } | more


def imported(*offers, source=Source("acme"), **more):
    return import_models({"models": list(offers)}, source, **more)


def entry(**more):
    return imported(offer(**more)).models["acme/large-1"]


@pytest.mark.parametrize(
    ("given", "unit", "written"),
    [
        ("0.0000003", 1, "0.30"),
        ("0.00000125", 1, "1.25"),
        ("0.000000083333", 1, "0.083333"),
        ("0.00001", 1, "10.00"),
        ("0", 1, "0"),
        ("4.13", 1_000_000, "4.13"),
        ("2.625", 1_000_000, "2.625"),
        ("0.0000000005", 1, "0.0005"),
        ("12", 1_000_000, "12.00"),
    ],
)
def test_a_price_keeps_its_digits(given, unit, written):
    price = entry(pricing={"prompt": given, "completion": given, "unit": unit, "currency": "CNY"})["price"]
    assert (price["prompt"], price["completion"], price["unit"], price["currency"]) == (
        written,
        written,
        1_000_000,
        "CNY",
    )


def test_prices_per_request_image_and_search_are_not_scaled_to_a_million():
    price = entry(
        pricing={
            "prompt": "0.000001",
            "request": "0.005",
            "web_search": "0.01",
            "image": "0.0001",
            "unit": 1,
            "currency": "USD",
        }
    )["price"]
    assert (price["request"], price["web_search"], price["image"]) == ("0.005", "0.01", "0.0001")


def test_a_price_per_image_token_is_not_used_as_a_price_per_image():
    built = imported(offer(pricing={"prompt": "0.0000003", "image": "0.0000003", "unit": 1}))
    assert "image" not in built.models["acme/large-1"]["price"]
    assert built.left_out == ["acme/large-1: the price of image"]


def test_tiers_windows_and_factors():
    pricing = {
        "prompt": "0.000001",
        "completion": "0.000002",
        "unit": 1,
        "currency": "USD",
        "volumes": [{"min_prompt_tokens": 200000, "prompt": "0.000002"}, {"min_prompt_tokens": 5, "image_token": "1"}],
        "service_tiers": {"flex": {"prompt": "0.0000005"}},
        "multipliers": {"us": "1.1"},
        "windows": [{"hours_utc": ["00:00-01:00", "10:00-00:00"], "weekdays": [1, 5], "prompt": "0.0000005"}],
    }
    price = entry(pricing=pricing)["price"]
    assert price["volumes"] == [{"min_prompt_tokens": 200000, "prompt": "2.00"}]
    assert price["service_tiers"] == {"flex": {"prompt": "0.50"}}
    assert price["multipliers"] == {"us": "1.1"}
    assert price["windows"] == [
        {"start": "00:00", "end": "01:00", "days": [1, 5], "prices": {"prompt": "0.50"}},
        {"start": "10:00", "end": "00:00", "days": [1, 5], "prices": {"prompt": "0.50"}},
    ]


def test_fees_by_search_context_become_volume_rows():
    fees = {"low": "0.005", "high": "0.012", "medium": "0.008"}
    pricing = {"prompt": "0.000001", "request": "0.005", "unit": 1, "request_by_search_context": fees}
    price = entry(pricing=pricing)["price"]
    assert (price["request"], price["volumes"]) == (
        "0.005",
        [{"word": "medium", "request": "0.008"}, {"word": "high", "request": "0.012"}],
    )


def test_default_values_are_not_written():
    plain_text = entry(architecture={"input_modalities": ["text"], "output_modalities": ["text"], "tokenizer": "Other"})
    assert not {"upstream", "modalities", "tokenizer", "type", "dimensions"} & plain_text.keys()


def test_an_entry_has_what_the_facts_say_of_the_model():
    made = entry(
        upstream_model="large-v1", tiktoken_encoding="o200k_base*", hugging_face_id="acme/large", retires="2027-01-01"
    )
    assert (made["context"], made["max_output"], made["created"]) == (131072, 8192, 1_700_000_000)
    assert made["modalities"] == {"input": ["text", "image"], "output": ["text"]}
    assert (made["upstream"], made["name"], made["encoding"]) == ("large-v1", "Large 1", "o200k_base")
    assert (made["hugging_face_id"], made["retires"]) == ("acme/large", "2027-01-01")
    assert made["parameters"] == ["temperature", "tools"]


def test_the_description_is_composed_from_the_facts():
    assert entry()["description"] == "Chat model that takes images beside text and calls tools."
    assert entry(reasoning=True, supported_parameters=[])["description"] == (
        "Reasoning model that takes images beside text."
    )
    assert (
        entry(type="embedding", dimensions=[256, 1536], max_dimension=1536)["description"]
        == "Embeddings of up to 1,536 dimensions."
    )


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"pricing": {}}, "no price known"),
        ({"id": "no-vendor"}, "no canonical id"),
        ({"endpoints": ["/v1beta/interactions"]}, "served through /v1beta/interactions only"),
    ],
)
def test_an_offer_that_cannot_be_imported_is_listed_with_a_reason(more, words):
    built = imported(offer(**more), speaks=["chat"])
    assert built.models == {}
    assert words in built.left_out[0]


@pytest.mark.parametrize(
    ("paths", "speaks", "protocols"),
    [
        (["/v1/responses"], ["chat", "responses"], ["responses"]),
        (["/v1/chat/completions", "/v1/batch"], ["chat", "responses"], ["chat"]),
        (["/v1/chat/completions", "/v1/responses"], ["chat", "responses", "embeddings"], None),
        (["/v1/chat/completions"], ["chat"], None),
        (["/v1/chat/completions"], ["gemini", "messages"], None),
        ([], ["chat", "responses"], None),
    ],
)
def test_a_model_is_limited_to_the_protocols_that_serve_it(paths, speaks, protocols):
    assert imported(offer(endpoints=paths), speaks=speaks).models["acme/large-1"].get("protocols") == protocols


def test_the_global_offer_wins_among_inference_profiles():
    built = imported(
        offer(upstream_model="us.large", inference_profile="us"),
        offer(upstream_model="large"),
        offer(upstream_model="global.large", inference_profile="global"),
    )
    assert built.models["acme/large-1"]["upstream"] == "global.large"
    assert len(built.left_out) == 2


def test_a_fixed_name_wins_over_a_moving_alias():
    assert (
        imported(offer(upstream_model="x-latest", moving_alias=True), offer(upstream_model="large-fixed-2026")).models[
            "acme/large-1"
        ]["upstream"]
        == "large-fixed-2026"
    )


def test_other_providers_and_retired_offers_are_not_imported():
    assert imported(offer(provider="other"), offer(status="deprecated")).models == {}


def test_an_ambiguous_short_name_is_no_alias():
    facts = {
        "models": [offer(aliases=["large-1-20260101"])],
        "canonical": [
            {"id": "acme/large-1", "short_alias": "large-1", "offers": ["acme|large-1|current"]},
            {"id": "acme/latest", "short_alias": "latest", "offers": []},
            {"id": "beta/latest", "short_alias": "latest", "offers": []},
            {"id": "beta/odd", "short_alias": "us.odd", "offers": ["x|accounts/odd|current"]},
        ],
    }
    assert aliases(facts) == {
        "acme/large-1": ("large-1", "large-1-20260101"),
        "acme/latest": (),
        "beta/latest": (),
        "beta/odd": (),
    }


def test_a_name_used_only_by_another_provider_is_an_alias_if_unambiguous():
    facts = {
        "models": [
            offer(),
            offer(
                provider="other",
                upstream_model="deployed",
                aliases=["large-1-20260202", "small-1", "small-2-20260101", "eu/large-1", "shared"],
            ),
            offer(provider="other", id="acme/small-2", upstream_model="small-2-20260101", aliases=["shared"]),
        ],
        "canonical": [
            {
                "id": "acme/large-1",
                "short_alias": "large-1",
                "offers": ["acme|large-1|current", "other|deployed|current"],
            },
            {"id": "acme/small-1", "short_alias": "small-1", "offers": []},
            {"id": "acme/small-2", "short_alias": "small-2", "offers": []},
        ],
    }
    assert aliases(facts) == {
        "acme/large-1": ("large-1", "large-1-20260202"),
        "acme/small-1": ("small-1",),
        "acme/small-2": ("small-2",),
    }


def test_the_canonical_slug_is_written_only_if_it_differs_from_the_id():
    facts = {
        "models": [offer(), offer(id="acme/plain", upstream_model="plain")],
        "canonical": [
            {"id": "acme/large-1", "canonical_slug": "acme/large-1-20260101", "offers": []},
            {"id": "acme/plain", "canonical_slug": "acme/plain", "offers": []},
        ],
    }
    models = import_models(facts, Source("acme")).models
    assert (
        models["acme/large-1"]["canonical_slug"] == "acme/large-1-20260101"
        and "canonical_slug" not in models["acme/plain"]
    )


def test_the_written_text_is_stable_and_loads():
    built = imported(
        offer(),
        offer(id="acme/other:free", name='Say "hi":\tnow\U000e0001', description="x"),
        offer(id="acme/embed-1", type="embedding", dimensions=[3, 2]),
    )
    text = write(built, "acme")
    assert text == write(built, "acme")
    document = read_text(text, "models/acme.yaml")
    assert document.problems == []
    problems, _ = check_shape(document, "models")
    assert [problem.render() for problem in problems] == []
    read = plain(document.root)
    assert read["from"] == {"provider": "acme"}
    assert read["models"]["acme/other:free"]["name"] == 'Say "hi":\tnow\U000e0001'
    assert read["models"]["acme/large-1"]["price"] == {"unit": 1_000_000, "prompt": "0.30", "completion": "1.25"}
    assert read["models"]["acme/embed-1"]["dimensions"] == [2, 3]
    assert list(read["models"]) == ["acme/large-1", "acme/other:free", "acme/embed-1"]


def test_a_price_of_several_levels_is_read_back_as_it_was_written():
    windows = [{"hours_utc": ["00:00-01:00"], "prompt": "0.0000005"}]
    tiers = {"flex": {"prompt": "0.0000005", "completion": "0.000001"}, "priority": {"prompt": "0.000004"}}
    pricing = {"prompt": "0.000001", "completion": "0.000002", "unit": 1, "service_tiers": tiers, "windows": windows}
    built = imported(offer(pricing=pricing))
    read = plain(read_text(write(built, "acme"), "models/acme.yaml").root)
    assert read["models"] == json.loads(json.dumps(built.models))


def test_a_shared_parameter_list_is_written_once():
    text = write(imported(offer(), offer(id="acme/b"), offer(id="acme/c", supported_parameters=["n"])), "acme")
    assert text.count("temperature") == 1
    assert plain(read_text(text, "x").root)["models"]["acme/b"]["parameters"] == ["temperature", "tools"]


def test_keys_added_by_hand_are_kept():
    kept = {
        "acme/large-1": {
            "can": {"video": True},
            "name": "Old",
            "price": {"prompt": "9", "image_output_token": "30", "why": "a promotion"},
        },
        "acme/gone": {"can": {}},
    }
    built = imported(offer(), kept=kept)
    assert built.models["acme/large-1"]["can"] == {"video": True}
    assert built.models["acme/large-1"]["name"] == "Large 1"
    assert built.models["acme/large-1"]["price"]["why"] == "a promotion"
    assert (
        built.models["acme/large-1"]["price"]["image_output_token"] == "30"
        and built.models["acme/large-1"]["price"]["prompt"] != "9"
    )
    assert list(built.models) == ["acme/large-1"]


def test_changes_are_described_by_model():
    assert changes({"a": {"x": 1}, "b": {"x": 1}, "d": {}}, {"a": {"x": 2, "y": 1}, "c": {}, "d": {}}) == [
        "+ c",
        "- b",
        "~ a: x, y",
    ]


def test_digits_have_no_exponent():
    assert digits(Decimal("1E-7")) == "0.0000001"


# -- the command


def run(*words, answer=""):
    return CliRunner().invoke(command, ["import", *map(str, words)], input=answer)


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    file = tmp_path / "facts.json"
    file.write_text(json.dumps({"models": [offer()]}))
    (tmp_path / "providers" / "models").mkdir(parents=True)
    return file


def test_the_command_shows_the_changes_and_asks_for_confirmation(facts: Path):
    out = facts.parent / "providers" / "models"
    declined = run(facts, "--provider", "acme", "--out", out, answer="n\n")
    assert declined.exit_code == 1
    assert "+ acme/large-1" in declined.stdout
    assert list(out.iterdir()) == []
    agreed = run(facts, "--provider", "acme", "--out", out, answer="y\n")
    assert agreed.exit_code == 0, agreed.output
    assert "models_from: models/acme.yaml" in agreed.stdout
    assert "large-1" in (out / "acme.yaml").read_text()


def test_without_a_provider_every_file_is_updated(facts: Path):
    out = facts.parent / "providers" / "models"
    run(facts, "--provider", "acme", "--as", "mine", "--out", out, "--yes")
    assert run(facts, "--out", out).stdout.strip().endswith("nothing changes")
    facts.write_text(
        json.dumps({"models": [offer(pricing={"prompt": "0.0000004", "completion": "0.00000125", "unit": 1})]})
    )
    changed = run(facts, "--out", out, "--yes")
    assert "~ acme/large-1: price" in changed.stdout
    assert '+    price: {unit: 1000000, prompt: "0.40", completion: "1.25"}' in changed.stdout
    assert '"0.40"' in (out / "mine.yaml").read_text()


def test_a_file_that_cannot_be_written_stays_as_it_was(facts: Path, monkeypatch: pytest.MonkeyPatch):
    """On a full disk the models, with all keys added by hand, were cut off, also in a running gateway."""
    out = facts.parent / "providers" / "models"
    run(facts, "--provider", "acme", "--out", out, "--yes")
    before = (out / "acme.yaml").read_text()
    facts.write_text(json.dumps({"models": [offer(pricing={"prompt": "0.9", "completion": "9", "unit": 1})]}))
    write_text = Path.write_text

    def full(made: Path, text: str, *rest: str) -> None:
        write_text(made, text[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    assert str(run(facts, "--out", out, "--yes").exception) == f"[Errno 28] No space left on device: '{out}/acme.yaml'"
    assert (out / "acme.yaml").read_text() == before
    assert [each.name for each in out.iterdir()] == ["acme.yaml"]


def test_imported_files_of_a_starter_set_keep_their_schema_line(facts: Path):
    assert CliRunner().invoke(init, [str(facts.parent / "set")]).exit_code == 0
    out = facts.parent / "set" / "providers" / "models"
    line = "# yaml-language-server: $schema=../../schemas/models.schema.json"
    for name in ("acme", "groq"):
        facts.write_text(json.dumps({"models": [offer(provider=name)]}))
        assert run(facts, "--provider", name, "--out", out, "--yes").exit_code == 0
        assert (out / f"{name}.yaml").read_text().partition("\n")[0] == line
    assert run(facts, "--provider", "groq", "--out", out).stdout.strip().endswith("nothing changes")


def test_the_folder_of_models_files_may_have_any_name(facts: Path):
    out = facts.parent / "providers" / "generated"
    assert run(facts, "--provider", "acme", "--out", out, "--yes").exit_code == 0
    assert run(facts, "--out", out).stdout.strip().endswith("nothing changes")


def test_an_invalid_file_is_not_overwritten(facts: Path):
    out = facts.parent / "providers" / "models"
    (out / "acme.yaml").write_text("models: {a: [}\n")
    result = run(facts, "--provider", "acme", "--out", out, "--yes")
    assert result.exit_code == 1
    assert "does not load" in result.output
    assert (out / "acme.yaml").read_text() == "models: {a: [}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "found no JSON"), ("{}", "found no list `models`"), ('{"models": [1]}', "found no list `models`")],
)
def test_an_invalid_facts_file_is_reported(facts: Path, text, words):
    facts.write_text(text)
    result = run(facts, "--provider", "acme", "--out", facts.parent / "providers" / "models")
    assert result.exit_code == 1
    assert words in result.output


def test_an_unknown_provider_is_reported_with_the_known_ones(facts: Path):
    result = run(facts, "--provider", "acne", "--out", facts.parent / "providers" / "models")
    assert 'found no offers of "acne", it has acme' in result.output
