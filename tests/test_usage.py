"""Usage becomes disjoint buckets; recorded usage of real providers is billed the same by an independent sum."""

import json
import timeit
from dataclasses import fields
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.places import TRAFFIC
from tollgate.charge import price_usage
from tollgate.config.pricing import Pricing
from tollgate.tariff import Tariff
from tollgate.usage import MAX_TOKENS, Usage, from_hub, impossible_counts, with_whole_counts

BUCKETS = (
    "input",
    "cache_read",
    "cache_write",
    "cache_write_1h",
    "output",
    "reasoning",
    "searches",
    "images",
    "audio_input",
    "audio_cache_read",
    "audio_output",
    "image_output",
)


def buckets(usage):
    return {name: getattr(usage, name) for name in BUCKETS if getattr(usage, name)}


@pytest.mark.parametrize(
    ("hub", "excludes", "expected"),
    [
        pytest.param({"input": 10, "output": 5}, (), {"input": 10, "output": 5}, id="plain"),
        pytest.param(
            {"input": 100, "cache_read": 40, "cache_write": 10, "output": 5},
            (),
            {"input": 50, "cache_read": 40, "cache_write": 10, "output": 5},
            id="caches inside the input",
        ),
        pytest.param(
            {"input": 4, "cache_read": 9116, "cache_write": 219, "output": 5},
            ("cache_read", "cache_write"),
            {"input": 4, "cache_read": 9116, "cache_write": 219, "output": 5},
            id="caches beside the input",
        ),
        pytest.param(
            {"input": 100, "cache_write": 30, "cache_write_1h": 20},
            (),
            {"input": 70, "cache_write": 10, "cache_write_1h": 20},
            id="one-hour writes are part of the cache writes",
        ),
        pytest.param(
            {"input": 100, "cache_write_1h": 20},
            (),
            {"input": 80, "cache_write_1h": 20},
            id="only one-hour writes are reported",
        ),
        pytest.param(
            {"output": 30, "reasoning": 10}, (), {"output": 20, "reasoning": 10}, id="reasoning inside the output"
        ),
        pytest.param(
            {"input": 291, "output": 26, "reasoning": 196},
            ("reasoning",),
            {"input": 291, "output": 26, "reasoning": 196},
            id="reasoning beside the output",
        ),
        pytest.param(
            {"input": 85, "output": 28, "reasoning": 54, "total": 167},
            (),
            {"input": 85, "output": 28, "reasoning": 54},
            id="the total shows reasoning beside the output",
        ),
        pytest.param(
            {"input": 10, "output": 28, "reasoning": 8, "total": 38},
            ("reasoning",),
            {"input": 10, "output": 20, "reasoning": 8},
            id="the total shows reasoning inside the output",
        ),
        pytest.param(
            {"input": 61, "output": 18, "reasoning": 119, "total": 79},
            ("reasoning",),
            {"input": 61, "output": 18, "reasoning": 119},
            id="more reasoning than output is not part of it, whatever the total",
        ),
        pytest.param(
            {"input": 35, "output": 12, "total": 109},
            ("reasoning",),
            {"input": 35, "output": 12, "reasoning": 62},
            id="reasoning derived from the total",
        ),
        pytest.param(
            {"input": 35, "output": 12, "total": 109},
            (),
            {"input": 35, "output": 12},
            id="a total alone adds nothing undeclared",
        ),
        pytest.param(
            {"input": 100, "audio_input": 30, "output": 50, "audio_output": 20},
            (),
            {"input": 70, "audio_input": 30, "output": 30, "audio_output": 20},
            id="audio inside both",
        ),
        pytest.param(
            {"input": 100, "cache_read": 40, "audio_cache_read": 30, "audio_input": 50},
            (),
            {"input": 10, "cache_read": 10, "audio_cache_read": 30, "audio_input": 50},
            id="cached audio is part of the cached tokens",
        ),
        pytest.param(
            {"output": 2309, "reasoning": 529, "image_output": 1120},
            (),
            {"output": 660, "reasoning": 529, "image_output": 1120},
            id="images inside the output",
        ),
        pytest.param(
            {"input": 1, "searches": 3, "images": 2},
            (),
            {"input": 1, "searches": 3, "images": 2},
            id="searches and images",
        ),
        pytest.param({"input": 5.0, "output": "7"}, (), {"input": 5, "output": 7}, id="floats and strings"),
        pytest.param({"input": Decimal(5), "output": Decimal("7.0")}, (), {"input": 5, "output": 7}, id="decimals"),
        pytest.param({"output": 5}, (), {"output": 5}, id="output alone"),
        pytest.param({"input": 5}, (), {"input": 5}, id="input alone"),
        pytest.param(
            {"searches": 10_000, "input": MAX_TOKENS},
            (),
            {"searches": 10_000, "input": MAX_TOKENS},
            id="the accepted maximum",
        ),
        pytest.param({"cache_read": 7, "output": 5}, (), {"cache_read": 7, "output": 5}, id="parts of the input alone"),
        pytest.param(
            {"input": 9, "output": None, "reasoning": 3, "audio_output": 2},
            (),
            {"input": 9, "reasoning": 3, "audio_output": 2},
            id="parts of the output alone",
        ),
        pytest.param(
            {"cache_read": 7, "cache_write": 2, "output": 5},
            ("cache_read",),
            {"cache_read": 7, "cache_write": 2, "output": 5},
            id="parts beside and inside an unreported input",
        ),
        pytest.param(
            {"audio_input": 4, "cache_write": 3, "image_output": 2},
            (),
            {"audio_input": 4, "cache_write": 3, "image_output": 2},
            id="sound, pictures and a written cache alone",
        ),
        pytest.param({"input": None, "output": None}, (), {}, id="nulls"),
        pytest.param({"input": 9, "output": 1, "cache_read": None}, (), {"input": 9, "output": 1}, id="a null part"),
        pytest.param(
            {"input": 10, "output": 0, "total": 15},
            ("reasoning",),
            {"input": 10, "reasoning": 5},
            id="reasoning derived from the total, without output",
        ),
        pytest.param(
            {"input": 10, "output": 5, "reasoning": 3, "total": 20},
            ("reasoning",),
            {"input": 10, "output": 5, "reasoning": 3},
            id="a total that exceeds all parts",
        ),
        pytest.param(None, (), {}, id="no usage"),
        pytest.param({}, (), {}, id="empty usage"),
    ],
)
def test_every_token_is_in_exactly_one_bucket(request, hub, excludes, expected):
    usage = from_hub(hub, excludes=excludes)
    assert buckets(usage) == expected
    assert len(usage.flags) == ("the total shows reasoning" in request.node.name)


