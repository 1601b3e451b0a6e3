"""Which routes are tried, in which order."""

from collections import Counter
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.offers import make_catalog, model, offer, route
from tollgate.config.settings import Retry
from tollgate.health import Health
from tollgate.routing import Needs, Sticky, fingerprint, make_route, plan


class Clock:
    def __init__(self):
        self.at = 1000.0

    def __call__(self):
        return self.at


def model_of_routes(*routes):
    return make_catalog(routes).resolve("acme/large")


def descending_draws():
    """Draws that keep the order of the file among equal routes: each is smaller than the one before."""
    return (1 - n / 1000 for n in count()).__next__


def tried(model, protocol="chat", *args, **kwargs):
    kwargs.setdefault("rng", descending_draws())
    offers, calls = plan(model, protocol, *args, **kwargs)
    return [f"{o.provider}:{o.protocol}" for o in offers[:calls]]


def test_lower_priority_numbers_come_first():
    assert tried(model_of_routes(route("c", priority=2), route("a", priority=1), route("b", priority=0))) == [
        "b:chat",
        "a:chat",
        "c:chat",
    ]


def test_at_most_three_different_routes_are_tried():
    found = tried(model_of_routes(*(route(name, protocols=("chat", "responses")) for name in "abcdef")))
    assert found == ["a:chat", "b:chat", "c:chat"]
    assert tried(model_of_routes(*(route(name) for name in "abc")), attempts=1) == ["a:chat"]


@pytest.mark.parametrize(
    ("client", "protocols", "chosen"),
    [
        ("chat", ("messages", "responses", "chat"), "chat"),
        ("chat", ("messages", "responses"), "responses"),
        ("chat", ("gemini", "messages"), "messages"),
        ("chat", ("gemini",), "gemini"),
        ("responses", ("messages", "chat"), "chat"),
        ("messages", ("chat", "responses"), "responses"),
        ("messages", ("chat", "messages"), "messages"),
        ("messages", ("converse", "gemini"), "converse"),
    ],
)
def test_a_route_uses_the_protocol_that_loses_least(client, protocols, chosen):
    assert tried(model_of_routes(route("a", protocols)), client) == [f"a:{chosen}"]


def test_a_native_route_precedes_a_converted_one_of_the_same_priority():
    model = model_of_routes(route("a", ("chat",)), route("b", ("messages",)))
    assert tried(model, "messages") == ["b:messages", "a:chat"]
    assert tried(model, "chat") == ["a:chat", "b:messages"]


def test_priority_precedes_the_protocol_unless_conversion_would_lose_something():
    model = model_of_routes(route("a", ("chat",)), route("b", ("messages",), priority=5))
    assert tried(model, "messages") == ["a:chat", "b:messages"]
    assert tried(model, "messages", Needs(prefer_native=True)) == ["b:messages", "a:chat"]


def test_a_request_that_cannot_be_converted_uses_native_routes_only():
    model = model_of_routes(route("a", ("chat",)), route("b", ("messages",)))
    assert tried(model, "messages", Needs(native=True)) == ["b:messages"]
    assert tried(model, "responses", Needs(native=True)) == []
    assert tried(model, "messages", Needs(native=True, threads=True)) == []
    assert tried(model, "messages", pinned="a") == ["a:chat"], "the id of a provider may be used in another format"
    threads = model_of_routes(route("a", ("messages",)), route("b", ("messages",), can={"threads": True}))
    assert tried(threads, "messages", Needs(native=True, threads=True)) == ["b:messages"]


@pytest.mark.parametrize(("type", "client"), [("embedding", "chat"), ("chat", "embeddings"), ("image", "chat")])
def test_a_model_serves_only_the_endpoints_of_its_type(type, client):
    assert tried(model_of_routes(route("a", type=type)), client) == []


def test_an_embedding_model_serves_embeddings():
    assert tried(
        model_of_routes(
            route("a", ("embeddings",), type="embedding"), route("b", ("cohere-embeddings",), type="embedding")
        ),
        "embeddings",
    ) == ["a:embeddings", "b:cohere-embeddings"]


