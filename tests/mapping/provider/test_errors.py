"""The verdict on an upstream's answer for every known shape of errors, and which stream events need not be parsed."""

import json
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapping.provider_files import SMALL, compiled, offer
from support.places import TRAFFIC
from tollgate.config.load import read_text
from tollgate.mapping import compile_mapping
from tollgate.mapping.provider.error_details import read_error, retry_after, seconds_of, spent_until
from tollgate.mapping.provider.errors import ErrorRules

PLAIN = ErrorRules()


def rules(text):
    return offer(SMALL + text).errors


def judged(text, status, body, headers=None, **more):
    return (rules(text) if text else PLAIN).judge(status, headers or {}, body, **more)


@pytest.mark.parametrize(
    ("status", "kind", "alarm"),
    [
        (400, "stop", None),
        (401, "next", "key"),
        (402, "next", "balance"),
        (403, "next", "key"),
        (404, "stop", None),
        (407, "next", None),
        (408, "later", None),
        (409, "later", None),
        (413, "stop", None),
        (418, "stop", None),
        (422, "stop", None),
        (425, "later", None),
        (429, "later", None),
        (500, "later", None),
        (501, "later", None),
        (502, "later", None),
        (503, "later", None),
        (504, "later", None),
        (524, "later", None),
        (529, "later", None),
        (302, "next", None),
        (304, "next", None),
    ],
)
def test_every_status_has_a_default_verdict(status, kind, alarm):
    verdict = PLAIN.judge(status, {}, {"error": {"message": "m"}})
    assert (verdict.kind, verdict.alarm, verdict.message, verdict.status) == (kind, alarm, "m", status)


@pytest.mark.parametrize(
    ("status", "kind"), [(418, "later"), (429, "stop"), (500, "later"), (401, "next"), (404, "next"), (400, "stop")]
)
def test_the_gateway_decides_which_statuses_are_worth_another_attempt(status, kind):
    listed = offer(SMALL + "errors: {next: [404]}\n", retry_statuses=frozenset({401, 404, 418})).errors
    assert listed.judge(status, {}, {"error": {"message": "m"}}).kind == kind


LISTS = "errors: {retry: [404], next: [422], stop: [500], credit: [418], key: [400]}\n"


@pytest.mark.parametrize(
    ("status", "kind", "alarm"),
    [(404, "later", None), (422, "next", None), (500, "stop", None), (418, "next", "balance"), (400, "next", "key")],
)
def test_the_lists_of_the_file_precede_the_defaults(status, kind, alarm):
    verdict = judged(LISTS, status, {})
    assert (verdict.kind, verdict.alarm) == (kind, alarm)


RULES = """errors:
  message: $.error.text
  retry_after: $.error.details[0].retryDelay
  retry: [400]
  rules:
    - {status: [400], when: $.error.code == 'bad_key', verdict: next, alarm: key}
    - {status: 400, when: "'too long' in $.error.text", verdict: stop, as: 413, message: "shorten it: {{ $.error.text }}"}
    - {when: $.base_resp.status_code > 0, verdict: next, message: $.base_resp.status_msg, code: $.base_resp.status_code, as: 502}
    - {status: 200, when: $.error.type == 'slow_down', verdict: later, as: 429}
"""  # noqa: E501


def test_rules_apply_first_and_in_order():
    assert judged(RULES, 400, {"error": {"code": "bad_key", "text": "too long"}}).alarm == "key"
    long = judged(RULES, 400, {"error": {"text": "too long"}})
    assert (long.kind, long.status, long.message) == ("stop", 413, "shorten it: too long")
    assert judged(RULES, 400, {"error": {"text": "odd"}}).kind == "later"


def test_a_rule_applies_to_a_200_and_to_a_chunk():
    for chunk in (False, True):
        verdict = judged(RULES, 200, {"base_resp": {"status_code": 1008, "status_msg": "broke"}}, chunk=chunk)
        assert (verdict.kind, verdict.status, verdict.message, verdict.code) == ("next", 502, "broke", "1008")
    assert judged(RULES, 200, {"base_resp": {"status_code": 0}, "choices": []}) is None
    assert judged(RULES, 200, {"choices": []}) is None
    assert judged(RULES, 200, {"error": {"type": "slow_down"}}).status == 429
    assert judged(RULES, 500, {"error": {"type": "slow_down"}}).status == 500


