"""How paths, suggestions and long texts are formatted in messages."""

import pytest

from tollgate.wording import clipped, did_you_mean, first_line, nearest_or_all, one_line, path_text


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (("a", "b"), "a.b"),
        (("models", "acme/a", "aliases", 0), "models.acme/a.aliases[0]"),
        ((), ""),
        (("a", 0, 1), "a[0][1]"),
    ],
)
def test_a_path_is_formatted(steps, text):
    assert path_text(steps) == text


def test_a_suggestion_requires_a_similar_word():
    assert did_you_mean("modles", ["models", "url"]) == "did you mean `models`?"
    assert did_you_mean("price", ["models", "url"]) == ""


def test_all_words_are_listed_where_none_is_similar():
    assert nearest_or_all("modles", ["models", "url"]) == "did you mean `models`?"
    assert nearest_or_all("price", ["models", "url"]) == "one of models, url"
    assert nearest_or_all("price", []) == ""


def test_a_text_of_a_provider_becomes_one_line_without_control_characters():
    assert one_line("no\r\n12:00 ERROR \x1b[2J  more\t") == "no 12:00 ERROR [2J more"


def test_only_a_longer_text_is_clipped():
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
def test_an_error_is_formatted_as_one_line(error, line):
    assert first_line(error) == line