@pytest.mark.parametrize(
    ("needs", "facts"),
    [
        pytest.param(Needs(images=True), {"input_modalities": ("text", "image")}, id="images"),
        pytest.param(Needs(audio=True), {"input_modalities": ("text", "audio")}, id="audio"),
        pytest.param(Needs(files=True), {"can": {"files": True}}, id="files"),
        pytest.param(Needs(files=True), {"input_modalities": ("text", "file")}, id="files by modality"),
        pytest.param(Needs(prompt_tokens=500), {"context": 1000}, id="a long prompt"),
        pytest.param(Needs(prompt_tokens=500), {"context": 0}, id="a long prompt with unknown context length"),
        pytest.param(Needs(tools=True), {"parameters": ("tools",)}, id="tools by parameter"),
        pytest.param(Needs(tools=True), {"can": {"tools": True}}, id="tools by ability"),
        pytest.param(Needs(schema=True), {"can": {}}, id="schemas unless denied"),
    ],
)
def test_only_routes_that_fit_are_tried(needs, facts):
    narrow = {"context": 100, "parameters": ("temperature",), "can": {"schema": False}}
    model = model_of_routes(route("a", **narrow), route("b", priority=9, **facts))
    assert tried(model, "chat", needs) == ["b:chat"]
    assert tried(model, "chat") == ["a:chat", "b:chat"]


def test_another_protocol_of_the_same_provider_is_used_if_one_lacks_an_ability():
    model_of = model()
    chat, responses = offer(model_of), offer(model_of, "responses")
    chat.can["tools"] = False
    one = model_of_routes(make_route(model_of, (chat, responses)))
    assert tried(one, needs=Needs(tools=True)) == ["acme:responses"]
    assert tried(one) == ["acme:chat"]
    assert tried(one, needs=Needs(tools=True, native=True)) == ["acme:chat"]
    assert tried(model_of_routes(make_route(model_of, (chat,))), needs=Needs(tools=True)) == ["acme:chat"]


def test_tools_that_are_no_functions_may_be_left_to_a_conversion():
    model_of = model()
    chat, responses = offer(model_of), offer(model_of, "responses")
    responses.can["client_tools"] = False
    one = model_of_routes(make_route(model_of, (chat, responses)))
    assert tried(one, "responses") == ["acme:responses"]
    assert tried(one, "responses", needs=Needs(client_tools=True, prefer_native=True)) == ["acme:chat"]
    assert tried(one, "responses", needs=Needs(client_tools=True, native=True)) == ["acme:responses"]


def test_tools_may_be_limited_to_some_efforts():
    model_of = model()
    chat, responses = offer(model_of), offer(model_of, "responses")
    chat.can["tools_with_effort"] = ["unset", "none"]
    one = model_of_routes(make_route(model_of, (chat, responses)))
    for effort, taken in (("unset", "acme:chat"), ("none", "acme:chat"), ("high", "acme:responses")):
        assert tried(one, needs=Needs(tools=True, effort=effort)) == [taken]
    assert tried(one, needs=Needs(effort="high")) == ["acme:chat"]


def test_if_no_route_declares_an_ability_all_are_tried():
    assert tried(model_of_routes(route("a"), route("b")), "chat", Needs(images=True)) == ["a:chat", "b:chat"]


def test_equal_routes_are_chosen_by_weight():
    import random

    model = model_of_routes(route("a", weight=3), route("b", weight=1), route("c", weight=0))
    draw = random.Random(7).random
    first = Counter(plan(model, "chat", rng=draw).offers[0].provider for _ in range(4000))
    assert first["c"] == 0
    assert 0.70 < first["a"] / 4000 < 0.80


def test_routes_that_are_equal_in_everything_keep_their_order():
    """Routes without weight are not drawn; offers have no order, so they must not be compared."""
    health = Health(Retry(cooldown_failures=1), Clock())
    model = model_of_routes(*(route(name, weight=0) for name in "abc"))
    assert tried(model, health=health) == ["a:chat", "b:chat", "c:chat"]
    for name in "abc":
        health.failed(f"{name}/large-1", name, "upstream_failed")
    assert tried(model, health=health) == ["a:chat"]


