"""Models from a provider's own list of models follow the same rules as models in its file."""

import json
import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapping.provider_files import SMALL, compiled
from support.places import TRAFFIC
from tollgate.errors import ConfigErrors, UpstreamFailed

LIST = (
    SMALL
    + """
vars: {zone: eu}
discover:
  url: "https://{{ $vars.zone }}.acme.example/models"
  headers: {x-list: "{{ $secret.ACME_KEY }}!"}
  every: 600
  list: $.data
  when: $.kind != 'moderation'
  model:
    id: "acme/{{ $.id }}"
    upstream: $.id
    name: $.label
    context: $.max_model_len
    created: $.created
    modalities: {input: $.inputs}
    price:
      $when: $.cost
      prompt: $.cost.in
      completion: $.cost.out
      unit: 1000000
"""
)


def read(entries, text=LIST):
    return compiled(text).discovery.read({"data": entries})


def test_an_entry_becomes_a_model():
    (found,), problems = read(
        [
            {
                "id": "m1",
                "label": "M One",
                "max_model_len": 8192,
                "created": 1.7e9,
                "inputs": ["text", "image"],
                "cost": {"in": 0.15, "out": "0.60"},
            }
        ]
    )
    assert problems == ()
    assert (found.id, found.provider, found.upstream, found.name, found.context, found.created) == (
        "acme/m1",
        "acme",
        "m1",
        "M One",
        8192,
        1700000000,
    )
    assert found.input_modalities == ("text", "image")
    assert found.price.prices == {"prompt": Decimal("0.15"), "completion": Decimal("0.60")}
    assert found.price.written["completion"] == "0.60"


def test_fields_missing_in_an_entry_have_the_usual_defaults():
    (found,), _ = read([{"id": "m1"}])
    assert (found.context, found.price, found.type, found.name) == (0, None, "chat", "m1")


def test_a_price_with_an_exponent_keeps_its_value():
    (found,), problems = read([{"id": "m1", "cost": {"in": 1.5e-07, "out": 3e-6}}])
    assert problems == ()
    assert found.price.prices == {"prompt": Decimal("0.00000015"), "completion": Decimal("0.000003")}


def test_invalid_entries_are_left_out_and_reported():
    found, problems = read(
        [
            {"id": "m1", "kind": "moderation"},
            {"id": "m2"},
            {"no": "id"},
            "text",
            None,
            {"id": "m2", "label": "again"},
        ]
    )
    assert [model.id for model in found] == ["acme/m2"]
    assert [problem.message for problem in problems] == [
        f"found no id for an entry with {what}, wanted a text" for what in ("the fields no", "no fields", "no fields")
    ]


def test_an_entry_that_cannot_be_computed_is_left_out_and_reported():
    text = LIST.replace("context: $.max_model_len", 'context: "{{ ($.facts | parse_json).context }}"')
    found, problems = read([{"id": "m1", "facts": "{"}, {"id": "m2", "facts": '{"context": 9}'}], text)
    assert [(model.id, model.context) for model in found] == [("acme/m2", 9)]
    [problem] = problems
    assert "not JSON: '{'" in problem.message


def test_an_entry_excluded_by_when_is_not_a_problem():
    assert read([{"id": "m1", "kind": "moderation"}, {"kind": "moderation"}]) == ((), ())


def test_an_entry_with_an_invalid_field_is_left_out_and_reported():
    found, problems = read(
        [
            {"id": "m1", "max_model_len": "huge"},
            {"id": "bad name"},
            {"id": "m3", "cost": {"in": "free"}},
            {"id": "m4"},
        ]
    )
    assert [model.id for model in found] == ["acme/m4"]  # in particular not m3, which would be free
    rendered = "\n".join(problem.render() for problem in problems)
    assert "huge" in rendered
    assert "bad name" in rendered
    assert "free" in rendered


def test_an_entry_of_a_type_without_an_endpoint_is_left_out_and_reported():
    text = LIST.replace("    name: $.label\n", "    type: $.kind\n")
    models, problems = read([{"id": "a", "kind": "embedding"}, {"id": "b", "kind": "image"}, {"id": "c"}], text)
    assert [model.id for model in models] == ["acme/c"]
    assert [problem.message for problem in problems] == [
        "found acme/a of type embedding, which no endpoint serves",
        "found acme/b of type image, which no endpoint serves",
    ]