@pytest.mark.parametrize(
    ("hub", "expected", "flag"),
    [
        pytest.param({"input": -5, "output": 3}, {"output": 3}, "input was -5", id="negative"),
        pytest.param({"input": 10**12}, {"input": MAX_TOKENS}, "input was 1000000000000", id="too large"),
        pytest.param(
            {"input": 10, "cache_read": 15},
            {"cache_read": 10},
            "cache_read was 15, more than the 10 of input",
            id="more cached than sent",
        ),
        pytest.param(
            {"output": 10, "reasoning": 11},
            {"reasoning": 10},
            "reasoning was 11, more than the 10 of output",
            id="more reasoning than output",
        ),
        pytest.param({"input": "many"}, {}, "input was 'many'", id="a word"),
        pytest.param({"input": 1.5}, {}, "input was '1.5'", id="a fraction"),
        pytest.param({"input": True}, {}, "input was 'True'", id="a boolean"),
        pytest.param({"input": Decimal("1.5")}, {}, "input was '1.5'", id="a decimal fraction"),
        pytest.param({"input": Decimal("Infinity")}, {}, "input was 'Infinity'", id="infinity"),
        pytest.param({"input": "9" * 20}, {}, "input was '99999", id="too many digits"),
        pytest.param({"input": [1]}, {}, "input was '[1]'", id="a list"),
        pytest.param({"searches": 10**9}, {"searches": 10_000}, "searches was", id="a billion searches"),
        pytest.param({"images": 10**9}, {"images": 10_000}, "images was", id="a billion pictures"),
        pytest.param({"cost": "gratis"}, {}, "cost was 'gratis'", id="a cost that is no number"),
        pytest.param({"cost": -1}, {}, "cost was -1", id="a negative cost"),
        pytest.param(
            {"input": 9, "output": 9, "reasoning": 3, "total": 21},
            {"input": 9, "output": 9, "reasoning": 3},
            "reasoning is inside output as declared, but the total says otherwise",
            id="a wrong declaration",
        ),
    ],
)
def test_impossible_numbers_are_clamped_and_flagged(hub, expected, flag):
    usage = from_hub(hub)
    assert buckets(usage) == expected
    assert len(usage.flags) == 1
    assert flag in usage.flags[0]


