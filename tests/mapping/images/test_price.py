"""What a job holds and is charged."""

from decimal import Decimal

import pytest

from support.image_provider import at
from tollgate.mapping.images.price import Factor, ImagePrice, Line, PriceMissing, ReportedCost

D = Decimal

TABLE = {"low": {"1024x1024": D("0.006"), "1024x1536": D("0.005")}, "high": {"1024x1024": D("0.053")}}
BY = (at("$input", "quality"), at("$input", "size"))


def price_with_reported_cost(unit: int) -> ImagePrice:
    """A price of 0.05 if the answer has no `cost`. `cost` is in 1/`unit` of the currency."""
    return ImagePrice(D("0.05"), reported=ReportedCost(at("$", "cost"), D(unit)))


@pytest.mark.parametrize(
    ("price", "values", "images", "wanted"),
    [
        pytest.param(ImagePrice(D("0.003")), {}, [{}, {}], "0.006", id="per image delivered"),
        pytest.param(ImagePrice(D("3"), unit=1000), {}, [{}], "0.003", id="unit divides"),
        pytest.param(
            ImagePrice(D("0.02"), bill=at("$", "usage", "image_count")),
            {"$": {"usage": {"image_count": 3}}},
            [{}],
            "0.06",
            id="count reported in the answer",
        ),
        pytest.param(
            ImagePrice(D("0.02"), bill=at("$", "count")),
            {"$": {"count": "2"}},
            [{}],
            "0.04",
            id="a count that is text",
        ),
        pytest.param(
            ImagePrice(D("0.02"), bill=at("$", "usage")),
            {"$": {}},
            [{}, {}],
            "0.04",
            id="without a count, the number of images",
        ),
        pytest.param(
            ImagePrice(D("0.04"), by=BY, table=TABLE),
            {"$input": {"quality": "low", "size": "1024x1536"}},
            [{}, {}],
            "0.010",
            id="table",
        ),
        pytest.param(
            ImagePrice(D("0.04"), by=BY, table=TABLE),
            {"$input": {"quality": "max", "size": "1x1"}},
            [{}],
            "0.04",
            id="a table miss costs the declared price",
        ),
        pytest.param(
            ImagePrice(D("0.04"), by=(at("$input", "hd"),), table={"true": D("0.08")}),
            {"$input": {"hd": True}},
            [{}],
            "0.08",
            id="a switch in a table",
        ),
        pytest.param(
            ImagePrice(D("0.04"), by=BY, table=TABLE),
            {"$input": {"quality": "low"}},
            [{}],
            "0.04",
            id="an absent key is a table miss",
        ),
        pytest.param(
            ImagePrice(D("0.025"), per="megapixel", whole=True),
            {},
            [{"width": 1024, "height": 768}, {"width": 1024, "height": 1024}],
            "0.075",
            id="whole megapixels",
        ),
        pytest.param(
            ImagePrice(D("0.01"), per="megapixel"),
            {},
            [{"width": 1000, "height": 500}],
            "0.005",
            id="parts of megapixels",
        ),
        pytest.param(
            ImagePrice(D("0.03"), per="megapixel", further=D("0.015")),
            {},
            [{"width": 2000, "height": 1000}],
            "0.045",
            id="more expensive first megapixel",
        ),
        pytest.param(
            ImagePrice(D("0.03"), per="megapixel", further=D("0.015")),
            {},
            [{"width": 500, "height": 500}],
            "0.03",
            id="never less than the first megapixel",
        ),
        pytest.param(
            ImagePrice(D("0.01"), per="megapixel", size=(at("$input", "w"), at("$input", "h"))),
            {"$input": {"w": 2000, "h": 2000}},
            [{}],
            "0.04",
            id="requested size",
        ),
        pytest.param(
            ImagePrice(D("0.01"), per="megapixel", size=(at("$input", "w"), at("$input", "h"))),
            {"$input": {"w": 2000, "h": 2000}},
            [{"width": 1000, "height": 1000}, {"width": 1000}, {"height": 1000}],
            "0.09",
            id="requested size, unless the picture has its own",
        ),
        pytest.param(
            ImagePrice(D("0.01"), per="megapixel"), {}, [{"width": 9000}], "0.01", id="half a size is unknown"
        ),
        pytest.param(ImagePrice(D("0.01"), per="megapixel"), {}, [{}], "0.01", id="unknown size is one megapixel"),
        pytest.param(
            ImagePrice(
                D("0.05"), lines=(Line(at("$", "in"), D("5"), 1_000_000), Line(at("$", "out"), D("30"), 1_000_000))
            ),
            {"$": {"in": 22, "out": 2112}},
            [{}],
            "0.063470",
            id="lines of tokens",
        ),
        pytest.param(
            ImagePrice(D("0.05"), lines=(Line(at("$", "in"), D("5"), 1_000_000),)),
            {"$": {}},
            [{}, {}],
            "0.10",
            id="without counts, the declared price",
        ),
        pytest.param(
            price_with_reported_cost(100),
            {"$": {"cost": 4.5}},
            [{}],
            "0.045",
            id="cost reported in cents",
        ),
        pytest.param(
            price_with_reported_cost(10**10),
            {"$": {"cost": 800_000_000}},
            [{}],
            "0.08",
            id="cost reported in tiny units",
        ),
        pytest.param(
            price_with_reported_cost(1),
            {"$": {"cost": 0.1}},
            [{}],
            "0.1",
            id="a float is the figure that was written",
        ),
        pytest.param(
            price_with_reported_cost(1),
            {"$": {"cost": [0.0006, 0.0013, None]}},
            [{}],
            "0.0019",
            id="several figures add up exactly",
        ),
        pytest.param(
            price_with_reported_cost(1),
            {"$": {"cost": -1}},
            [{}],
            "0.05",
            id="a negative reported cost falls back to the declared price",
        ),
        pytest.param(
            ImagePrice(D("0.0027"), times=(Factor(at("$input", "steps"), D(4)),)),
            {"$input": {"steps": 8}},
            [{}],
            "0.0054",
            id="factor",
        ),
        pytest.param(
            ImagePrice(D("0.0027"), times=(Factor(at("$input", "steps"), D(4)), Factor(at("$input", "n"), D(1)))),
            {"$input": {"n": 0}},
            [{}],
            "0.0027",
            id="a factor that is absent or zero changes nothing",
        ),
    ],
)
def test_a_finished_job_is_charged_by_its_price(price, values, images, wanted):
    assert price.charge(values, tuple(images)) == D(wanted)