def test_the_list_is_requested_with_the_providers_headers():
    discovery = compiled(LIST).discovery
    assert (discovery.url, discovery.every) == ("https://eu.acme.example/models", 600)
    assert discovery.headers() == {"authorization": "Bearer sk-canary", "x-list": "sk-canary!"}


@pytest.mark.parametrize("body", [{}, {"data": None}, {"data": "x"}, [], None, "<html>"], ids=repr)
def test_an_answer_without_a_list_is_reported(body):
    found, problems = compiled(LIST).discovery.read(body)
    assert found == ()
    assert "the list of models was not found" in problems[0].message


@pytest.mark.parametrize(
    ("next_page", "address"),
    [
        (None, None),
        ("", None),
        (7, None),
        ("?after=x", "https://eu.acme.example/models?after=x"),
        ("/v2/models", "https://eu.acme.example/v2/models"),
        ("https://eu.acme.example/models?p=2", "https://eu.acme.example/models?p=2"),
    ],
)
def test_a_page_names_the_next_page(next_page, address):
    discovery = compiled(LIST.replace("  list: $.data\n", "  list: $.data\n  next: $.next\n")).discovery
    assert discovery.following("https://eu.acme.example/models?limit=5", {"data": [], "next": next_page}) == address


@pytest.mark.parametrize(
    "next_page", ["https://us.acme.example/models", "http://eu.acme.example/models", "//x/", "http://["]
)
def test_a_next_page_on_another_host_is_not_followed(next_page):
    discovery = compiled(LIST.replace("  list: $.data\n", "  list: $.data\n  next: $.next\n")).discovery
    with pytest.raises(UpstreamFailed, match="another host"):
        discovery.following("https://eu.acme.example/models", {"next": next_page})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("$.max_model_len", "$mdl.x", "unknown name `$mdl`"),
        ("$.kind != 'moderation'", "kind", "unknown word `kind`"),
        ("$vars.zone", "$vars.zoen", "did you mean `zone`"),
        ("    context:", "    context_length:", "a model has no field `context_length`"),
        ("      completion:", "      competion:", "a price has no field `competion` (did you mean `completion`?)"),
        ("    created:", "    craeted:", "a model has no field `craeted` (did you mean `created`?)"),
    ],
)
def test_a_config_error_is_raised_at_start(old, new, message):
    with pytest.raises(ConfigErrors, match=re.escape(message)):
        compiled(LIST.replace(old, new))


entries = st.lists(
    st.one_of(
        st.none(),
        st.text(max_size=3),
        st.dictionaries(
            st.sampled_from(["id", "label", "max_model_len", "created", "inputs", "cost", "kind"]),
            st.one_of(
                st.none(),
                st.text(max_size=4),
                st.integers(),
                st.floats(),
                st.lists(st.text(max_size=3), max_size=2),
                st.dictionaries(st.sampled_from(["in", "out"]), st.floats() | st.text(max_size=3), max_size=2),
            ),
            max_size=5,
        ),
    ),
    max_size=4,
)
DISCOVERY = compiled(LIST).discovery


@given(entries)
def test_any_list_is_read_without_duplicate_ids(found):
    models, _ = DISCOVERY.read({"data": found})
    assert len({model.id for model in models}) == len(models)


def test_recorded_lists_are_read():
    if not TRAFFIC.exists():
        pytest.skip("shared/traffic is not beside this repository")
    model = "{id: \"acme/{{ $.id | default($.name) | replace('/', '-') }}\", upstream: {$first: [$.id, $.name]}}"
    discovery = compiled(
        SMALL + "discover: {url: 'https://x.example/m', list: {$first: [$.data, $.models]}, model: " + model + "}\n"
    ).discovery
    seen = 0
    for line in json.loads((TRAFFIC / "index.json").read_text())["exchanges"]:
        if line["protocol"] == "models-list":
            body = json.loads((TRAFFIC / line["file"]).read_text())["response"]["body"]
            if "data" in body or "models" in body:
                models, problems = discovery.read(body)
                assert models and not problems, line["id"]
                seen += 1
    assert seen >= 4