def test_totals_contain_every_bucket_once():
    usage = Usage(
        input=1,
        cache_read=2,
        cache_write=4,
        cache_write_1h=8,
        audio_input=16,
        audio_cache_read=32,
        output=64,
        reasoning=128,
        audio_output=256,
        image_output=512,
    )
    assert (usage.prompt_tokens, usage.completion_tokens) == (63, 960)


def test_subtracting_usage_never_goes_below_zero():
    whole = Usage(input=10, cache_read=20, cache_write=30, cache_write_1h=40, output=50, searches=2)
    part = Usage(input=1, cache_read=2, cache_write=3, cache_write_1h=4, output=5)
    assert whole.without(part) == Usage(9, 18, 27, 36, 45, searches=2)
    assert part.without(whole) == Usage()


def test_subtracting_usage_covers_every_count():
    counts = {each.name: 7 for each in fields(Usage) if each.type == "int"}
    assert Usage(**counts).without(Usage(**counts)) == Usage()


def test_usage_is_written_into_the_members_that_a_hub_usage_has():
    usage = Usage(
        input=1,
        cache_read=2,
        cache_write=4,
        cache_write_1h=8,
        audio_input=16,
        audio_cache_read=32,
        output=64,
        reasoning=128,
    )
    counts = ("input", "output", "cache_read", "cache_write", "cache_write_1h", "reasoning")
    reported = {**dict.fromkeys(counts, 7), "tier": "x"}
    assert usage.in_hub(reported) == {
        "input": 63,
        "output": 192,
        "cache_read": 34,
        "cache_write": 12,
        "cache_write_1h": 8,
        "reasoning": 128,
        "tier": "x",
    }
    assert usage.in_hub({"output": 7}) == {"output": 192}
    assert Usage(searches=3).in_hub({"searches": -(10.0**30)}) == {"searches": 3}


def test_usage_of_other_models_is_kept_by_name():
    reported = [{"model": "m", "input": 5}, {"input": 6}, {"model": 7, "input": 7}, "m"]
    assert from_hub({"input": 9, "others": reported}) == Usage(input=9, others=(("m", Usage(input=5)),))


@pytest.mark.parametrize(
    ("hub", "problems"),
    [
        pytest.param({"input": 10, "output": MAX_TOKENS}, [], id="all possible"),
        pytest.param({"input": "10", "output": None, "cache_read": 2.0}, [], id="strings and floats"),
        pytest.param({"input": 0.0, "output": "0"}, [], id="zeros as string and float"),
        pytest.param({"input": 1, "output": MAX_TOKENS + 1}, ["output was 20000001"], id="one too many"),
        pytest.param({"input": -1, "output": 1}, ["input was -1"], id="negative"),
        pytest.param({"output": "many", "input": 1.5}, ["output was many", "input was 1.5"], id="no integers"),
        pytest.param({"input": 1, "cache_read": "many"}, [], id="a word for a part counts as absent"),
        pytest.param({"cache_read": "9" * 19}, [f"cache_read was {'9' * 19}"], id="a part that is too large"),
        pytest.param({"input": 1, "searches": 10**9, "cost": 10**9}, [], id="not counts of tokens"),
        pytest.param({}, [], id="nothing"),
    ],
)
def test_impossible_counts_are_named(hub, problems):
    assert impossible_counts(hub) == problems