def test_an_error_in_a_200_without_a_message_is_explained_to_the_operator():
    verdict = judged("errors: {rules: [{when: $.bad, verdict: next}]}\n", 200, {"bad": True})
    assert verdict.message == "HTTP 200 with a body that a rule of its file calls an error"
    assert (
        judged("errors: {rules: [{when: $.bad, verdict: next}]}\n", 200, {"bad": True, "message": "m"}).message == "m"
    )


def test_rules_and_fields_read_the_response_headers():
    text = """
errors:
  code: $answer_headers['x-amzn-errortype']
  retry_after: "{{ $answer_headers['x-wait-ms'] | number / 1000 }}"
  rules:
    - {status: 400, when: "$answer_headers['x-amzn-errortype'] == 'ThrottlingException'", verdict: later, as: 429}
    - {status: 200, when: "$answer_headers['x-failed']", verdict: next, message: "$answer_headers['x-failed']"}
"""
    verdict = judged(text, 400, {"message": "m"}, {"x-amzn-errortype": "ThrottlingException", "x-wait-ms": "2500"})
    assert (verdict.kind, verdict.status, verdict.code, verdict.message, verdict.retry_after) == (
        "later",
        429,
        "ThrottlingException",
        "m",
        2.5,
    )
    assert judged(text, 400, {"message": "m"}, {"x-amzn-errortype": "ValidationException"}).kind == "stop"
    assert judged(text, 200, {"text": "x"}, {"x-failed": "quota"}).message == "quota"
    assert judged(text, 200, {"text": "x"}) is None and judged(text, 200, {"text": "x"}, {}, chunk=True) is None


def test_the_wait_may_be_computed_from_a_moment_in_the_body(monkeypatch):
    monkeypatch.setattr("tollgate.mapping.provider.errors.time.time", lambda: 1795255190.5)
    made = 'errors: {retry_after: "{{ ($.again | seconds) - $now }}"}'
    assert judged(made, 429, {"again": "2026-11-21T10:00:00Z"}).retry_after == 10
    assert judged(made, 429, {"again": "soon"}).retry_after is None


def test_the_rules_of_an_endpoint_precede_those_of_its_provider():
    text = (
        SMALL.replace("{chat: /chat/completions}", "{chat: {path: /c, errors: {stop: [429], message: $.own}}}")
        + "errors: {next: [429, 409], message: $.wide, type: $.t}\n"
    )
    errors = compiled(text).offers["acme/large"][0].errors
    verdict = errors.judge(429, {}, {"own": "o", "wide": "w", "t": "tt"})
    assert (verdict.kind, verdict.message, verdict.type) == ("stop", "o", "tt")
    assert errors.judge(409, {}, {}).kind == "next"


INSIDE = [
    pytest.param(
        {"error": {"message": "m", "code": 502}, "choices": []},
        ("later", None, 502),
        id="a status as its code, beside choices",
    ),
    pytest.param({"error": {"message": "m", "code": "429"}}, ("later", None, 429), id="a status as text"),
    pytest.param(
        {"type": "error", "error": {"type": "overloaded_error", "message": "m"}}, ("later", None, 529), id="overloaded"
    ),
    pytest.param({"error": {"type": "rate_limit_error", "message": "m"}}, ("later", None, 429), id="a rate limit"),
    pytest.param({"error": {"code": "content_filter", "message": "m"}}, ("stop", None, 400), id="a content filter"),
    pytest.param(
        {"error": {"type": "invalid_request_error", "message": "m"}}, ("stop", None, 400), id="the caller's fault"
    ),
    pytest.param(
        {"error": {"code": "insufficient_quota", "message": "m"}}, ("next", "balance", 402), id="the provider balance"
    ),
    pytest.param(
        {"error": {"type": "authentication_error", "message": "m"}}, ("next", "key", 401), id="the provider key"
    ),
    pytest.param({"error": {"message": "m"}}, ("later", None, 500), id="an error with only a message"),
    pytest.param({"error": "m"}, ("later", None, 500), id="an error that is a string"),
    pytest.param(
        {"type": "error", "code": "server_error", "message": "m"}, ("later", None, 500), id="a flat error event"
    ),
    pytest.param(
        {"object": "error", "message": "m", "type": "InternalServerError", "param": None, "code": 503},
        ("later", None, 503),
        id="an object of type error",
    ),
]


