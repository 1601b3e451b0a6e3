"""The body of a native request: only the model changes, and usage is requested."""

import orjson
import pytest

from tollgate.completions.native import native_body


def sent(raw: bytes, *, ask_usage: bool = False) -> bytes:
    return native_body(raw, orjson.loads(raw), "up/model-1", ask_usage=ask_usage)


def test_everything_but_the_model_is_unchanged_byte_for_byte():
    raw = (
        b'{ "messages":[{"role":"user","content":"h\\u00e9 \xc3\xa9"}],  "model" : "alias",\n "temperature":1.0, '
        b'"big":123456789012345678901234567890}'
    )
    assert sent(raw) == raw.replace(b'"alias"', b'"up/model-1"')


def test_a_model_field_quoted_in_text_is_not_replaced():
    raw = b'{"messages":[{"role":"user","content":"say \\"model\\": \\"x\\""}],"model":"m"}'
    assert sent(raw) == raw.replace(b'"model":"m"', b'"model":"up/model-1"')


@pytest.mark.parametrize(
    "raw",
    [
        b'{"model":"m","tools":[{"function":{"parameters":{"properties":{"model":{"type":"string"}}}}}]}',
        b'{"mod\\u0065l":"m","messages":[]}',
        b'{"x":"model","model":"m"}',
        b'{"model":"a\\u0062c","messages":[]}',
        b'{"metadata":{"model":"m"},"mod\\u0065l":"m"}',
        b'{"model":"m","\\u006Dodel":"m"}',
    ],
    ids=[
        "a tool parameter of that name",
        "an escaped key",
        "a value of that name",
        "an escaped model",
        "the real one escaped, another one plain",
        "twice, once escaped",
    ],
)
def test_an_ambiguous_body_is_encoded_again(raw):
    before, after = orjson.loads(raw), orjson.loads(sent(raw))
    assert after == {**before, "model": "up/model-1"}


@pytest.mark.parametrize(
    "raw",
    [
        b'{"model":"m","previous_response_id":"resp_foreign","previous_response_id":null}',
        b'{"model":"m","input":[{"content":[{"file_id":"file_foreign", "file_id":null}]}]}',
        b'{"model":"m","input":[{"file_id":"file_foreign"}],"input":"hi"}',
        b'{"model":"m","previous_response_\\u0069d":"resp_foreign","previous_response_id":null}',
        b'{"model":"m","metadata":{"a\\u003a":"b\\u003A"},"previous_response_id":"resp_foreign","previous_response_id":null}',
    ],
    ids=["at the top", "inside", "around another object", "once escaped", "beside escaped quotes"],
)
def test_of_a_duplicate_field_only_the_checked_value_is_sent(raw):
    """Some parsers read the first of two, where the checks read the last."""
    assert b"foreign" not in sent(raw)
    assert orjson.loads(sent(raw)) == {**orjson.loads(raw), "model": "up/model-1"}


@pytest.mark.parametrize(
    "raw",
    [
        orjson.dumps(
            {"messages": [{"content": 'say "a": 1'}], "model": "m", "temperature": 1.0, "tools": [{"model": "x"}]}
        ),
        b'{"messages": [{"content": "\\u003cb\\u003e: \\u0022a\\u0022:"}], "model": "m", "temperature": 1.00}',
        b'{"messages" : [{"content" : "a : b"}],\n "model" : "m", "big": 123456789012345678901}',
    ],
    ids=["compact", "spaced and escaped", "wide"],
)
def test_a_body_without_duplicate_fields_is_unchanged(raw):
    assert sent(raw) == raw.replace(b'"m"', b'"up/model-1"')


@pytest.mark.parametrize("length", [0, 10_000], ids=["short", "long"])
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_the_model_is_found_at_any_position(place, length):
    others = [
        ("messages", [{"model": "m"}, '"model":"m"', "x" * length]),
        ("tools", [{"model": "m"}]),
        ("x", {'a"model': "m", "model": "m"}),
    ]
    body = dict([*others[:place], ("model", "m"), *others[place:]])
    assert sent(orjson.dumps(body)) == orjson.dumps({**body, "model": "up/model-1"})
    with_usage = sent(orjson.dumps(body), ask_usage=True)
    assert with_usage == orjson.dumps({**body, "model": "up/model-1", "stream_options": {"include_usage": True}})


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (b"", {"include_usage": True}),
        (b',"stream_options":{"include_usage":true}', {"include_usage": True}),
        (b',"stream_options":{"include_usage":false}', {"include_usage": True}),
        (b',"stream_options":null', {"include_usage": True}),
        (b',"stream_options":{"include_obfuscation":false}', {"include_obfuscation": False, "include_usage": True}),
    ],
    ids=["absent", "requested", "declined", "null", "other options"],
)
def test_a_stream_always_requests_usage(options, wanted):
    raw = b'{"model":"m","stream":true' + options + b"}  \n"
    assert orjson.loads(sent(raw, ask_usage=True))["stream_options"] == wanted