def test_a_conversation_stays_with_its_route():
    model = model_of_routes(route("a"), route("b"), route("c", ("messages",), priority=3))
    assert tried(model, sticky="c/large-1")[0] == "c:messages"
    assert tried(model, sticky="gone/x")[0] == "a:chat"


def test_a_conversation_leaves_a_route_that_cools_down():
    clock = Clock()
    health = Health(Retry(cooldown_failures=1), clock)
    model = model_of_routes(route("a"), route("b"))
    health.failed("b/large-1", "b", "upstream_failed")
    assert tried(model, health=health, sticky="b/large-1") == ["a:chat", "b:chat"]


def test_a_pinned_provider_is_the_only_one_tried():
    model = model_of_routes(route("a"), route("b"))
    assert tried(model, pinned="b") == ["b:chat"]
    assert tried(model, pinned="gone") == []


def test_routes_in_cooldown_come_last():
    clock = Clock()
    health = Health(Retry(cooldown_failures=3, cooldown_seconds=30), clock)
    model = model_of_routes(route("a"), route("b"), route("c"))
    for _ in range(3):
        health.failed("a/large-1", "a", "upstream_failed", "boom")
    assert tried(model, health=health) == ["b:chat", "c:chat", "a:chat"]
    clock.at += 31
    assert tried(model, health=health) == ["a:chat", "b:chat", "c:chat"]


def test_if_all_routes_cool_down_the_first_to_recover_is_tried():
    health = Health(Retry(), Clock())
    model = model_of_routes(route("a"), route("b"), route("c"))
    for name, seconds in (("a", 50), ("b", 20), ("c", 90)):
        health.failed(f"{name}/large-1", name, "rate_limited", retry_after=seconds)
    assert tried(model, health=health) == ["b:chat"]
    with_available = model_of_routes(route("a"), route("b"), route("c"), route("d", priority=9))
    assert tried(with_available, health=health, attempts=4) == ["d:chat", "b:chat", "a:chat", "c:chat"]


def test_a_single_route_is_tried_even_in_cooldown():
    health = Health(Retry(), Clock())
    health.failed("a/large-1", "a", "rate_limited", retry_after=50)
    assert tried(model_of_routes(route("a")), health=health) == ["a:chat"]


def test_a_caller_that_needs_no_answer_gets_no_route_that_cools_down():
    clock = Clock()
    health = Health(Retry(), clock)
    one, two = model_of_routes(route("a")), model_of_routes(route("a"), route("b"))
    health.failed("a/large-1", "a", "rate_limited", retry_after=50)
    assert tried(one, health=health, cooling=False) == []
    assert tried(two, health=health, cooling=False) == ["b:chat"]
    clock.at += 51
    assert tried(one, health=health, cooling=False) == ["a:chat"]


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 2), st.integers(0, 3), st.booleans()),
        max_size=8,
        unique_by=lambda r: r[0],
    ),
    st.integers(1, 3),
)
def test_no_plan_exceeds_the_attempts_or_repeats_a_route(rows, attempts):
    health = Health(Retry(cooldown_failures=1), Clock())
    routes = [route(name, priority=p, weight=w) for name, p, w, _ in rows]
    for name, _, _, cooling in rows:
        if cooling:
            health.failed(f"{name}/large-1", name, "x")
    if not routes:
        return
    found = plan(model_of_routes(*routes), "chat", health=health, attempts=attempts)
    assert 1 <= found.calls <= attempts
    assert {offer.provider for offer in found.offers} == {name for name, *_ in rows}, (
        "all are offered, in case one refuses"
    )
    assert len({offer.route for offer in found.offers}) == len(found.offers)