@pytest.mark.parametrize(("body", "expected"), INSIDE)
@pytest.mark.parametrize("chunk", [False, True])
def test_a_200_can_contain_an_error(body, expected, chunk):
    verdict = PLAIN.judge(200, {}, body, chunk=chunk)
    assert (verdict.kind, verdict.alarm, verdict.status) == expected
    assert verdict.message == "m"


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("overloaded_error", 529),
        ("overloaded", 529),
        ("rate_limit_error", 429),
        ("rate_limit_exceeded", 429),
        ("insufficient_quota", 402),
        ("billing_error", 402),
        ("authentication_error", 401),
        ("invalid_api_key", 401),
        ("permission_error", 403),
        ("not_found_error", 404),
        ("invalid_request_error", 400),
        ("invalid_request", 400),
        ("invalid_prompt", 400),
        ("context_length_exceeded", 400),
        ("bio_policy", 400),
        ("cyber_policy", 400),
        ("misalignment_policy_violation", 400),
        ("image_content_policy_violation", 400),
        ("invalid_image", 400),
        ("unsupported_image_media_type", 400),
        ("failed_to_download_image", 400),
        ("request_too_large", 413),
        ("content_filter", 400),
        ("server_is_overloaded", 503),
        ("slow_down", 503),
        ("timeout_error", 504),
        ("server_error", 500),
        ("api_error", 500),
        ("own_word", 500),
    ],
)
@pytest.mark.parametrize("member", ["type", "code"])
def test_a_documented_error_code_in_a_200_has_its_status(member, word, status):
    assert PLAIN.judge(200, {}, {"error": {member: word, "message": "m"}}).status == status


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        ({"code": "cyber_policy"}, "stop", 400),
        ({"type": "rate_limit_error"}, "later", 429),
        ({"type": "insufficient_quota"}, "next", 402),
        ({"code": 503}, "later", 503),
        ({"code": "server_error"}, "later", 500),
        ({}, "later", 500),
    ],
    ids=str,
)
def test_a_failure_that_an_answer_reports_is_judged_by_its_words(error, kind, status):
    verdict = ErrorRules(redact=lambda text: text.replace("hush", "[secret]")).judge_reported(
        {"message": "hush", **error}
    )
    assert (verdict.kind, verdict.status, verdict.message) == (kind, status, "[secret]")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"choices": []},
        {"error": None},
        {"error": {}},
        {"object": "error"},
        {"object": "response", "status": "failed", "error": {"code": "server_error", "message": "m"}},
        {"type": "ping"},
        [],
        "text",
        None,
        5,
    ],
    ids=str,
)
def test_an_ordinary_answer_is_not_an_error(body):
    assert PLAIN.judge(200, {}, body) is None
    assert PLAIN.judge(201, {}, body) is None


@pytest.mark.parametrize("code", ["insufficient_quota", "billing_error", "all_gone"])
@pytest.mark.parametrize("member", ["type", "code"])
def test_an_error_for_lack_of_credit_is_neither_a_rate_limit_nor_about_our_key_nor_the_callers(member, code):
    """Gateways like this one answer 403, some services 400."""
    body = {"error": {member: code, "message": "m"}}
    for status in (400, 401, 403, 429, 500):
        verdict = ErrorRules(spent=frozenset({"all_gone"})).judge(status, {}, body)
        assert (verdict.kind, verdict.alarm) == ("next", "balance")
    assert PLAIN.judge(429, {}, body).kind == ("later" if code == "all_gone" else "next")


