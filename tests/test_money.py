from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollgate.money import CONTEXT, decimal_of, decimal_text, is_currency, round_cost


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.30", "0.30"),
        ("0", "0"),
        (".5", "0.5"),
        (" 1e-7 ", "1E-7"),
        ("-2.5", "-2.5"),
        (3, "3"),
        (Decimal("0.000000083333"), "8.3333E-8"),
    ],
    ids=str,
)
def test_a_decimal_keeps_its_digits(text, value):
    assert decimal_of(text) == Decimal(value)
    assert str(decimal_of("0.30")) == "0.30"


@pytest.mark.parametrize("longest", ["9" * 30, "9" * 30 + "e-24", "1e24", "1e-24", 10**30 - 1], ids=str)
def test_a_decimal_has_up_to_thirty_digits_and_twenty_four_places(longest):
    value = decimal_of(longest)
    assert value == Decimal(longest)
    assert CONTEXT.multiply(CONTEXT.multiply(value, Decimal(20_000_000)), value) == (
        Fraction(longest) * 20_000_000 * Fraction(longest)
    )


@pytest.mark.parametrize(
    "text",
    [
        0.3,
        float("nan"),
        True,
        None,
        "",
        "free",
        "1,000",
        "0x10",
        "NaN",
        "Infinity",
        "1_000",
        "1e25",
        "1e-25",
        "9" * 31,
        10**30,
        "1e999",
        "1e-40",
        Decimal("NaN"),
        Decimal("1E+30"),
        "1." + "0" * 200,
        10**40,
        "--1",
        "1.2.3",
    ],
    ids=lambda v: repr(v)[:20],
)
def test_a_value_that_is_no_exact_decimal_is_rejected(text):
    with pytest.raises(ValueError, match="decimal|digits"):
        decimal_of(text)


@pytest.mark.parametrize(
    ("amount", "rounded"),
    [
        ("0.0000000000005", "0E-12"),
        ("0.0000000000015", "2E-12"),
        ("0.0000000000025", "2E-12"),
        ("1.23", "1.230000000000"),
        ("-0.0000000000015", "-2E-12"),
    ],
)
def test_cost_is_rounded_half_even_at_twelve_places(amount, rounded):
    assert round_cost(Decimal(amount)) == Decimal(rounded)
    assert round_cost(Decimal(amount)).as_tuple().exponent == -12


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        ("1E-7", "0.0000001"),
        ("2.50", "2.5"),
        ("1E+3", "1000"),
        ("0E-12", "0"),
        ("-0", "0"),
        ("100", "100"),
        ("-1.10", "-1.1"),
    ],
)
def test_amounts_are_formatted_without_exponent(amount, shown):
    assert decimal_text(Decimal(amount)) == shown


@given(st.decimals(allow_nan=False, allow_infinity=False, places=12, min_value=-(10**12), max_value=10**12))
def test_a_formatted_amount_is_read_back_unchanged(amount):
    assert decimal_of(decimal_text(amount)) == amount
    assert round_cost(amount) == amount


def test_a_float_amount_raises_instead_of_rounding():
    from decimal import FloatOperation

    with pytest.raises(FloatOperation):
        CONTEXT.create_decimal(0.1)


def test_a_currency_code_has_three_capitals():
    assert is_currency("USD")
    assert not is_currency("usd")
    assert not is_currency("US$")
