"""What the routes make of a model, lists by access, and name resolution."""

import gzip
import json
import tracemalloc
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.offers import make_catalog, model, offer, price, route
from tollgate.catalog import ANONYMOUS, EVERYTHING, Access, access_of, may_use
from tollgate.routing import make_route


def listed(catalog, access=EVERYTHING):
    return [entry["id"] for entry in json.loads(catalog.listing(access).body)["data"]]


def test_a_limit_unknown_to_the_first_route_is_taken_from_the_next():
    known = [route("c", priority=2, context=4096), route("d", priority=3, context=9, max_output=8)]
    routes = [route("a"), route("b", priority=1), *known]
    limits = ("context_length", "max_input_tokens", "max_tokens")
    entry = make_catalog(routes).resolve("acme/large").entry
    assert [entry[limit] for limit in limits] == [4096, 4096, 8]
    entry = make_catalog(routes[:2]).resolve("acme/large").entry
    assert [entry[limit] for limit in limits] == [0, None, None]


def test_the_first_route_gives_the_entry_and_the_price():
    cheap, dear = price(prompt="1"), price(prompt="2")
    catalog = make_catalog([route("dear", price=dear, priority=1), route("cheap", price=cheap, upstream="x")])
    found = catalog.resolve("acme/large")
    assert found.entry["model_provider"] == "cheap"
    assert found.entry["pricing"]["prompt"] == "1"
    assert found.tariff.pricing is cheap
    assert [r.provider for r in found.routes] == ["cheap", "dear"]


def test_entries_are_sorted_by_id_and_listed_once():
    catalog = make_catalog([route("b", id="b/z"), route("a", id="b/a"), route("c", id="a/z"), route("d", id="b/z")])
    assert listed(catalog) == ["a/z", "b/a", "b/z"]


def test_image_models_have_a_separate_list():
    catalog = make_catalog([route("a", id="a/chat"), route("a", id="a/picture", type="image", protocols=())])
    assert listed(catalog) == ["a/chat"]
    assert [found.id for found in catalog.image_models(EVERYTHING)] == ["a/picture"]
    assert catalog.resolve("a/picture") is not None
    assert catalog.model("a/picture", EVERYTHING) is None


def test_aliases_of_models_and_of_the_gateway_resolve_to_the_canonical_model():
    catalog = make_catalog(
        [route(aliases=("large", "big"))],
        {"best": "big", "house": "best", "plain": "acme/large", "gone": "no/model", "a": "b", "b": "a"},
    )
    for name in ("acme/large", "large", "big", "best", "house", "plain"):
        assert catalog.resolve(name).id == "acme/large"
    for name in ("gone", "no/model", "a", "b", "", "ACME/large"):
        assert catalog.resolve(name) is None


def test_an_id_wins_over_an_alias_and_the_smaller_id_over_the_larger():
    catalog = make_catalog(
        [
            route("a", id="v/one", aliases=("v/two", "both")),
            route("b", id="v/two", aliases=("both",)),
        ]
    )
    assert catalog.resolve("v/two").id == "v/two"
    assert catalog.resolve("both").id == "v/one"


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        (None, ["a/one", "a/two", "b/one"]),
        ((), []),
        (("a/*",), ["a/one", "a/two"]),
        (("*/one",), ["a/one", "b/one"]),
        (("a/one", "b/one"), ["a/one", "b/one"]),
        (("A/*",), []),
        (("one",), []),
    ],
    ids=str,
)
def test_a_key_sees_the_models_that_its_globs_match(allowed, expected):
    catalog = make_catalog([route("p", id=name, aliases=(name[2:] + name[0],)) for name in ("a/one", "a/two", "b/one")])
    assert listed(catalog, access_of(SimpleNamespace(allowed_models=allowed))) == expected


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        (("a/*", "!a/one"), ["a/two"]),
        (("!a/one", "a/*"), ["a/two"]),
        (("!a/*",), ["b/one"]),
        (("!*/one", "!b/*"), ["a/two"]),
        (("*", "!*"), []),
        (("b/one", "!a/one"), ["b/one"]),
        (("!",), ["a/one", "a/two", "b/one"]),
    ],
    ids=str,
)
def test_a_key_does_not_see_the_models_that_its_list_excludes(allowed, expected):
    catalog = make_catalog([route("p", id=name) for name in ("a/one", "a/two", "b/one")])
    access = access_of(SimpleNamespace(allowed_models=allowed))
    assert listed(catalog, access) == expected
    assert [name for name in catalog.models if catalog.find(name, access)] == expected