@pytest.mark.parametrize(
    ("listed", "kind", "alarm"), [("stop", "stop", None), ("key", "next", "key"), ("retry", "next", "balance")]
)
def test_a_file_may_say_otherwise_of_a_status_for_lack_of_credit(listed, kind, alarm):
    verdict = judged(f"errors: {{{listed}: [403]}}\n", 403, {"error": {"code": "insufficient_quota", "message": "m"}})
    assert (verdict.kind, verdict.alarm) == (kind, alarm)


@pytest.mark.parametrize(
    ("status", "message", "code"),
    [
        (400, "The Prompt IS too long, by 9 tokens", "context_length_exceeded"),
        (413, "it does not fit", "context_length_exceeded"),
        (422, "it does not fit", "context_length_exceeded"),
        (400, "max_tokens is too large", "own"),
        (429, "it does not fit", "own"),
    ],
)
def test_a_prompt_that_is_too_long_has_the_code_that_agents_react_to(status, message, code):
    rules = ErrorRules(too_long=("prompt is too long", "does not fit"))
    assert rules.judge(status, {}, {"error": {"message": message, "code": "own"}}).code == code


@pytest.mark.parametrize(
    ("from_hub", "details"),
    [("", ("too hot", "heat")), ("  from_hub: {text: $.message}\n", ("HTTP 400 (Bad Request)", None))],
    ids=["of an upstream", "of clients, which servers of every kind claim to speak"],
)
def test_the_errors_of_an_upstream_s_format_are_where_its_mapping_says(from_hub, details):
    own = "mapping: own\nrequest: {from_hub: {a: $.model}}\nresponse: {to_hub: {parts: [{kind: text, text: $.t}]}}\n"
    own += f"error:\n  to_hub: {{message: '$.fault[0]', type: '$.fault[1]'}}\n{from_hub}"
    mapping = compile_mapping(read_text(own, "mappings/own.yaml"))
    text = SMALL.replace("{chat: /chat/completions}", "{own: {path: /x, mapping: own}}")
    errors = compiled(text, mappings={"own": mapping}).endpoints["own"].errors
    verdict = errors.judge(400, {}, {"fault": ["too hot", "heat"]})
    assert (verdict.message, verdict.type) == details
    assert errors.judge(400, {}, "<html>").message != "too hot"


def test_a_model_missing_at_one_upstream_may_be_at_another():
    assert PLAIN.judge(404, {}, {"error": {"code": "model_not_found", "message": "m"}}).kind == "next"


@pytest.mark.parametrize(
    ("status", "hint", "kind"),
    [
        (500, "false", "next"),
        (429, "false", "next"),
        (529, "true", "later"),
        (413, "true", "later"),
        (400, "true", "stop"),
        (400, "false", "stop"),
        (401, "true", "next"),
    ],
)
def test_a_retry_hint_of_the_upstream_is_followed(status, hint, kind):
    assert PLAIN.judge(status, {"x-should-retry": hint}, {}).kind == kind


def test_a_retry_hint_does_not_repeat_a_request_where_our_balance_is_used_up():
    verdict = PLAIN.judge(429, {"x-should-retry": "true"}, {"error": {"code": "insufficient_quota"}})
    assert (verdict.kind, verdict.alarm) == ("next", "balance")


NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Sat, 21 Nov 2026 12:00:37 GMT"}, 37),
        ({"retry-after": "Sat, 21 Nov 2026 11:00:00 GMT"}, 0),
        ({"retry-after": "Sat, 21 Nov 2026 12:00:37 +999999999999999"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after-ms": "x", "retry-after": "3"}, 3),
        ({}, None),
    ],
    ids=str,
)
def test_retry_after_is_read_from_headers(headers, seconds):
    assert retry_after(headers, NOW) == seconds


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "30"}, 30),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(NOW.timestamp()) + 30)}, 30),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{int(NOW.timestamp()) + 30}000"}, 30),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1754667660000"}, 0),
        ({"acme-ratelimit-tokens-remaining": "0", "acme-ratelimit-tokens-reset": "2026-11-21T12:00:37Z"}, 37),
        ({"acme-ratelimit-tokens-remaining": "0", "acme-ratelimit-tokens-reset": "2026-11-21T12:00:37"}, 37),
        (
            {
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "1m20s",
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "2s",
                "x-ratelimit-remaining-images": "5",
                "x-ratelimit-reset-images": "1h",
            },
            80,
        ),
        ({"x-ratelimit-remaining-requests": "7", "x-ratelimit-reset-requests": "30s"}, None),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "soon"}, None),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "9" * 400}, None),
        ({"x-ratelimit-remaining": "0"}, None),
        ({"x-ratelimit-reset": "30"}, None),
    ],
    ids=str,
)
def test_the_reset_time_of_an_exhausted_limit_is_read(headers, seconds):
    assert spent_until(headers, NOW) == seconds


