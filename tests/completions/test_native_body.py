"""The native request bytes: only the model changes, and usage is asked for."""

import orjson
import pytest

from tollgate.completions.native import native_body


def sent(raw: bytes, *, ask_usage: bool = False) -> bytes:
    return native_body(raw, orjson.loads(raw), "up/model-1", ask_usage=ask_usage)


def test_everything_but_the_model_stays_byte_for_byte():
    raw = b'{ "messages":[{"role":"user","content":"h\\u00e9 \xc3\xa9"}],  "model" : "alias",\n "temperature":1.0, "big":123456789012345678901234567890}'
    assert sent(raw) == raw.replace(b'"alias"', b'"up/model-1"')


def test_a_model_word_in_text_does_not_mislead():
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
    ids=["a tool parameter of that name", "an escaped key", "a value of that name", "an escaped model", "the real one escaped, another one plain", "twice, once escaped"],
)
def test_an_unsure_splice_is_encoded_instead(raw):
    before, after = orjson.loads(raw), orjson.loads(sent(raw))
    assert after == {**before, "model": "up/model-1"}


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (b"", {"include_usage": True}),
        (b',"stream_options":{"include_usage":true}', {"include_usage": True}),
        (b',"stream_options":{"include_usage":false}', {"include_usage": True}),
        (b',"stream_options":null', {"include_usage": True}),
        (b',"stream_options":{"include_obfuscation":false}', {"include_obfuscation": False, "include_usage": True}),
    ],
    ids=["absent", "asked", "declined", "null", "other options"],
)
def test_a_stream_always_asks_for_usage(options, wanted):
    raw = b'{"model":"m","stream":true' + options + b"}  \n"
    assert orjson.loads(sent(raw, ask_usage=True))["stream_options"] == wanted