def test_a_private_model_is_hidden_without_a_key():
    catalog = make_catalog([route("p", id="a/open"), route("p", id="a/closed", public=False)])
    assert listed(catalog, ANONYMOUS) == ["a/open"]
    assert listed(catalog) == ["a/closed", "a/open"]
    assert catalog.model("a/closed", ANONYMOUS) is None
    assert catalog.find("a/closed", EVERYTHING).id == "a/closed"


globs = st.one_of(
    st.none(),
    st.lists(
        st.sampled_from(["*", "a/*", "*/one", "a/one", "b/[a-o]*", "?/two", "", "x", "!a/one", "!b/*"]), max_size=3
    ),
)


@given(globs, st.booleans())
def test_exactly_the_listed_models_can_be_called(allowed, anonymous):
    catalog = make_catalog(
        [route("p", id=name, public=name != "b/one") for name in ("a/one", "a/two", "b/one", "b/two")]
    )
    access = Access(None if allowed is None else tuple(allowed), anonymous)
    callable_ids = [name for name in catalog.models if catalog.find(name, access) is not None]
    assert listed(catalog, access) == callable_ids
    assert all(may_use(access, catalog.models[name]) for name in callable_ids)


def test_lists_are_rendered_once_and_have_etags():
    catalog = make_catalog([route("p", id="a/one"), route("p", id="b/two")])
    first = catalog.listing(Access(("a/*",)))
    assert catalog.listing(Access(("a/on?",))) is first
    assert first.etag.startswith(b'"')
    assert gzip.decompress(first.packed) == first.body
    assert first.packed_etag != first.etag
    assert first.etag != catalog.listing(EVERYTHING).etag
    for n in range(1000):
        catalog.listing(Access((f"a/{n}",)))
    assert len(catalog._listings) <= 256
    assert len(catalog._by_names) <= 256
    assert catalog.listed(Access(("a/999",))) is catalog.listing(Access(("a/999",)))
    assert catalog.listed(Access(("b/not requested",))) is None


def test_cached_lists_of_many_keys_take_at_most_some_megabytes():
    catalog = make_catalog([route(id=f"a/{number}", description="x" * 20_000) for number in range(100)])
    tracemalloc.start()
    try:
        for number in range(40):  # 2 MB each
            catalog.listing(Access(("a/*", f"!a/{number}")))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert catalog.listed(Access(("a/*", "!a/39"))) is not None
    assert taken < 40_000_000


def test_a_model_with_several_offers_keeps_them():
    of = model(price=price(prompt="1"))
    only = make_route(of, (offer(of, "responses"), offer(of, "chat")))
    assert make_catalog([only]).resolve("acme/large").routes[0].offer("chat").protocol == "chat"


@pytest.mark.parametrize(
    ("ids", "shown"), [((), "MODEL"), (("b/b", "a/a"), "a/a"), (("a/a", "sandbox/echo"), "sandbox/echo")]
)
def test_the_example_model_is_the_sandbox_s_or_the_first(ids, shown):
    assert make_catalog([route(id=name) for name in ids]).example() == shown


@pytest.mark.parametrize(
    ("name", "provider", "found"),
    [
        ("acme/large", "", "acme/large"),
        ("big", "", "acme/large"),
        ("large-1", "", "acme/large"),
        ("large-1-20261101", "", "acme/large"),
        ("large-1@20261101", "", "acme/large"),
        ("large-1-20261101-v1:0", "", "acme/large"),
        ("large-1", "bemo", "bemo/other"),
        ("large-1", "cora", "acme/large"),
        ("small-20250101", "", "acme/small"),
        ("large-2", "", None),
        ("large-1-2026", "", None),
    ],
)
def test_a_provider_s_name_for_a_model_resolves_to_it(name, provider, found):
    catalog = make_catalog(
        [
            route("acme", aliases=("big",)),
            route("acme", id="acme/small", upstream="small-20250101"),
            route("bemo", id="bemo/other"),
        ]
    )
    model = catalog.resolve_foreign(name, provider)
    assert (model and model.id) == found