def test_a_reset_in_unix_time_does_not_depend_on_the_machine_s_time_zone(monkeypatch):
    reset = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(NOW.timestamp()) + 30)}
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        wait = spent_until(reset, NOW)
    time.tzset()
    assert wait == 30


def test_an_exhausted_limit_sets_the_wait_if_nothing_else_does():
    exhausted = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "30s"}
    assert judged(RULES, 429, {}, exhausted).retry_after == 30
    assert judged(RULES, 429, {}, {**exhausted, "retry-after": "2"}).retry_after == 2
    assert judged(RULES, 429, {"error": {"details": [{"retryDelay": "37s"}]}}, exhausted).retry_after == 37
    assert judged(RULES, 500, {}, exhausted).retry_after is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (37, 37),
        (1.5, 1.5),
        ("37", 37),
        ("37s", 37),
        ("320ms", 0.32),
        ("1m20s", 80),
        ("1h", 3600),
        ("1h2m3s", 3723),
        ("6m0s", 360),
        ("0.66s", 0.66),
        ("", None),
        ("s", None),
        ("soon", None),
        (True, None),
        (None, None),
        (-1, None),
        ({}, None),
        ("1s later", None),
    ],
    ids=repr,
)
def test_a_wait_is_read_in_any_notation(value, seconds):
    assert seconds_of(value) == seconds


def test_the_wait_in_the_body_is_read_if_no_header_has_one():
    body = {"error": {"text": "m", "details": [{"retryDelay": "37s"}]}}
    assert judged(RULES, 429, body).retry_after == 37
    assert judged(RULES, 429, body, {"retry-after": "2"}).retry_after == 2
    assert judged(RULES, 418, body).retry_after is None


@pytest.mark.parametrize(
    ("status", "body", "overloaded"),
    [
        (529, {}, True),
        (503, {}, True),
        (500, {"error": {"type": "overloaded_error"}}, True),
        (500, {}, False),
        (429, {}, False),
    ],
)
def test_overload_is_recognised(status, body, overloaded):
    assert PLAIN.judge(status, {}, body).overloaded is overloaded