def test_a_table_miss_is_rejected_if_the_file_requires_it():
    price = ImagePrice(D("0.04"), by=BY, table=TABLE, refuse=True)
    with pytest.raises(PriceMissing, match="max / 1x1"):
        price.expected({"$input": {"quality": "max", "size": "1x1"}})


def test_the_first_matching_case_applies():
    price = ImagePrice(D("0.04"), cases=((lambda v: v["$input"]["hd"], D("0.08")), (lambda v: True, D("0.01"))))
    assert price.charge({"$input": {"hd": True}}, ({},)) == D("0.08")
    assert price.charge({"$input": {"hd": False}}, ({},)) == D("0.01")


def test_without_a_matching_case_the_declared_price_applies_unless_the_file_requires_one():
    hd_only = ((lambda v: v["$input"]["hd"], D("0.08")),)
    assert ImagePrice(D("0.04"), cases=hd_only).charge({"$input": {"hd": False}}, ({},)) == D("0.04")
    with pytest.raises(PriceMissing, match="what was asked"):
        ImagePrice(D("0.04"), cases=hd_only, refuse=True).expected({"$input": {"hd": False}})


def test_the_expected_cost_counts_the_requested_images():
    assert ImagePrice(D("0.04"), asked=at("$input", "n")).expected({"$input": {"n": 4}}) == D("0.16")
    assert ImagePrice(D("0.04")).expected({"$input": {}}) == D("0.04")
