"""How places and long texts stand in messages."""

import pytest

from tollgate.wording import clipped, did_you_mean, first_line, path_text


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (("a", "b"), "a.b"),
        (("models", "acme/a", "aliases", 0), "models.acme/a.aliases[0]"),
        ((), ""),
        (("a", 0, 1), "a[0][1]"),
    ],
)
def test_paths_are_said_in_one_way(steps, said):
    assert path_text(steps) == said


def test_a_known_word_is_meant_only_where_one_is_near():
    assert did_you_mean("modles", ["models", "url"]) == "did you mean `models`?"
    assert did_you_mean("price", ["models", "url"]) == ""


def test_a_text_of_the_length_stays_and_a_longer_one_says_that_it_was_cut():
    assert (clipped("12345", 5), clipped("123456", 5)) == ("12345", "12...")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("one\ntwo"), "one"),
        (ValueError("one"), "one"),
        (TimeoutError(), "TimeoutError"),
        (ValueError("\ntwo"), "ValueError"),
    ],
)
def test_an_error_has_one_line_in_a_message_also_without_a_text(error, line):
    assert first_line(error) == line