@pytest.mark.parametrize(
    ("body", "expected_fields"),
    [
        ({"error": {"message": "m", "type": "t", "code": "c", "param": "p"}}, ("m", "t", "c", "p")),
        ({"error": {"message": "m", "status": "NOT_FOUND", "code": 404}}, ("m", "NOT_FOUND", "404", "")),
        ([{"error": {"message": "m", "code": 400}}], ("m", "", "400", "")),
        ({"error": "m"}, ("m", "", "", "")),
        ({"error": "m", "error_type": "x"}, ("m", "", "", "")),
        ({"message": "m"}, ("m", "", "", "")),
        ({"Message": "m"}, ("m", "", "", "")),
        ({"message": "m", "type": "t", "param": "p", "code": "c"}, ("m", "t", "c", "p")),
        ({"object": "error", "message": "m", "code": 40301}, ("m", "", "40301", "")),
        ({"detail": "m"}, ("m", "", "", "")),
        ({"detail": [{"loc": ["body", "model"], "msg": "field required"}]}, ("body.model: field required", "", "", "")),
        ({"detail": {"message": "m"}}, ("m", "", "", "")),
        ({"errors": [{"message": "m", "code": "c"}]}, ("m", "", "c", "")),
        ({"errors": ["m", "n"]}, ("m; n", "", "", "")),
        ({"errors": {"prompt": ["m"]}}, ("", "", "", "")),
        ({"error": {"error": {"message": "m"}}}, ("m", "", "", "")),
        ({"error": {"message": {"detail": [{"msg": "m"}]}}}, ("m", "", "", "")),
        ({"message": "wrapped", "error": {"message": "m"}}, ("m", "", "", "")),
        ({"type": "error", "error": {"type": "t", "message": "m"}}, ("m", "t", "", "")),
        ({"title": "m", "status": 400}, ("m", "", "", "")),
        ({"error": "invalid", "error_description": "m"}, ("m", "", "", "")),
        ({"msg": "m", "code": 1305}, ("m", "", "1305", "")),
        ("m", ("m", "", "", "")),
        ("<html><head><title>502 Bad Gateway</title></head></html>", ("an HTML page (502 Bad Gateway)", "", "", "")),
        ("<!DOCTYPE html><body>x", ("an HTML page", "", "", "")),
        ("<html><title>open <h1 class=a>No <b>such</b>\n host</H1>", ("an HTML page (No such host)", "", "", "")),
        ("<html>" + "<title>" * 37_000, ("an HTML page", "", "", "")),  # this took minutes and blocked the event loop
        ("<html><title>" + "<" * 250_000 + "</title>", ("an HTML page", "", "", "")),
        ({}, ("", "", "", "")),
        (None, ("", "", "", "")),
        (7, ("", "", "", "")),
        ([], ("", "", "", "")),
    ],
    ids=lambda value: json.dumps(value)[:50] if not isinstance(value, tuple) else "",
)
def test_an_error_is_read_from_any_shape(body, expected_fields):
    found = read_error(body)
    assert (found.message, found.type, found.code, found.param) == expected_fields


def test_an_error_without_a_message_is_described_by_its_status():
    assert PLAIN.judge(503, {}, {}).message == "HTTP 503 (Service Unavailable)"
    assert PLAIN.judge(599, {}, "").message == "HTTP 599"
    ruled = "errors: {rules: [{when: $.bad, verdict: next}]}\n"
    assert judged(ruled, 200, {"bad": 1}).message == "HTTP 200 with a body that a rule of its file calls an error"
    assert judged(ruled, 503, {"bad": 1}).message == "HTTP 503 (Service Unavailable)"


def test_a_long_message_is_truncated():
    assert len(PLAIN.judge(500, {}, "x" * 9999).message) == 300
    assert len(PLAIN.judge(500, {}, {"error": {"message": "x" * 9999}}).message) == 1000


def test_secrets_are_redacted_from_messages():
    verdict = offer(SMALL).errors.judge(401, {}, {"error": {"message": "Incorrect API key provided: sk-canary."}})
    assert verdict.message == "Incorrect API key provided: [secret]."


def test_details_of_a_coded_error_have_no_secrets_and_a_limit():
    rules = ErrorRules(redact=lambda text: text.replace("hush", "[secret]"))

    def told(**details):
        return rules.judge(400, {}, {"error": {"message": "m", "details": details}}).error().details

    assert told(error_code="file_expired", paths=["a hush", 1]) == {
        "error_code": "file_expired",
        "paths": ["a [secret]", 1],
    }
    assert told(error_code="file_expired", paths=["x" * 99999]) == {"error_code": "file_expired"}
    assert told(error_code=7) is None and told(error_visibility="user_facing") is None


@pytest.mark.parametrize(
    "shown", [{"message": "{}"}, {"message": "m", "type": "{}", "code": "{}", "param": "{}"}, "{}"]
)
def test_a_message_truncated_inside_a_secret_shows_no_part_of_it(shown):
    rules = offer(SMALL).errors
    for before in range(80, 1001):
        quoted = "x" * before + "sk-canary" + "y" * 100
        body = (
            quoted if isinstance(shown, str) else {"error": {name: text.format(quoted) for name, text in shown.items()}}
        )
        assert "sk-" not in repr(rules.judge(400, {}, body))


