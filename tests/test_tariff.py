"""Which prices apply to a request, fallbacks for absent prices, and rounding."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgate.charge import Charge, price_usage, upper_bound
from tollgate.config.pricing import TOKEN_PRICES, PriceWindow, Pricing, Volume
from tollgate.tariff import Tariff, tiers_with_a_price
from tollgate.usage import Usage

RATES = {"USD": Decimal(1), "CNY": Decimal("0.14")}
TUESDAY_NOON = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)


def exact(prices):
    return {name: Decimal(price) for name, price in prices.items()}


def row(prices, **bounds):
    return Volume(exact(prices), prices, **bounds)


def tariff(prices, **more):
    return Tariff(Pricing(exact(prices), prices, **more))


def cost(usage, prices, at=TUESDAY_NOON, service_tier=None, **more):
    return price_usage(usage, tariff(prices, **more), RATES, at=at, service_tier=service_tier).cost


@pytest.mark.parametrize(
    ("usage", "prices", "expected"),
    [
        pytest.param(Usage(input=10, output=4), {"prompt": "2", "completion": "3"}, "32", id="prompt and completion"),
        pytest.param(Usage(cache_read=10), {"prompt": "2"}, "20", id="no cache price: prompt price"),
        pytest.param(Usage(cache_read=10), {"prompt": "2", "input_cache_read": "0"}, "0", id="zero is free"),
        pytest.param(Usage(cache_read=10), {"prompt": "2", "input_cache_read": "0.5"}, "5", id="its own cache price"),
        pytest.param(Usage(cache_write=10), {"prompt": "2"}, "20", id="no cache-write price: prompt price"),
        pytest.param(
            Usage(cache_write_1h=10),
            {"prompt": "2", "input_cache_write": "3"},
            "30",
            id="no 1h price: cache-write price",
        ),
        pytest.param(Usage(cache_write_1h=10), {"prompt": "2"}, "20", id="no 1h and no write price: prompt price"),
        pytest.param(Usage(reasoning=10), {"completion": "3"}, "30", id="no reasoning price: completion price"),
        pytest.param(Usage(reasoning=10), {"completion": "3", "internal_reasoning": "0"}, "0", id="free reasoning"),
        pytest.param(
            Usage(audio_input=10, audio_output=10), {"prompt": "2", "completion": "3"}, "50", id="audio at text prices"
        ),
        pytest.param(
            Usage(audio_input=10, audio_output=10),
            {"prompt": "2", "audio": "5", "audio_output": "7"},
            "120",
            id="audio prices",
        ),
        pytest.param(
            Usage(cache_read=10, audio_cache_read=10),
            {"prompt": "2", "input_cache_read": "0.5"},
            "10",
            id="cached audio at the cache price",
        ),
        pytest.param(
            Usage(cache_read=10, audio_cache_read=10),
            {"prompt": "2", "input_cache_read": "0.5", "input_audio_cache": "1"},
            "15",
            id="cached audio price",
        ),
        pytest.param(Usage(audio_cache_read=10), {"prompt": "2"}, "20", id="cached audio without cache prices"),
        pytest.param(Usage(output=10, image_output=10), {"completion": "3"}, "60", id="generated images at text price"),
        pytest.param(
            Usage(output=10, image_output=10),
            {"completion": "3", "image_output_token": "30"},
            "330",
            id="generated images at their own price",
        ),
        pytest.param(Usage(), {"request": "0.005"}, "0.005", id="a fee per request"),
        pytest.param(
            Usage(searches=3, images=2), {"web_search": "0.01", "image": "0.1"}, "0.23", id="searches and images"
        ),
        pytest.param(Usage(searches=3, images=2), {"prompt": "1"}, "0", id="searches without a price cost nothing"),
        pytest.param(Usage(input=10, output=10), {}, "0", id="no price known"),
    ],
)
def test_a_bucket_is_billed_at_its_price_or_a_fallback(usage, prices, expected):
    assert cost(usage, prices) == Decimal(expected)


def test_unit_divides_token_prices_but_not_flat_ones():
    prices = {"prompt": "0.30", "request": "0.01", "web_search": "0.02"}
    assert cost(Usage(input=1000, searches=1), prices, unit=1_000_000) == Decimal("0.0303")


def test_a_unit_that_is_no_power_of_ten_is_rounded_only_at_the_end():
    assert cost(Usage(input=1), {"prompt": "1"}, unit=3) == Decimal("0.333333333333")
    assert cost(Usage(input=3), {"prompt": "1"}, unit=3) == Decimal(1)


def test_a_charge_in_another_currency_has_both_amounts():
    charge = price_usage(
        Usage(input=1000), tariff({"prompt": "0.8"}, unit=1000, currency="CNY"), RATES, at=TUESDAY_NOON
    )
    assert (charge.cost, charge.native, charge.currency, charge.rate) == (
        Decimal("0.112"),
        Decimal("0.8"),
        "CNY",
        Decimal("0.14"),
    )


def test_an_unknown_currency_is_reported_with_the_known_ones():
    with pytest.raises(ValueError, match="no exchange rate for EUR, known are CNY, USD"):
        price_usage(Usage(), tariff({}, currency="EUR"), RATES, at=TUESDAY_NOON)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [(199_999, "199999"), (200_000, "200000"), (200_001, "400002")],
)
def test_a_volume_row_applies_above_its_minimum_to_the_whole_request(prompt, expected):
    assert cost(
        Usage(input=prompt), {"prompt": "1"}, volumes=(row({"prompt": "2"}, min_prompt_tokens=200_000),)
    ) == Decimal(expected)


def test_cached_tokens_count_towards_a_volume_row():
    assert cost(
        Usage(input=1, cache_read=200_000),
        {"prompt": "1", "input_cache_read": "0"},
        volumes=(row({"prompt": "2"}, min_prompt_tokens=200_000),),
    ) == Decimal(2)


def test_later_rows_override_only_the_prices_they_have():
    volumes = (
        row({"prompt": "2"}, min_prompt_tokens=10),
        row({"prompt": "3", "completion": "9"}, min_prompt_tokens=20),
    )
    assert cost(Usage(input=15, output=1), {"prompt": "1", "completion": "5"}, volumes=volumes) == Decimal(15 * 2 + 5)
    assert cost(Usage(input=25, output=1), {"prompt": "1", "completion": "5"}, volumes=volumes) == Decimal(25 * 3 + 9)


def test_a_fallback_price_uses_the_volume_row():
    assert cost(
        Usage(cache_read=11), {"prompt": "1"}, volumes=(row({"prompt": "2"}, min_prompt_tokens=10),)
    ) == Decimal(22)


@pytest.mark.parametrize(("prompt", "output", "expected"), [(10, 199, "199"), (10, 200, "400"), (50, 200, "200")])
def test_a_volume_row_by_completion_size(prompt, output, expected):
    volumes = (row({"completion": "2"}, min_prompt_tokens=0, max_prompt_tokens=32, min_completion_tokens=200),)
    assert cost(Usage(input=prompt, output=output), {"completion": "1"}, volumes=volumes) == Decimal(expected)


def test_the_maximum_of_a_volume_row_is_inclusive():
    volumes = (row({"completion": "9"}, max_completion_tokens=5),)
    assert cost(Usage(output=5), {"completion": "1"}, volumes=volumes) == Decimal(45)
    assert cost(Usage(output=6), {"completion": "1"}, volumes=volumes) == Decimal(6)


def test_a_volume_row_by_thinking():
    volumes = (row({"completion": "8"}, thinking=True), row({"completion": "3"}, thinking=False))
    assert cost(Usage(output=1, reasoning=1), {"completion": "2"}, volumes=volumes) == Decimal(16)
    assert cost(Usage(output=1), {"completion": "2"}, volumes=volumes) == Decimal(3)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("2026-11-17T16:29", "2"),
        ("2026-11-17T16:30", "1"),
        ("2026-11-17T23:59", "1"),
        ("2026-11-18T00:29", "1"),
        ("2026-11-18T00:30", "2"),
        ("2026-11-20T17:00", "1"),
        ("2026-11-21T00:10", "1"),
        ("2026-11-21T17:00", "2"),
        ("2026-11-22T17:00", "2"),
        ("2026-11-23T00:10", "2"),
    ],
)
def test_a_price_window_over_midnight_belongs_to_the_day_it_begins(at, expected):
    weekdays = (PriceWindow({"prompt": Decimal(1)}, "16:30", "00:30", (1, 2, 3, 4, 5)),)
    assert cost(
        Usage(input=1), {"prompt": "2"}, at=datetime.fromisoformat(at).replace(tzinfo=UTC), windows=weekdays
    ) == Decimal(expected)


@pytest.mark.parametrize(
    ("at", "start", "end", "expected"),
    [
        pytest.param("2026-11-20T08:59", "09:00", "17:30", "2", id="before"),
        pytest.param("2026-11-20T09:00", "09:00", "17:30", "1", id="its first minute"),
        pytest.param("2026-11-20T17:29", "09:00", "17:30", "1", id="its last minute"),
        pytest.param("2026-11-20T17:30", "09:00", "17:30", "2", id="after"),
        pytest.param("2026-11-21T12:00", "09:00", "17:30", "2", id="another day"),
        pytest.param("2026-11-20T23:59", "12:00", "24:00", "1", id="to midnight"),
        pytest.param("2026-11-21T00:00", "12:00", "24:00", "2", id="after midnight"),
        pytest.param("2026-11-23T01:59", "22:00", "02:00", "1", id="on Monday, in Sunday's window"),
        pytest.param("2026-11-23T22:00", "22:00", "02:00", "2", id="not in a window of Monday"),
    ],
)
def test_a_price_window_includes_its_start_and_excludes_its_end(at, start, end, expected):
    friday_and_sunday = (PriceWindow({"prompt": Decimal(1)}, start, end, (5, 7)),)
    assert cost(Usage(input=1), {"prompt": "2"}, at=datetime.fromisoformat(at), windows=friday_and_sunday) == Decimal(
        expected
    )


def test_a_price_window_is_in_utc_and_may_last_all_day():
    beijing = datetime(2026, 11, 18, 0, 45, tzinfo=timezone(timedelta(hours=8)))
    evening = (PriceWindow({"prompt": Decimal(1)}, "16:30", "17:00"),)
    assert cost(Usage(input=1), {"prompt": "2"}, at=beijing, windows=evening) == Decimal(1)
    weekend = (PriceWindow({"prompt": Decimal(1)}, "00:00", "00:00", (6, 7)),)
    assert cost(Usage(input=1), {"prompt": "2"}, at=datetime(2026, 11, 21, 5, 0), windows=weekend) == Decimal(1)
    assert cost(Usage(input=1), {"prompt": "2"}, windows=weekend) == Decimal(2)


@pytest.mark.parametrize("text", ["24:01", "12", "12:60", "noon", "1:1"])
def test_an_invalid_time_of_a_price_window_is_rejected(text):
    with pytest.raises(ValueError, match="hour and minute"):
        tariff({}, windows=(PriceWindow({}, text, "00:00"),))


FLEX = {"service_tiers": {"flex": exact({"prompt": "0.5", "completion": "1"})}, "multipliers": exact({"fast": "6"})}


def test_a_service_tier_replaces_the_prices_it_has():
    prices = {"prompt": "1", "completion": "2", "request": "5"}
    assert cost(Usage(input=10, output=10), prices, service_tier="flex", **FLEX) == Decimal(20)
    assert cost(Usage(input=10, output=10), prices, service_tier="default", **FLEX) == Decimal(35)
    assert cost(Usage(input=10, output=10), prices, service_tier="fast", **FLEX) == Decimal(185)


def test_the_tier_fast_has_the_prices_of_priority_if_it_has_none():
    tiers = {"priority": exact({"prompt": "2"})}
    assert cost(Usage(input=10), {"prompt": "1"}, service_tier="fast", service_tiers=tiers) == Decimal(20)
    own = tiers | {"fast": exact({"prompt": "3"})}
    assert cost(Usage(input=10), {"prompt": "1"}, service_tier="fast", service_tiers=own) == Decimal(30)


@pytest.mark.parametrize(
    ("more", "names"),
    [
        pytest.param({}, [], id="none"),
        pytest.param({"service_tiers": {"priority": {}, "flex": {}}}, ["fast", "flex", "priority"], id="prices"),
        pytest.param({"multipliers": {"ultrafast": Decimal(6)}}, ["ultrafast"], id="a factor"),
    ],
)
def test_tiers_with_a_price_are_those_that_change_what_a_request_costs(more, names):
    assert tiers_with_a_price(Pricing(exact({"prompt": "2"}), {}, **more)) == names


def test_a_service_tier_keeps_its_ratio_on_a_long_prompt():
    long = (row({"prompt": "2", "completion": "3"}, min_prompt_tokens=100),)
    assert cost(
        Usage(input=200, output=10), {"prompt": "1", "completion": "2"}, service_tier="flex", volumes=long, **FLEX
    ) == Decimal(215)


def test_a_service_tier_with_an_infinite_decimal_ratio_is_rounded_once():
    long = (row({"prompt": "1"}, min_prompt_tokens=0),)
    flex = {"service_tiers": {"flex": exact({"prompt": "2"})}}
    assert cost(Usage(input=3), {"prompt": "3"}, service_tier="flex", volumes=long, **flex) == Decimal(2)
    assert cost(Usage(input=1), {"prompt": "3"}, service_tier="flex", volumes=long, **flex) == Decimal("0.666666666667")


def test_a_charge_names_the_price_rule():
    long = (row({"prompt": "2"}, min_prompt_tokens=100),)
    compiled = tariff({"prompt": "1"}, volumes=long, **FLEX)
    assert (
        price_usage(Usage(input=200), compiled, RATES, at=TUESDAY_NOON, service_tier="flex").rule == "volumes[0] flex"
    )
    assert price_usage(Usage(input=2), compiled, RATES, at=TUESDAY_NOON).rule == "base"
    always = tariff({"prompt": "1"}, windows=(PriceWindow({"prompt": Decimal(5)}, "00:00", "24:00"),))
    assert price_usage(Usage(input=2), always, RATES, at=TUESDAY_NOON).rule == "windows[0]"


def test_without_prices_a_request_costs_nothing():
    charge = price_usage(Usage(input=5), None, RATES, at=TUESDAY_NOON)
    assert charge == Charge(Decimal(0), Decimal(0), "USD", Decimal(1), "none")


def test_cost_is_rounded_once():
    assert cost(Usage(input=3, output=1), {"prompt": "0.0000000000004", "completion": "0.0000000000004"}) == Decimal(
        "0.000000000002"
    )


def test_an_upper_bound_covers_the_most_expensive_buckets():
    prices = {
        "prompt": "1",
        "completion": "2",
        "input_cache_write": "1.25",
        "input_cache_write_1h": "2",
        "internal_reasoning": "3",
        "request": "7",
    }
    assert upper_bound(100, 10, tariff(prices), RATES, at=TUESDAY_NOON) == Decimal(125 + 30 + 7)
    assert upper_bound(100, 10, tariff(prices), RATES, at=TUESDAY_NOON, hour_cache=True) == Decimal(200 + 30 + 7)
    assert upper_bound(100, 10, None, RATES, at=TUESDAY_NOON) == 0
    thinking = (row({"completion": "20"}, thinking=True),)
    assert upper_bound(0, 1, tariff({"completion": "2"}, volumes=thinking), RATES, at=TUESDAY_NOON) == Decimal(20)
    long = row({"prompt": "3"}, min_prompt_tokens=100)
    mixed = tariff({"prompt": "1", "completion": "2"}, volumes=(*thinking, long))
    assert upper_bound(200, 1, mixed, RATES, at=TUESDAY_NOON) == Decimal(600 + 20)
    priority = tariff(prices, service_tiers={"priority": exact({"prompt": "2", "completion": "6"})})
    assert upper_bound(100, 10, priority, RATES, at=TUESDAY_NOON, service_tier="priority") == Decimal(200 + 60 + 7)
    beside = tariff({"web_search": "0.5", "image": "3"})
    assert upper_bound(0, 0, beside, RATES, at=TUESDAY_NOON, searches=4, images=2) == Decimal(8)


@pytest.mark.parametrize(
    "name",
    [name for name in TOKEN_PRICES if name != "input_cache_write_1h"],
)
def test_an_upper_bound_covers_every_kind_of_token(name):
    """Any of them may be the most expensive: whether a prompt is cached or contains audio is known only from the
    response."""
    dear = tariff(dict.fromkeys(TOKEN_PRICES, "1") | {name: "9"})
    assert upper_bound(2, 2, dear, RATES, at=TUESDAY_NOON) == Decimal(20)


def test_an_upper_bound_includes_one_hour_cache_writes_only_if_requested():
    dear = tariff({"prompt": "1", "input_cache_write_1h": "9"}, multipliers={"us": Decimal(2)})
    assert upper_bound(1, 0, dear, RATES, at=TUESDAY_NOON, multipliers=["us"]) == Decimal(2)
    assert upper_bound(1, 0, dear, RATES, at=TUESDAY_NOON, multipliers=["us"], hour_cache=True) == Decimal(18)


def test_a_service_tier_may_price_what_is_free_or_unpriced_otherwise():
    volumes = (row({"prompt": "4"}, min_prompt_tokens=1),)
    tier = {"service_tiers": {"fast": exact({"prompt": "3", "web_search": "2"})}, "volumes": volumes}
    usage = Usage(input=10, searches=1)
    assert cost(usage, {"prompt": "0"}, service_tier="fast", **tier) == Decimal(32)
    assert cost(usage, {"completion": "1"}, service_tier="fast", **tier) == Decimal(32)


def test_a_unit_below_one_token_is_rejected():
    with pytest.raises(ValueError, match="unit is 0, wanted a whole number of tokens from 1 on"):
        tariff({"prompt": "1"}, unit=0)


def test_an_upper_bound_uses_the_prices_of_an_open_window():
    always = (PriceWindow({"prompt": Decimal(5)}, "00:00", "24:00"),)
    assert upper_bound(1, 0, tariff({"prompt": "1"}, windows=always), RATES, at=TUESDAY_NOON) == Decimal(5)


def test_an_upper_bound_covers_shorter_requests_that_cost_more():
    """The prompt is only estimated, and a response may be shorter than its limit, so a lower row may be the more
    expensive one."""
    prices = {"prompt": "1", "completion": "2"}
    rows = (
        row({"prompt": "5"}, min_prompt_tokens=100, max_prompt_tokens=1000),
        row({"completion": "40"}, max_completion_tokens=200),
    )
    assert upper_bound(1001, 0, tariff(prices, volumes=rows), RATES, at=TUESDAY_NOON) == Decimal(5000)
    assert upper_bound(0, 300, tariff(prices, volumes=rows), RATES, at=TUESDAY_NOON) == Decimal(8000)
    assert upper_bound(50, 200, tariff(prices, volumes=rows), RATES, at=TUESDAY_NOON) == Decimal(50 + 8000)


def test_an_upper_bound_covers_shorter_requests_that_get_no_discount():
    prices = {"prompt": "1", "completion": "3"}
    rows = (
        row({"prompt": "0.5"}, min_prompt_tokens=1000),
        row({"completion": "1"}, min_completion_tokens=200),
    )
    assert upper_bound(1500, 0, tariff(prices, volumes=rows), RATES, at=TUESDAY_NOON) == Decimal(1000)
    assert upper_bound(0, 300, tariff(prices, volumes=rows), RATES, at=TUESDAY_NOON) == Decimal(199 * 3)
    assert upper_bound(0, 900, tariff(prices, volumes=rows), RATES, at=TUESDAY_NOON) == Decimal(900)


def test_an_upper_bound_applies_the_multipliers_that_raise_it():
    priced = tariff(
        {"prompt": "1", "completion": "2"},
        multipliers={"fast": Decimal(2), "us": Decimal("1.1"), "batch": Decimal("0.5")},
    )
    for words, expected in ((["fast"], "240"), (["a-model", "us", "fast"], "264"), (["batch"], "120"), ([], "120")):
        assert upper_bound(100, 10, priced, RATES, at=TUESDAY_NOON, multipliers=words) == Decimal(expected)


price = st.decimals(min_value=0, max_value=100, places=9).map(str)
tokens = st.integers(0, 10**6)


@given(
    prices=st.fixed_dictionaries(
        {"prompt": price, "completion": price}, optional={"input_cache_read": price, "internal_reasoning": price}
    ),
    unit=st.sampled_from([1, 1000, 10**6]),
    fresh=tokens,
    read=tokens,
    text=tokens,
    thought=tokens,
)
def test_cost_equals_the_sum_in_fractions_and_never_exceeds_its_upper_bound(prices, unit, fresh, read, text, thought):
    usage = Usage(input=fresh, cache_read=read, output=text, reasoning=thought)
    due = (
        fresh * Fraction(prices["prompt"])
        + read * Fraction(prices.get("input_cache_read", prices["prompt"]))
        + text * Fraction(prices["completion"])
        + thought * Fraction(prices.get("internal_reasoning", prices["completion"]))
    ) / unit
    charge = price_usage(usage, tariff(prices, unit=unit), RATES, at=TUESDAY_NOON)
    assert abs(Fraction(charge.cost) - due) <= Fraction(1, 2 * 10**12)
    assert charge.cost <= upper_bound(
        usage.prompt_tokens, usage.completion_tokens, tariff(prices, unit=unit), RATES, at=TUESDAY_NOON
    )


def test_a_volume_row_by_word_and_its_upper_bound():
    dearest = row({"request": "12", "prompt": "3"}, word="high", min_prompt_tokens=5)
    priced = tariff({"prompt": "1", "request": "5"}, volumes=(row({"request": "8"}, word="medium"), dearest))
    for tokens, words, due, rule in (
        (10, (), 15, "base"),
        (10, ["low"], 15, "base"),
        (10, ["medium"], 18, "volumes[0]"),
        (10, ["high"], 42, "volumes[1]"),
        (5, ["high"], 10, "base"),
    ):
        charge = price_usage(Usage(input=tokens), priced, {}, at=TUESDAY_NOON, multipliers=words)
        assert (charge.cost, charge.rule) == (due, rule)
    assert upper_bound(10, 0, priced, RATES, at=TUESDAY_NOON) == Decimal(42)
    assert upper_bound(5, 0, priced, RATES, at=TUESDAY_NOON) == Decimal(13)


def test_multipliers_apply_beside_the_service_tier():
    priced = tariff(
        {"prompt": "1", "completion": "2"},
        multipliers={"fast": Decimal(2), "us": Decimal("1.1"), "batch": Decimal("0.5")},
    )
    used = Usage(input=10, output=5)
    for words, tier, times, rule in (
        ((), None, "1", "base"),
        (["standard", "global"], None, "1", "base"),
        (["fast"], None, "2", "fast"),
        (["us", "fast"], None, "2.2", "fast us"),
        (["us"], "batch", "0.55", "batch us"),
        (["batch"], "batch", "0.5", "batch"),
    ):
        charge = price_usage(
            used, priced, {}, at=datetime(2026, 1, 1, tzinfo=UTC), service_tier=tier, multipliers=words
        )
        assert (charge.cost, charge.rule) == (20 * Decimal(times), rule)