def test_counts_written_as_strings_become_integers():
    reported = {"input": "5", "output": 2.0, "cache_read": "many", "reasoning": None, "tier": "7"}
    whole = with_whole_counts(reported)
    assert whole == {"input": 5, "output": 2, "cache_read": "many", "reasoning": None, "tier": "7"}
    assert [type(count) for count in whole.values()] == [int, int, str, type(None), str]
    assert reported["input"] == "5"
    assert type(with_whole_counts({"searches": -1e30})["searches"]) is float, "too large for JSON writers' integers"


def test_a_reported_cost_keeps_its_digits():
    assert from_hub({"input": 1, "cost": 0.000123}).reported_cost == Decimal("0.000123")
    assert from_hub({"input": 1, "cost": "0.5"}).reported_cost == Decimal("0.5")
    assert from_hub({"input": 1}).reported_cost is None


def test_a_reported_cost_of_zero_is_a_cost_and_a_negative_one_is_flagged():
    assert from_hub({"input": 1, "cost": 0.0}) == Usage(input=1, reported_cost=Decimal(0))
    assert from_hub({"input": 1, "cost": -0.5}) == Usage(input=1, flags=("cost was -0.5",))


counts = st.one_of(
    st.none(),
    st.integers(-10, 10**9),
    st.floats(),
    st.sampled_from(["", "5", "-3", "--3", "x"]),
    st.booleans(),
    st.lists(st.integers(), max_size=1),
)
hubs = st.dictionaries(st.sampled_from([*BUCKETS, "total", "cost"]), counts)
declared = st.sets(st.sampled_from(["cache_read", "cache_write", "reasoning"]))


@given(hubs, declared)
def test_any_reported_usage_becomes_valid_buckets(hub, excludes):
    usage = from_hub(hub, excludes=excludes)
    assert all(type(getattr(usage, name)) is int and 0 <= getattr(usage, name) <= 3 * MAX_TOKENS for name in BUCKETS)


@given(
    st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6)
)
def test_buckets_sum_to_the_totals(fresh, read, write, text, thought):
    inside = from_hub(
        {
            "input": fresh + read + write,
            "cache_read": read,
            "cache_write": write,
            "output": text + thought,
            "reasoning": thought,
        }
    )
    beside = from_hub(
        {"input": fresh, "cache_read": read, "cache_write": write, "output": text, "reasoning": thought},
        excludes=("cache_read", "cache_write", "reasoning"),
    )
    assert inside == beside == Usage(input=fresh, cache_read=read, cache_write=write, output=text, reasoning=thought)
    assert (inside.prompt_tokens, inside.completion_tokens) == (fresh + read + write, text + thought)
    assert not inside.flags


def test_pricing_a_request_takes_microseconds():
    tariff = Tariff(
        Pricing(
            {"prompt": Decimal("0.3"), "completion": Decimal("0.45"), "input_cache_read": Decimal("0.03")},
            {},
            unit=1_000_000,
        )
    )
    usage = Usage(input=600, cache_read=400, output=280, reasoning=20)
    rates, now = {"USD": Decimal(1)}, datetime.now(UTC)
    best = min(timeit.repeat(lambda: price_usage(usage, tariff, rates, at=now), number=500, repeat=7)) / 500
    assert best < 40e-6, f"{best * 1e6:.1f} us"  # 2.5 us on an idle machine


# -- recorded usage ---------------------------------------------------------------------------------------------

PRICES = {
    "prompt": "0.000003",
    "completion": "0.000015",
    "input_cache_read": "0.0000003",
    "input_cache_write": "0.00000375",
    "input_cache_write_1h": "0.000006",
    "internal_reasoning": "0.00002",
}


def chat_bill(u):
    """(hub usage, excludes, bill) of a chat usage block. The bill is summed directly from the vendor's own fields."""
    details, done = u.get("prompt_tokens_details") or {}, u.get("completion_tokens_details") or {}
    read = details.get("cached_tokens") or u.get("prompt_cache_hit_tokens") or 0
    thought = done.get("reasoning_tokens") or 0
    prompt, out = u.get("prompt_tokens") or 0, u.get("completion_tokens") or 0
    beside = thought > 0 and u.get("total_tokens") == prompt + out + thought
    hub = {"input": prompt, "output": out, "cache_read": read, "reasoning": thought}
    text = out if beside else max(0, out - thought)
    return (
        hub,
        ("reasoning",) if beside else (),
        {
            "prompt": prompt - read,
            "input_cache_read": read,
            "completion": text,
            "internal_reasoning": thought if beside else min(thought, out),
        },
    )