def test_a_configured_message_is_truncated_after_redaction():
    rules = offer(SMALL + "errors: {message: $.why}").errors
    assert "sk-" not in rules.judge(400, {}, {"why": "x" * 990 + "sk-canary" + "y" * 100}).message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "error",
                    "message",
                    "type",
                    "code",
                    "detail",
                    "errors",
                    "base_resp",
                    "status_code",
                    "text",
                    "loc",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)
CUSTOM = rules(RULES)


@given(st.sampled_from([200, 204, 302, 400, 401, 429, 500, 529]), json_values)
def test_any_answer_gets_a_verdict(status, body):
    for errors in (PLAIN, CUSTOM):
        verdict = errors.judge(status, {}, body)
        assert verdict is None if status < 300 and verdict is None else verdict.message
        if status >= 400:
            assert verdict is not None


@pytest.mark.parametrize(
    ("expression", "marks"),
    [
        ("$.base_resp.status_code", (b'"base_resp"',)),
        ("$.a.b == 'x' or $.c", (b'"a"', b'"c"')),
        ("$.a != 'x'", None),
        ("not $.a", None),
        ("$.a is absent", None),
        ("$['a b']", None),
        ("$", None),
        ("$..a", None),
        ("true", None),
        ("$.a == none", None),
        ("$.a in [none, 1]", (b'"a"',)),
        ("$.a == 1 and $.b == none", (b'"a"', b'"b"')),
        ("($.a | length) == none", None),
        ("is_off($.a)", None),
        ("$.a and $.a != 'x'", (b'"a"',)),
        ("$.a if $.b else $.c", (b'"a"', b'"b"', b'"c"')),
        ("$.a if $.b else true", None),
        ("$.a | default(1)", None),
        ("$.a[0].b == 'broke-off'", (b'"broke-off"',)),
        ("$.a[0].b == 'broke-off' or $.c", (b'"a"', b'"c"')),
        ("$.a == 'broke \"off'", (b'"a"',)),
    ],
)
def test_the_bytes_that_an_error_event_must_contain_are_known(expression, marks):
    text = f"errors: {{rules: [{{when: {json.dumps(expression)}, verdict: next}}]}}\n"
    found = rules(text + "define: {is_off($a): {$match: $a, ok: false, $absent: true, $else: true}}\n").event_marks
    assert found == (marks and (b'"error"', *marks))


def test_events_that_cannot_be_errors_are_not_parsed():
    assert PLAIN.event_marks == (b'"error"',)
    assert not PLAIN.may_match(b'{"choices":[{"delta":{"content":"x"}}]}')
    assert PLAIN.may_match(b'{"error":{"message":"m"}}')
    assert CUSTOM.may_match(b'{"base_resp":{"status_code":1}}')
    assert not CUSTOM.may_match(b'{"choices":[]}')
    matches_absent = rules("errors: {rules: [{when: $.choices is absent, verdict: next}]}\n")
    assert matches_absent.event_marks is None
    assert matches_absent.may_match(b"{}")


def test_a_rule_for_failed_statuses_adds_no_cost_to_events():
    assert rules("errors: {rules: [{status: 400, when: not $.x, verdict: next}]}\n").event_marks == (b'"error"',)


def test_every_recorded_error_has_a_message_and_a_verdict():
    if not TRAFFIC.exists():
        pytest.skip("shared/traffic is not beside this repository")
    seen = 0
    for line in json.loads((TRAFFIC / "index.json").read_text())["exchanges"]:
        if (line.get("status") or 200) < 400:
            continue
        answer = json.loads((TRAFFIC / line["file"]).read_text())["response"]
        body = answer.get("body") if answer.get("body") is not None else answer.get("sse") or answer.get("events")
        verdict = PLAIN.judge(
            answer["status"], {name.lower(): str(value) for name, value in answer["headers"].items()}, body
        )
        assert verdict.message and not verdict.message.startswith(("{", "HTTP ", "[")), line["id"]
        assert (verdict.kind == "stop") == (
            400 <= answer["status"] < 500
            and answer["status"] not in (401, 402, 403, 408, 409, 425, 429)
            and verdict.code != "model_not_found"
        ), line["id"]
        seen += 1
    assert seen > 80
