"""Which side of the usage is estimated, and the result; whole requests are tested in `test_billing.py`."""

import time

import pytest

from tollgate.completions.estimate import choices_apart, completed, missing_sides, own_tokens

BOTH = ["input", "output"]


@pytest.mark.parametrize(
    ("usage", "missing"),
    [
        pytest.param({"input": 10, "output": 5}, [], id="both reported"),
        pytest.param({"input": 10, "output": 0}, [], id="a zero output beside an input counts"),
        pytest.param({"input": 0, "output": 5}, [], id="a zero input beside an output counts"),
        pytest.param({"input": 0, "output": 0}, BOTH, id="two zeros count as not reported"),
        pytest.param({}, BOTH, id="nothing reported"),
        pytest.param({"searches": 2}, BOTH, id="no tokens reported"),
        pytest.param({"input": None, "output": None}, BOTH, id="nulls"),
        pytest.param({"idle": True}, [], id="no model ran"),
        pytest.param({"input": 0, "output": 0, "idle": True}, [], id="no model ran, with zeros"),
        pytest.param({"idle": 1}, BOTH, id="idle must be true"),
        pytest.param(
            {"input": 10, "output": 1, "early": True}, ["output"], id="an output reported before any was generated"
        ),
        pytest.param({"output": 1, "early": True}, BOTH, id="an early output alone"),
        pytest.param({"input": 10, "output": 1, "early": False}, [], id="an output reported again at the end"),
        pytest.param({"input": 0, "output": 0, "early": True, "idle": True}, [], id="early and idle"),
        pytest.param({"input": 10}, ["output"], id="an input alone"),
        pytest.param({"input": 10.0}, ["output"], id="an input alone, as a float"),
        pytest.param({"output": 5}, ["input"], id="an output alone"),
        pytest.param({"input": None, "output": 5}, ["input"], id="an output beside a null"),
        pytest.param({"input": 10, "reasoning": 3}, [], id="reasoning belongs to the output"),
        pytest.param({"output": 5, "cache_read": 7}, [], id="cache reads belong to the input"),
        pytest.param({"output": 5, "cache_write": 0}, ["input"], id="a cache write of zero is no input"),
        pytest.param({"input": 10, "reasoning": 0}, ["output"], id="reasoning of zero is no output"),
        pytest.param({"cache_read": 7}, BOTH, id="a cache read alone"),
    ],
)
def test_a_side_that_is_not_reported_is_missing(usage, missing):
    assert missing_sides(usage) == missing


@pytest.mark.parametrize(
    ("missing", "counted", "usage", "estimated"),
    [
        (["output"], {"input": 30, "output": 40}, {"input": 1, "cost": 2, "output": 40}, True),
        (BOTH, {"input": 30, "output": 0}, {"input": 30, "cost": 2, "output": 0}, True),
        (["output"], {"input": 30, "output": 0}, {"input": 1, "cost": 2, "output": 0}, False),
    ],
    ids=["the output", "both, without output text", "the output, without text"],
)
def test_a_missing_side_is_estimated_and_the_rest_is_kept(missing, counted, usage, estimated):
    assert completed({"input": 1, "cost": 2}, missing, counted) == (usage, estimated)


def test_an_estimated_output_is_at_least_the_early_reported_one():
    counted = {"input": 30, "output": 2}
    assert completed({"input": 1, "output": 3}, ["output"], counted) == ({"input": 1, "output": 3}, True)


@pytest.mark.parametrize(
    ("counted", "can", "own"),
    [(200, {"tokens_percent": 117}, 234), (1, {"tokens_percent": 117}, 2), (0, {"tokens_percent": 117}, 0), (7, {}, 7)],
)
def test_tokens_of_the_models_own_tokenizer_are_rounded_up(counted, can, own):
    assert own_tokens(counted, can) == own


@pytest.mark.parametrize("index", [{}, [1], None, "1", True], ids=repr)
def test_choices_with_an_invalid_index_stay_together(index):
    answer = {"choices": [{"index": 0}, {"index": index}]}
    assert choices_apart([answer]) == [[answer]]
    assert len(choices_apart([{"choices": [{"index": 0}, {"index": 1}]}])) == 2


def test_the_events_of_each_choice_are_kept_in_order():
    events = [
        {"choices": [{"index": 0, "delta": "a"}, {"index": 1, "delta": "b"}]},
        {"choices": [{"index": 1, "delta": "c"}]},
        {"choices": [], "usage": None},
        "[DONE]",
    ]
    assert choices_apart(events) == [
        [{"choices": [{"index": 0, "delta": "a"}]}],
        [{"choices": [{"index": 0, "delta": "b"}]}, {"choices": [{"index": 0, "delta": "c"}]}],
    ]


def test_many_thousands_of_choices_take_linear_time():
    """A provider's answer with 50,000 choices and no usage held the event loop for minutes."""
    answer = {"choices": [{"index": index} for index in range(20_000)]}
    began = time.process_time()
    assert choices_apart([answer]) == [[answer]]
    assert time.process_time() - began < 2
