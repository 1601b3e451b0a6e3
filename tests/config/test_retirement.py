from datetime import date

import pytest

from tollgate.config.build import load_gateway
from tollgate.config.retirement import retirement_warnings
from tollgate.errors import ConfigErrors

pytestmark = pytest.mark.usefixtures("shipped_mappings")

TODAY = date(2026, 11, 23)
FILE = """
provider: acme
speaks: chat
url: https://acme.example/v1/chat/completions
headers: {authorization: "Bearer {{ $secret.ACME_KEY }}"}
models:
"""


def _warned(tmp_path, *dates, environ=None):
    models = "".join(f'  acme/m{place}: {{upstream: m, retires: "{day}"}}\n' for place, day in enumerate(dates))
    (tmp_path / "providers").mkdir()
    (tmp_path / "providers" / "acme.yaml").write_text(FILE + models)
    (tmp_path / "gateway.yaml").write_text("")
    loaded = load_gateway(tmp_path / "gateway.yaml", environ={"ACME_KEY": "x"} if environ is None else environ)
    return [
        (each.level, each.path, each.message) for each in retirement_warnings(loaded.gateway.providers.values(), TODAY)
    ]


@pytest.mark.parametrize(
    ("retires", "when"),
    [
        ("2026-09-30", "which has passed"),
        ("2026-11-23", "which is today"),
        ("2026-11-24", "in 1 day"),
        ("2026-12-23", "in 30 days"),
        ("2026-12-24", None),
    ],
)
def test_a_model_retired_or_to_be_retired_within_a_month_has_a_warning(tmp_path, retires, when):
    message = f"found {retires}, {when}: acme withdraws this model"
    assert _warned(tmp_path, retires) == ([("warning", "models.acme/m0.retires", message)] if when else [])


@pytest.mark.parametrize("day", ["2026-02-31", "2027-02-29", "2026-11-31"])
def test_a_date_that_does_not_exist_is_rejected(tmp_path, day):
    with pytest.raises(ConfigErrors) as caught:
        _warned(tmp_path, day)
    [problem] = caught.value.problems
    assert problem.render(source=False).endswith(
        f'acme.yaml:7:35: models.acme/m0.retires: found "{day}", wanted a day that the calendar has'
    )


def test_models_of_a_disabled_provider_have_no_retirement_warning(tmp_path):
    assert _warned(tmp_path, "2026-09-30", environ={}) == []


def test_several_retirements_are_one_warning_with_the_soonest_first(tmp_path):
    [(_, path, message)] = _warned(tmp_path, *(f"2026-12-{20 - day:02}" for day in range(8)), "2028-01-01")
    assert path == "models.acme/m7.retires"
    assert message == (
        "found 2026-12-13, in 20 days: acme withdraws this model; soon also "
        "acme/m6 (2026-12-14), acme/m5 (2026-12-15), acme/m4 (2026-12-16) and 4 more"
    )
