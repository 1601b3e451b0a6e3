"""Which side of a usage is counted here, and what comes of it; whole requests are `test_billing.py`'s."""

import pytest

from tollgate.completions.estimate import choices_apart, completed, missing_sides, own_tokens

BOTH = ["input", "output"]


@pytest.mark.parametrize(
    ("usage", "lacking"),
    [
        pytest.param({"input": 10, "output": 5}, [], id="both are told"),
        pytest.param({"input": 10, "output": 0}, [], id="a zero beside a prompt is meant"),
        pytest.param({"input": 0, "output": 5}, [], id="a zero beside an answer is meant"),
        pytest.param({"input": 0, "output": 0}, BOTH, id="every answer had a prompt"),
        pytest.param({}, BOTH, id="nothing is told"),
        pytest.param({"searches": 2}, BOTH, id="nothing of tokens is told"),
        pytest.param({"input": None, "output": None}, BOTH, id="nulls"),
        pytest.param({"idle": True}, [], id="no model ran"),
        pytest.param({"input": 0, "output": 0, "idle": True}, [], id="no model ran, in figures"),
        pytest.param({"idle": 1}, BOTH, id="only true says that no model ran"),
        pytest.param({"input": 10, "output": 1, "early": True}, ["output"], id="an output told before there was any"),
        pytest.param({"output": 1, "early": True}, BOTH, id="and nothing else"),
        pytest.param({"input": 10, "output": 1, "early": False}, [], id="an output told again at the end"),
        pytest.param({"input": 0, "output": 0, "early": True, "idle": True}, [], id="there was no output to come"),
        pytest.param({"input": 10}, ["output"], id="a prompt alone"),
        pytest.param({"input": 10.0}, ["output"], id="a prompt alone, as a float"),
        pytest.param({"output": 5}, ["input"], id="an answer alone"),
        pytest.param({"input": None, "output": 5}, ["input"], id="an answer beside a null"),
        pytest.param({"input": 10, "reasoning": 3}, [], id="reasoning is of the answer"),
        pytest.param({"output": 5, "cache_read": 7}, [], id="what a cache served is of the prompt"),
        pytest.param({"output": 5, "cache_write": 0}, ["input"], id="a zero of a cache tells nothing of the prompt"),
        pytest.param({"input": 10, "reasoning": 0}, ["output"], id="nor one of reasoning of the answer"),
        pytest.param({"cache_read": 7}, BOTH, id="a cache alone"),
    ],
)
def test_a_side_that_nobody_told_is_missing(usage, lacking):
    assert missing_sides(usage) == lacking


@pytest.mark.parametrize(
    ("lacking", "counted", "usage", "estimated"),
    [
        (["output"], {"input": 30, "output": 40}, {"input": 1, "cost": 2, "output": 40}, True),
        (BOTH, {"input": 30, "output": 0}, {"input": 30, "cost": 2, "output": 0}, True),
        (["output"], {"input": 30, "output": 0}, {"input": 1, "cost": 2, "output": 0}, False),
    ],
    ids=["the answer", "both, and the answer had no text", "an answer without text"],
)
def test_what_is_missing_is_counted_and_the_rest_stays(lacking, counted, usage, estimated):
    assert completed({"input": 1, "cost": 2}, lacking, counted) == (usage, estimated)


def test_a_count_is_never_below_what_was_told_early():
    counted = {"input": 30, "output": 2}
    assert completed({"input": 1, "output": 3}, ["output"], counted) == ({"input": 1, "output": 3}, True)


@pytest.mark.parametrize(
    ("counted", "can", "own"),
    [(200, {"tokens_percent": 117}, 234), (1, {"tokens_percent": 117}, 2), (0, {"tokens_percent": 117}, 0), (7, {}, 7)],
)
def test_tokens_are_those_of_the_model_s_own_tokenizer_rounded_up(counted, can, own):
    assert own_tokens(counted, can) == own


@pytest.mark.parametrize("odd", [{}, [1], None, "1", True], ids=repr)
def test_choices_whose_index_is_no_number_stay_together(odd):
    answer = {"choices": [{"index": 0}, {"index": odd}]}
    assert choices_apart([answer]) == [[answer]]
    assert len(choices_apart([{"choices": [{"index": 0}, {"index": 1}]}])) == 2