def messages_bill(u):
    read, made = u.get("cache_read_input_tokens") or 0, u.get("cache_creation_input_tokens") or 0
    hour = (u.get("cache_creation") or {}).get("ephemeral_1h_input_tokens") or 0
    fresh, out = u.get("input_tokens") or 0, u.get("output_tokens") or 0
    hub = {"input": fresh + read + made, "output": out, "cache_read": read, "cache_write": made, "cache_write_1h": hour}
    return (
        hub,
        (),
        {
            "prompt": fresh,
            "input_cache_read": read,
            "input_cache_write": made - hour,
            "input_cache_write_1h": hour,
            "completion": out,
        },
    )


def responses_bill(u):
    read = (u.get("input_tokens_details") or {}).get("cached_tokens") or 0
    thought = (u.get("output_tokens_details") or {}).get("reasoning_tokens") or 0
    prompt, out = u.get("input_tokens") or 0, u.get("output_tokens") or 0
    hub = {"input": prompt, "output": out, "cache_read": read, "reasoning": thought}
    return (
        hub,
        (),
        {"prompt": prompt - read, "input_cache_read": read, "completion": out - thought, "internal_reasoning": thought},
    )


def gemini_bill(u):
    thought, tool = u.get("thoughtsTokenCount") or 0, u.get("toolUsePromptTokenCount") or 0
    read, prompt, out = (
        u.get("cachedContentTokenCount") or 0,
        u.get("promptTokenCount") or 0,
        u.get("candidatesTokenCount") or 0,
    )
    hub = {"input": prompt + tool, "output": out + thought, "cache_read": read, "reasoning": thought}
    return (
        hub,
        (),
        {"prompt": prompt + tool - read, "input_cache_read": read, "completion": out, "internal_reasoning": thought},
    )


BILLS = {
    "openai-chat": (lambda body: body.get("usage"), chat_bill),
    "anthropic-messages": (lambda body: body.get("usage"), messages_bill),
    "openai-responses": (lambda body: (body.get("response") or body).get("usage"), responses_bill),
    "gemini-generate": (lambda body: body.get("usageMetadata"), gemini_bill),
}


def recorded(protocol, find):
    for line in json.loads((TRAFFIC / "index.json").read_text())["exchanges"]:
        if line["protocol"] != protocol or (line.get("status") or 200) >= 400:
            continue
        answer = json.loads((TRAFFIC / line["file"]).read_text())["response"]
        bodies = [answer["body"]] if isinstance(answer.get("body"), dict) else []
        for text in (answer.get("sse") or "").splitlines():
            if text.startswith("data:") and '"usage' in text:
                bodies.append(json.loads(text[5:]))
        reported = [usage for body in bodies if isinstance(body, dict) and isinstance(usage := find(body), dict)]
        if reported:
            yield line["id"], reported[-1]


@pytest.mark.parametrize("protocol", BILLS)
def test_recorded_usage_is_billed_like_an_independent_sum(protocol):
    if not TRAFFIC.exists():
        pytest.skip("shared/traffic is not beside this repository")
    find, bill = BILLS[protocol]
    tariff = Tariff(Pricing({name: Decimal(price) for name, price in PRICES.items()}, PRICES))
    seen = 0
    for name, reported in recorded(protocol, find):
        hub, excludes, parts = bill(reported)
        due = sum(Fraction(PRICES[price]) * tokens for price, tokens in parts.items())
        usage = from_hub(hub, excludes=excludes)
        charge = price_usage(usage, tariff, {"USD": Decimal(1)}, at=datetime(2026, 11, 1, tzinfo=UTC))
        assert Fraction(charge.cost) == due, (name, reported, usage)
        assert usage.prompt_tokens + usage.completion_tokens == sum(parts.values()), (name, reported)
        seen += 1
    assert seen > 90