class TestSticky:
    def test_the_last_route_of_a_conversation_is_remembered(self):
        sticky = Sticky()
        assert sticky.get(b"x") is None
        sticky.remember(b"x", "a")
        sticky.remember(b"x", "b")
        assert sticky.get(b"x") == "b"

    def test_a_route_is_forgotten_when_its_prompt_cache_has_expired(self):
        clock = Clock()
        sticky = Sticky(clock=clock)
        sticky.remember(b"x", "a")
        clock.at += 3600
        assert sticky.get(b"x") == "a"
        clock.at += 1
        assert sticky.get(b"x") is None, "reading does not renew the entry"
        sticky.remember(b"x", "a")
        assert sticky.get(b"x") == "a"

    def test_the_least_recently_used_conversation_is_forgotten(self):
        sticky = Sticky(capacity=2)
        sticky.remember(b"1", "a")
        sticky.remember(b"2", "a")
        sticky.get(b"1")
        sticky.remember(b"3", "a")
        assert (sticky.get(b"1"), sticky.get(b"2"), len(sticky)) == ("a", None, 2)
        sticky.remember(b"3", "b")  # writing renews the entry even if it was not read
        sticky.remember(b"4", "a")
        assert (sticky.get(b"1"), sticky.get(b"3")) == (None, "b")


CONVERSATIONS = {
    "chat": (
        {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"}]},
        {
            "messages": [
                {"role": "system", "content": "S"},
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Yo"},
                {"role": "user", "content": "more"},
            ]
        },
    ),
    "messages": (
        {"system": [{"type": "text", "text": "S"}], "messages": [{"role": "user", "content": "Hi"}]},
        {
            "system": [{"type": "text", "text": "S"}],
            "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": []}],
        },
    ),
    "responses": (
        {"instructions": "S", "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]},
        {
            "instructions": "S",
            "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}, {"type": "function_call"}],
        },
    ),
    "a cache key": ({"prompt_cache_key": "k", "input": "one"}, {"prompt_cache_key": "k", "input": "two"}),
}


@pytest.mark.parametrize("case", CONVERSATIONS)
def test_turns_of_a_conversation_have_the_same_fingerprint(case):
    first, later = CONVERSATIONS[case]
    assert fingerprint("acc", "m", first) == fingerprint("acc", "m", later)
    assert fingerprint("acc", "m", first) != fingerprint("other", "m", first)
    assert fingerprint("acc", "m", first) != fingerprint("acc", "n", first)


def test_different_openings_have_different_fingerprints():
    bodies = [first for first, _ in CONVERSATIONS.values()] + [
        {"input": "Hi"},
        {"input": "Ho"},
        {"prompt_cache_key": "another", "input": "one"},
        {"messages": [{"role": "user", "content": "\ud800"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "Ho"}]}]},
    ]
    assert len({fingerprint("acc", "m", body) for body in bodies}) == len(bodies)


@pytest.mark.parametrize("name", ["system", "instructions"])
def test_a_system_text_outside_the_messages_changes_the_fingerprint(name):
    turns = {"messages": [{"role": "user", "content": "hi"}], "prompt_cache_key": ""}
    assert fingerprint("acc", "m", {**turns, name: "a"}) != fingerprint("acc", "m", {**turns, name: "b"})


def test_a_fingerprint_covers_the_first_8_kb_of_all_texts():
    def of_texts(*texts):
        return fingerprint("acc", "m", {"messages": [{"role": "system", "content": text} for text in texts]})

    half, longer = "x" * 4096, "x" * 9000
    assert of_texts(longer) == of_texts(longer + "y") == of_texts(longer, "z")
    assert of_texts(half, half, "y") == of_texts(half, half, "z")
    assert of_texts(half, half[:100], "y") != of_texts(half, half[:100], "z")


@given(
    st.dictionaries(
        st.sampled_from(["messages", "input", "system", "instructions", "prompt_cache_key"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.just("x" * 9000),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "content"]), inner, max_size=2)
            ),
            max_leaves=6,
        ),
    )
)
def test_any_body_has_a_fingerprint(body):
    assert len(fingerprint("acc", "m", body)) == 16
