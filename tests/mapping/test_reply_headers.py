"""`reply_headers:` names the response headers that clients of a format read."""

import pytest

from mappings.support import mapping
from tollgate.config.load import read_text
from tollgate.errors import ConfigErrors
from tollgate.ledger.limits import Limits, Window
from tollgate.limit_headers import limit_headers
from tollgate.mapping import ReplyHeaders, compile_mapping


def headers_of(text: str) -> ReplyHeaders:
    return compile_mapping(read_text(f"mapping: own\nreply_headers:{text}", "own.yaml")).reply_headers


def test_each_fact_may_have_one_or_several_header_names():
    names = headers_of(
        " {elapsed: x-ms, limits: {requests: {limit: x-limit, remaining: [x-left, x-remaining], reset: x-in}}, resets: "
        "durations}"
    )
    limits = Limits(requests=Window(10, 3, 90.0), tokens=Window(7, 7, 0.0))
    assert names.elapsed == b"x-ms"
    assert limit_headers(names, limits) == [
        (b"x-limit", b"10"),
        (b"x-left", b"3"),
        (b"x-remaining", b"3"),
        (b"x-in", b"1m30s"),
    ]


def test_a_limit_that_a_key_does_not_have_is_not_sent():
    names = headers_of(" {limits: {requests: {limit: x-r}, tokens: {limit: x-t}}}")
    assert limit_headers(names, Limits(tokens=Window(7, 7, 0.0))) == [(b"x-t", b"7")]


def test_a_format_without_the_section_sends_no_headers():
    names = compile_mapping(read_text("mapping: own\n", "own.yaml")).reply_headers
    assert names.elapsed is None
    assert limit_headers(names, Limits(requests=Window(1, 1, 1.0))) == []


def test_the_messages_format_sends_instants_and_each_kind_of_token():
    headers = dict(limit_headers(mapping("messages").reply_headers, Limits(Window(10, 3, 90.0), Window(500, 20, 1.0))))
    assert {name.decode().removeprefix("anthropic-ratelimit-") for name in headers} == {
        f"{kind}-{fact}"
        for kind in ("requests", "tokens", "input-tokens", "output-tokens")
        for fact in ("limit", "remaining", "reset")
    }
    assert headers[b"anthropic-ratelimit-output-tokens-remaining"] == b"20"
    assert headers[b"anthropic-ratelimit-requests-reset"].endswith(b"Z")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (" x-ms", "`reply_headers` takes names"),
        (" {elapsd: x-ms}", "unknown key `elapsd`"),
        (" {elapsed: 'X ms'}", "`X ms` is no header name"),
        (" {elapsed: {a: b}}", "a header's name is text"),
        (" {limits: x-limit}", "`limits` takes requests and tokens"),
        (" {limits: {request: {limit: x}}}", "unknown key `request`"),
        (" {limits: {requests: x-limit}}", "`requests` takes limit, remaining, reset"),
        (" {limits: {tokens: {left: x}}}", "unknown key `left`"),
        (" {resets: seconds}", "`resets` is durations or instants"),
    ],
)
def test_a_config_error_names_its_place(text: str, message: str):
    with pytest.raises(ConfigErrors) as caught:
        headers_of(text)
    assert message in str(caught.value)
    assert "own.yaml:2:" in str(caught.value)
