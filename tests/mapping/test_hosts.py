"""Which URLs in answers are called with our key."""

import pytest

from tollgate.mapping.hosts import is_admitted, origin, read_host

BFL = [read_host("bfl.ai")]


@pytest.mark.parametrize(
    "url",
    [
        "https://bfl.ai/v1/x",
        "https://api.eu1.bfl.ai/v1/get_result?id=1",
        "https://API.BFL.AI:443/x",
        "https://api.bfl.ai./x",
    ],
)
def test_urls_under_the_declared_host_are_admitted(url):
    assert is_admitted(url, BFL)


@pytest.mark.parametrize(
    "url",
    [
        "http://api.bfl.ai/x",
        "https://evilbfl.ai/x",
        "https://bfl.ai.evil.example/x",
        "https://api.bfl.ai@evil.example/",
        "https://user@bfl.ai/",
        "https://api.bfl.ai:8443/x",
        "https://bfl.ai\\@evil.example/",
        "https://evil.example/bfl.ai",
        "//bfl.ai/x",
        "ftp://bfl.ai/x",
        "https://bfl.ai\n.evil.example/",
        "",
        "https://[::1",
        "https://bfl。ai/",
        "https://[::1%.bfl.ai]/",
        "https://127.0.0.1%.bfl.ai/",
        "https://evil.example%2f.bfl.ai/",
    ],
)
def test_all_other_urls_are_not_admitted(url):
    assert not is_admitted(url, BFL)


def test_an_operator_s_server_may_be_declared_with_scheme_and_port():
    hosts = [read_host("http://127.0.0.1:9000")]
    assert is_admitted("http://127.0.0.1:9000/x", hosts)
    assert not is_admitted("http://127.0.0.1:9001/x", hosts)
    assert not is_admitted("https://127.0.0.1:9000/x", hosts)
    assert not is_admitted("http://1.127.0.0.1:9000/x", hosts)


@pytest.mark.parametrize("text", ["", "*", "com", "https://bfl.ai/path", "ftp://bfl.ai", "a*b.example", "user@bfl.ai"])
def test_an_invalid_host_is_rejected(text):
    with pytest.raises(ValueError):
        read_host(text)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://127.0.0.1:9000/jobs/7?token=x", "http://127.0.0.1:9000"),
        ("https://me:secret@[::1]/x", "https://[::1]"),
        ("https://a\u202eb.example/x", "https://a\\u202eb.example"),
        ("https://[/", "no address"),
    ],
)
def test_only_the_origin_of_a_url_is_logged(url, shown):
    assert origin(url) == shown


def test_a_host_is_formatted_as_an_origin():
    assert [str(read_host(text)) for text in ("bfl.ai", "*.bfl.ai", "http://127.0.0.1:9000")] == [
        "https://bfl.ai",
        "https://bfl.ai",
        "http://127.0.0.1:9000",
    ]
