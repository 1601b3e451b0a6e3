"""tollgate.mapping.images.price: what a job is held for and charged."""

from decimal import Decimal

import pytest

from support.image_provider import at
from tollgate.mapping.images.price import Factor, ImagePrice, Line, PriceMissing, ReportedCost

D = Decimal

TABLE = {"low": {"1024x1024": D("0.006"), "1024x1536": D("0.005")}, "high": {"1024x1024": D("0.053")}}
BY = (at("$input", "quality"), at("$input", "size"))


def telling(unit: int) -> ImagePrice:
    """A price of 0.05 where the answer's `cost` tells none, in so many units of the currency."""
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
            id="billed count of the answer",
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
            id="no billed count falls to pictures",
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
            id="table miss costs the declared price",
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
            id="absent key is a miss",
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
            id="dearer first megapixel",
        ),
        pytest.param(
            ImagePrice(D("0.03"), per="megapixel", further=D("0.015")),
            {},
            [{"width": 500, "height": 500}],
            "0.03",
            id="never less than the first",
        ),
        pytest.param(
            ImagePrice(D("0.01"), per="megapixel", size=(at("$input", "w"), at("$input", "h"))),
            {"$input": {"w": 2000, "h": 2000}},
            [{}],
            "0.04",
            id="size asked for",
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
            id="no counts fall to the declared price",
        ),
        pytest.param(
            telling(100),
            {"$": {"cost": 4.5}},
            [{}],
            "0.045",
            id="cost told in cents",
        ),
        pytest.param(
            telling(10**10),
            {"$": {"cost": 800_000_000}},
            [{}],
            "0.08",
            id="cost told in very small coins",
        ),
        pytest.param(
            telling(1),
            {"$": {"cost": 0.1}},
            [{}],
            "0.1",
            id="a float is the figure that was written",
        ),
        pytest.param(
            telling(1),
            {"$": {"cost": [0.0006, 0.0013, None]}},
            [{}],
            "0.0019",
            id="several figures add up exactly",
        ),
        pytest.param(
            telling(1),
            {"$": {"cost": -1}},
            [{}],
            "0.05",
            id="an absurd told cost falls to the declared price",
        ),
        pytest.param(
            ImagePrice(D("0.0027"), times=(Factor(at("$input", "steps"), D(4)),)),
            {"$input": {"steps": 8}},
            [{}],
            "0.0054",
            id="factor",
        ),
    ],
)
def test_a_finished_job_costs_what_its_price_says(price, values, images, wanted):
    assert price.charge(values, tuple(images)) == D(wanted)


def test_a_miss_refuses_where_the_file_says_so():
    price = ImagePrice(D("0.04"), by=BY, table=TABLE, refuse=True)
    with pytest.raises(PriceMissing, match="max / 1x1"):
        price.expected({"$input": {"quality": "max", "size": "1x1"}})


def test_the_first_case_that_holds_decides():
    price = ImagePrice(D("0.04"), cases=((lambda v: v["$input"]["hd"], D("0.08")), (lambda v: True, D("0.01"))))
    assert price.charge({"$input": {"hd": True}}, ({},)) == D("0.08")
    assert price.charge({"$input": {"hd": False}}, ({},)) == D("0.01")


def test_expected_counts_the_pictures_asked_for():
    assert ImagePrice(D("0.04"), asked=at("$input", "n")).expected({"$input": {"n": 4}}) == D("0.16")
    assert ImagePrice(D("0.04")).expected({"$input": {}}) == D("0.04")
