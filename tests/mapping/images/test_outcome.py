"""Reading the result of a step: its status, error and images."""

import base64

import pytest

from tollgate.mapping.images.outcome import read_image, read_outcome

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n0000").decode()


def test_status_words_are_matched_exactly():
    words = {"Pending": "processing", "Ready": "succeeded"}
    assert read_outcome({"status": "Pending"}, words).status == "processing"
    unknown = read_outcome({"status": "pending"}, words)
    assert (unknown.status, unknown.unknown_word) == ("processing", "pending")
    assert read_outcome({"status": "Ready", "images": ["https://x/a.png"]}, words).images == (
        {"url": "https://x/a.png"},
    )


def test_our_own_status_words_need_no_table():
    assert read_outcome({"status": "succeeded", "images": [{"url": "https://x"}]}, None).status == "succeeded"
    assert (
        read_outcome({"status": "succeeded", "images": [{"url": "https://x"}]}, {"Ready": "succeeded"}).status
        == "succeeded"
    )


def test_a_missing_status_is_processing_and_reported():
    assert read_outcome({}, None).unknown_word == ""
    assert read_outcome(None, None).status == "processing"


def test_a_missing_status_is_a_success_if_the_job_cannot_be_polled():
    picture = {"images": ["https://x/a.png"]}
    assert read_outcome(picture, {"succeeded": "processing", "OK": "succeeded"}, ended=True).images
    assert read_outcome({"status": "WAIT"} | picture, None, ended=True).status == "processing"
    assert read_outcome({"error": "NSFW"}, None, ended=True).error == "NSFW"


def test_a_success_without_images_is_a_failure():
    outcome = read_outcome({"status": "succeeded", "images": [{"width": 4}]}, None)
    assert (outcome.status, outcome.error) == ("failed", "the provider returned no image")
    assert read_outcome({"status": "succeeded"}, None, final=False).status == "succeeded"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("NSFW", "NSFW"),
        ({"message": "blocked"}, "blocked"),
        ({"detail": "late"}, "late"),
        (["a", {"msg": "b"}], "a; b"),
        (None, "the provider reported a failure"),
    ],
    ids=["text", "object", "its detail", "list", "none"],
)
def test_errors_become_text(error, message):
    assert read_outcome({"status": "failed", "error": error}, None).error == message


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        pytest.param("https://x/a", {"url": "https://x/a"}, id="a plain URL"),
        pytest.param(
            {"url": f"data:image/png;base64,{PNG}", "width": 8},
            {"data": PNG, "context_type": "image/png", "width": 8},
            id="data URL",
        ),
        pytest.param({"data": PNG}, {"data": PNG, "context_type": "image/png"}, id="type from the bytes"),
        pytest.param(
            {"data": "AAAA"}, {"data": "AAAA", "context_type": "application/octet-stream"}, id="unknown bytes"
        ),
        pytest.param(
            {"url": "https://x", "width": "1024", "height": 768.0},
            {"url": "https://x", "width": 1024, "height": 768},
            id="sizes",
        ),
        pytest.param(
            {"url": "https://x", "width": -1, "context_type": "image/png"},
            {"url": "https://x"},
            id="invalid values dropped",
        ),
        pytest.param(
            {"data": f"data:image/jpeg;base64,{PNG}"},
            {"data": PNG, "context_type": "image/jpeg"},
            id="data URL in place of the data",
        ),
        pytest.param(
            {"data": f"{PNG[:20]}\n{PNG[20:]}\n"},
            {"data": f"{PNG[:20]}\n{PNG[20:]}\n", "context_type": "image/png"},
            id="data in lines",
        ),
        pytest.param({"data": "@@@", "context_type": "image/png"}, None, id="data that is not base64"),
        pytest.param({"data": "internal error"}, None, id="the words of an error"),
        pytest.param({"data": "https://x/a.png"}, None, id="an address as data"),
        pytest.param({"data": "A" * 100_000 + "<html>"}, None, id="long data with another end"),
        pytest.param({"data": "AA=" + "A" * 70_000 + "=="}, None, id="long data with another beginning"),
        pytest.param({"url": "data:image/png;base64,@@@"}, None, id="a data URL that is not base64"),
        pytest.param(
            {"url": "https://x/a", "data": "@@@"}, {"url": "https://x/a"}, id="a URL beside data that is not base64"
        ),
        pytest.param({"url": None, "data": None}, None, id="neither"),
        pytest.param({"url": f"data:image/png{';a' * 2000};base64,{PNG}"}, None, id="a data URL with a huge head"),
        pytest.param({"data": "\n" * 65_000 + "@"}, None, id="line breaks, which used to take many seconds"),
        pytest.param(
            {"url": "data:image/svg+xml,<svg/>"},
            {"data": "PHN2Zy8+", "context_type": "image/svg+xml"},
            id="data URL as text",
        ),
        pytest.param(
            {"url": "data:image/svg+xml;utf8,%3Csvg/%3E"},
            {"data": "PHN2Zy8+", "context_type": "image/svg+xml"},
            id="data URL as escaped text",
        ),
        pytest.param(
            {"url": "data:image/png;base64,_-8%3D"},
            {"data": "/+8=", "context_type": "image/png"},
            id="escaped data in the URL-safe alphabet",
        ),
        pytest.param(
            {"data": "_-8", "context_type": 5},
            {"data": "/+8=", "context_type": "application/octet-stream"},
            id="URL-safe alphabet without padding, and a type that is no text",
        ),
    ],
)
def test_an_image_is_read_in_every_form(given, wanted):
    assert read_image(given) == wanted
