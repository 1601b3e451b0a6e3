"""Requests that are rejected before routing, and the messages that say why."""

import orjson
import pytest

from support.inprocess import inprocess, replying
from tollgate.completions.body import check_fields, read_json
from tollgate.completions.converted_fields import check_converted
from tollgate.config.settings import Server
from tollgate.errors import BadRequest
from tollgate.json_bounds import MAX_DEPTH

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def user_parts(*parts):
    return {"messages": [{"role": "user", "content": list(parts)}]}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "the request body is empty; a JSON object is wanted"),
        (b"{", "the request body is not valid JSON"),
        (b"[1]", "the request body is a list; a JSON object is wanted"),
        (b'{"a":' * 300 + b"1" + b"}" * 300, "the request body is nested more than 200 levels deep"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "the request body is not valid JSON"),
        (b'{"a":"\xff"}', "the request body is not valid JSON"),
    ],
    ids=["empty", "cut", "a list", "deep", "very deep", "not UTF-8"],
)
def test_a_body_that_is_not_a_json_object_is_rejected(raw, message):
    with pytest.raises(BadRequest) as caught:
        read_json(raw, Server())
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"tools": [{}] * 5001}, "the request has more than 5000 tools"),
        ({"tool_choice": {"type": "allowed_tools", "tools": [{}] * 5001}}, "tool_choice names more than 5000 tools"),
        ({"tool_choice": {"allowed_tools": {"tools": [{}] * 5001}}}, "tool_choice names more than 5000 tools"),
    ],
    ids=["tools", "choice of responses", "choice of chat"],
)
def test_too_many_tools_are_rejected(more, message):
    with pytest.raises(BadRequest, match=message):
        check_fields("chat", CHAT | more)
    for choice in ({"allowed_tools": None}, {"allowed_tools": {"tools": [{}] * 5000}}, {"tools": [{}] * 5000}):
        check_fields("chat", CHAT | {"tools": [{}] * 5000, "tool_choice": choice})


def test_a_body_with_too_many_values_is_rejected():
    crowded = b'{"model":"m","input":[' + b",".join([b"[]"] * 1000) + b"]}"
    with pytest.raises(BadRequest, match="the request body holds more than 1000 values"):
        read_json(crowded, Server(max_values=1000))
    read_json(crowded.replace(b"[]", b"1"), Server(max_values=1005))
    words = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": 'a, [b] {c}, \\"d\\"' * 1000}]})
    read_json(words, Server(max_values=1000))


@pytest.mark.parametrize(
    "name", ["Model", "MAX_TOKENS", "\u017ftream"], ids=["capitalised", "upper case", "a letter that case folds to s"]
)
def test_a_known_field_in_other_letter_case_is_rejected(name):
    """Some parsers ignore case: they would run another model than the one that is billed."""
    with pytest.raises(BadRequest, match=f"unknown field {name}; did you mean {name.casefold()}") as caught:
        check_fields("chat", {**CHAT, name: "x"})
    assert caught.value.param == name
    check_fields("chat", {**CHAT, "Acme_Option": 1})


def test_a_long_conversation_does_not_count_as_deep():
    raw = b'{"messages":[' + b",".join([b'{"role":"user","content":[{"type":"text","text":"x"}]}'] * 500) + b"]}"
    assert len(read_json(raw, Server())[0]["messages"]) == 500


LONG = "x" * 3000


@pytest.mark.parametrize(
    "plain",
    [
        {"messages": [{"role": "user", "content": LONG}] * 2},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": LONG}]}], "system": LONG},
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": LONG}]}, LONG], "instructions": LONG},
        {"input": LONG},
    ],
    ids=["texts", "parts of text", "responses items", "responses text"],
)
def test_the_outline_of_a_body_omits_its_text(plain):
    raw = orjson.dumps({"model": "m", **plain, "tools": [{"name": "f"}]})
    turns = {name: [] for name, value in plain.items() if type(value) is list}
    assert orjson.loads(read_json(raw, Server())[1]) == {"model": "m", **turns, "tools": [{"name": "f"}]}


@pytest.mark.parametrize(
    "turn",
    [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://e.org"}}]},
        {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": [{"type": "text", "text": {"deep": 1}}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]},
        {"role": {"a": 1}, "content": "hi"},
        {"type": "item_reference", "id": "msg_1"},
    ],
    ids=["a picture", "a cache mark", "no text", "calls", "a role that is an object", "an item"],
)
def test_the_outline_of_a_body_keeps_other_turns_whole(turn):
    raw = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": LONG}, turn]})
    assert orjson.loads(read_json(raw, Server())[1]) == {"model": "m", "messages": [turn]}


def test_the_outline_of_a_body_keeps_the_heads_of_long_strings():
    long, head = "tg1." + "a" * 1000, "tg1." + "a" * 60
    picture = {"type": "image", "source": {"type": "base64", "data": long}}
    schema = {"type": "object", "description": long}
    body = {
        "system": [{"type": "text", "text": long, "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "tool", "tool_call_id": "c", "content": long},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [picture]}]},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "description": long, "parameters": schema}}],
    }
    outline = read_json(orjson.dumps(body), Server())[1]
    cut = orjson.loads(orjson.dumps(body).replace(long.encode(), head.encode()))
    cut["tools"][0]["function"]["parameters"] = schema  # schemas stay as they are
    assert orjson.loads(outline) == cut


@pytest.mark.parametrize("most", [5, 200, MAX_DEPTH])
def test_a_long_body_may_be_just_as_deep_as_allowed(most):
    def body(levels: int) -> bytes:
        return b'{"a":%b1%b,"b":"%b"}' % (b"[" * (levels - 1), b"]" * (levels - 1), LONG.encode())

    assert read_json(body(most), Server(max_nesting=most))[0]["b"] == LONG
    with pytest.raises(BadRequest, match=f"nested more than {most} levels"):
        read_json(body(most + 1), Server(max_nesting=most))


def test_a_short_body_is_its_own_outline():
    raw = b'{"model":"m", "messages":[{"role":"user","content":"hi"}]}'
    assert read_json(raw, Server())[1] == raw.decode()


def test_a_long_body_is_rejected_for_its_depth_too():
    raw = b'{"messages":[{"role":"user","content":"%b"}],"a":%b1%b}' % (LONG.encode(), b'{"a":' * 250, b"}" * 250)
    with pytest.raises(BadRequest, match="nested more than 200 levels"):
        read_json(raw, Server())


@pytest.mark.parametrize("most", [200, MAX_DEPTH])
def test_a_body_too_deep_to_serialize_is_rejected_under_any_limit(most):
    raw = b'{"messages":[{"role":"user","content":"%b"}],"a":%b1%b}' % (LONG.encode(), b'{"a":' * 300, b"}" * 300)
    with pytest.raises(BadRequest, match=f"nested more than {most} levels"):
        read_json(raw, Server(max_nesting=most))


@pytest.mark.parametrize(
    ("dialect", "change", "message", "param"),
    [
        ("chat", {"model": None}, "model is null; text is wanted", "model"),
        ("chat", {"model": 5}, "model is an integer; text is wanted", "model"),
        ("chat", {"messages": "hi"}, "messages is text; a list is wanted", "messages"),
        ("chat", {"messages": []}, "messages is empty; at least one message is wanted", "messages"),
        ("chat", {"messages": ["hi"]}, "messages[0] is text; an object is wanted", "messages[0]"),
        ("chat", {"messages": [{"content": "hi"}]}, "messages[0].role is missing; text is wanted", "messages[0].role"),
        (
            "chat",
            {"messages": [{"role": None, "content": "hi"}]},
            "messages[0].role is null; text is wanted",
            "messages[0].role",
        ),
        (
            "chat",
            {"messages": [{"role": "user", "content": 4}]},
            "messages[0].content is an integer; text or a list of parts is wanted",
            "messages[0].content",
        ),
        (
            "chat",
            {"messages": [{"role": "user", "content": "hi"}, {"role": "user"}]},
            "messages[1].content is missing; text or a list of parts is wanted",
            "messages[1].content",
        ),
        (
            "chat",
            user_parts({"type": "text", "text": 5}),
            "messages[0].content[0].text is an integer; text is wanted",
            "messages[0].content[0].text",
        ),
        (
            "chat",
            user_parts("x", {"type": "text", "text": None}),
            "messages[0].content[1].text is null; text is wanted",
            "messages[0].content[1].text",
        ),
        (
            "chat",
            user_parts({"type": "text"}),
            "messages[0].content[0].text is missing; text is wanted",
            "messages[0].content[0].text",
        ),
        ("chat", user_parts(5), "messages[0].content[0] is an integer; an object is wanted", "messages[0].content[0]"),
        (
            "messages",
            {"max_tokens": 5, **user_parts({"type": "text", "text": ["x"]})},
            "messages[0].content[0].text is a list; text is wanted",
            "messages[0].content[0].text",
        ),
        (
            "messages",
            {
                "max_tokens": 5,
                **user_parts({"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": 5}]}),
            },
            "messages[0].content[0].content[0].text is an integer; text is wanted",
            "messages[0].content[0].content[0].text",
        ),
        (
            "messages",
            {"max_tokens": 5, **user_parts({"type": "tool_result", "tool_use_id": "t", "content": 5})},
            "messages[0].content[0].content is an integer; text or a list of parts is wanted",
            "messages[0].content[0].content",
        ),
        (
            "messages",
            {"max_tokens": 5, "output_config": "json"},
            "output_config is text; an object is wanted",
            "output_config",
        ),
        (
            "responses",
            {"input": [{"type": "function_call_output", "output": [{"type": "input_text", "text": {"a": 1}}]}]},
            "input[0].output[0].text is an object; text is wanted",
            "input[0].output[0].text",
        ),
        (
            "messages",
            {"max_tokens": 5, "system": [{"type": "text"}]},
            "system[0].text is missing; text is wanted",
            "system[0].text",
        ),
        (
            "count_tokens",
            user_parts({"type": "text", "text": 1.5}),
            "messages[0].content[0].text is a number; text is wanted",
            "messages[0].content[0].text",
        ),
        ("chat", {"temperature": "hot"}, "temperature is text; a number is wanted", "temperature"),
        ("chat", {"temperature": True}, "temperature is a boolean; a number is wanted", "temperature"),
        ("chat", {"max_tokens": 0}, "max_tokens is 0; a positive integer is wanted", "max_tokens"),
        ("chat", {"max_tokens": 1.5}, "max_tokens is a number; a positive integer is wanted", "max_tokens"),
        ("messages", {"max_tokens": -1}, "max_tokens is -1; a non-negative integer is wanted", "max_tokens"),
        ("chat", {"model": ""}, "model is empty; text is wanted", "model"),
        ("chat", {"tools": [5]}, "tools[0] is an integer; an object is wanted", "tools[0]"),
        ("messages", {"max_tokens": 5, "tools": [{}, None]}, "tools[1] is null; an object is wanted", "tools[1]"),
        ("responses", {"tools": ["web_search"]}, "tools[0] is text; an object is wanted", "tools[0]"),
        ("chat", {"stream": "yes"}, "stream is text; a boolean is wanted", "stream"),
        ("chat", {"logprobs": "yes"}, "logprobs is text; a boolean or a non-negative integer is wanted", "logprobs"),
        ("chat", {"logprobs": -1}, "logprobs is -1; a boolean or a non-negative integer is wanted", "logprobs"),
        ("messages", {}, "missing required field: max_tokens", "max_tokens"),
        ("responses", {"input": 7}, "input is an integer; text or a list is wanted", "input"),
        ("responses", {"input": [5]}, "input[0] is an integer; an object is wanted", "input[0]"),
        (
            "responses",
            {"input": ["x", {"role": "user", "content": 5}]},
            "input[1].content is an integer; text or a list of parts is wanted",
            "input[1].content",
        ),
        (
            "responses",
            {"input": [{"role": "user", "content": [None]}]},
            "input[0].content[0] is null; an object is wanted",
            "input[0].content[0]",
        ),
        (
            "responses",
            {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
            "input[0].content[0].text is missing; text is wanted",
            "input[0].content[0].text",
        ),
        (
            "responses",
            {"input": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": 5}]}]},
            "input[0].content[0].text is an integer; text is wanted",
            "input[0].content[0].text",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_an_invalid_field_is_rejected_with_its_name(dialect, change, message, param):
    with pytest.raises(BadRequest) as caught:
        check_fields(dialect, {**CHAT, **change})
    assert (caught.value.message, caught.value.param) == (message, param)


@pytest.mark.parametrize(
    ("dialect", "change"),
    [
        pytest.param("chat", {"temperature": None}, id="null for an optional field"),
        pytest.param("chat", {"brand_new": {"a": 1}}, id="an unknown field"),
        pytest.param("responses", {"client_metadata": {}}, id="an unknown field of a responses request"),
        *(pytest.param("chat", {"logprobs": each}, id=f"logprobs {each}") for each in (True, False, 0, 5)),
        pytest.param("chat", {"messages": [{"role": "user", "content": None}]}, id="null for content"),
        pytest.param("chat", {"messages": [{"role": "assistant", "tool_calls": []}]}, id="no content"),
        pytest.param("chat", {"messages": [{"role": "brand_new"}]}, id="an unknown role"),
        pytest.param("chat", user_parts({"type": "text", "text": ""}, "words", {}), id="an empty text, a string"),
        pytest.param("chat", user_parts({"type": "brand_new", "text": 5}), id="an unknown part"),
        pytest.param("chat", {"system": [{"type": "text"}]}, id="another format's field"),
        pytest.param("responses", {"tools": None}, id="null for tools"),
        pytest.param("responses", {"input": ["x"]}, id="a string as an item"),
        pytest.param("responses", {"input": [{"type": "reasoning", "summary": [], "content": None}]}, id="reasoning"),
        pytest.param("responses", {"input": [{"type": "brand_new", "content": 5}]}, id="an unknown item"),
        pytest.param(
            "responses",
            {"input": [{"type": "message", "role": "user", "content": [{"type": "input_image"}]}]},
            id="an image without a source",
        ),
        pytest.param("messages", user_parts({"type": "tool_result", "tool_use_id": "t"}), id="an empty tool result"),
        pytest.param(
            "messages",
            user_parts({"type": "document", "source": {"type": "text", "data": "x"}}),
            id="a document that is a text",
        ),
    ],
)
def test_unknown_fields_and_nulls_are_accepted(dialect, change):
    needed = {
        "chat": CHAT,
        "messages": {**CHAT, "max_tokens": 5},
        "responses": {"model": "m", "input": [{"role": "user", "content": "x"}]},
    }
    assert check_fields(dialect, {**needed[dialect], **change}) is None


@pytest.mark.parametrize(
    ("client_format", "more", "message"),
    [
        ("chat", {"reasoning": "high"}, "reasoning is text; an object is wanted"),
        ("chat", {"thinking": True}, "thinking is a boolean; an object is wanted"),
        ("chat", {"thinking": {"type": 1}}, "thinking.type is an integer; text is wanted"),
        (
            "chat",
            {"response_format": {"type": "json_schema", "json_schema": "x"}},
            "response_format.json_schema is text; an object is wanted",
        ),
        (
            "chat",
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": ["f"]}}},
            "tool_choice.allowed_tools.tools is a list; a list of objects is wanted",
        ),
        ("chat", {"parallel_tool_calls": "false"}, "parallel_tool_calls is text; a boolean is wanted"),
        ("chat", {"top_logprobs": "3"}, "top_logprobs is text; a number is wanted"),
        ("chat", {"extra_body": "x"}, "extra_body is text; an object is wanted"),
        ("responses", {"text": {"format": "json"}}, "text.format is text; an object is wanted"),
        ("responses", {"include": "reasoning.encrypted_content"}, "include is text; a list is wanted"),
        ("messages", {"metadata": {"user_id": ["u"]}}, "metadata.user_id is a list; text is wanted"),
    ],
)
def test_a_type_that_a_conversion_would_not_see_is_rejected_before_it(client_format, more, message):
    with pytest.raises(BadRequest) as caught:
        check_converted(client_format, CHAT | more)
    assert (caught.value.message, caught.value.param) == (message, message.partition(" is ")[0])


def said(*content, **message):
    """A chat request with these parts, or these fields of its message."""
    return {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a"}, *content] if content else "a"} | message
        ]
    }


def items(*more):
    return {"input": [{"role": "user", "content": "Hi"}, *more]}


WRONG = [
    ("chat", said(name=3), "messages[0].name is an integer; text is wanted"),
    ("chat", said(tool_call_id=7, role="tool"), "messages[0].tool_call_id is an integer; text is wanted"),
    ("chat", said(refusal=5, role="assistant"), "messages[0].refusal is an integer; text is wanted"),
    ("chat", said(function_call="f", role="assistant"), "messages[0].function_call is text; an object is wanted"),
    (
        "chat",
        said(reasoning_details="x", role="assistant"),
        "messages[0].reasoning_details is text; a list of objects is wanted",
    ),
    (
        "chat",
        said({"type": "image_url", "image_url": {"url": 5}}),
        "messages[0].content[1].image_url.url is an integer; text is wanted",
    ),
    (
        "chat",
        said({"type": "file", "file": {"file_data": ["AA"]}}),
        "messages[0].content[1].file.file_data is a list; text is wanted",
    ),
    (
        "chat",
        said({"type": "text", "text": "b", "cache_control": "ephemeral"}),
        "messages[0].content[1].cache_control is text; an object is wanted",
    ),
    ("chat", said({"text": 5}), "messages[0].content[1].text is an integer; text is wanted"),
    ("chat", said({"type": ["text"], "text": "b"}), "messages[0].content[1].type is a list; text is wanted"),
    (
        "responses",
        items({"role": "user", "content": [{"type": "input_image", "image_url": {"url": "https://x"}}]}),
        "input[1].content[0].image_url is an object; text is wanted",
    ),
    (
        "responses",
        items({"type": "function_call_output", "call_id": 7, "output": "1"}),
        "input[1].call_id is an integer; text is wanted",
    ),
    (
        "responses",
        items({"type": "function_call_output", "call_id": "c", "output": [{"type": "input_file", "file_data": 5}]}),
        "input[1].output[0].file_data is an integer; text is wanted",
    ),
    (
        "responses",
        items({"type": "function_call", "call_id": "c", "name": "f", "arguments": [1]}),
        "input[1].arguments is a list; text or an object is wanted",
    ),
    ("responses", items({"type": 5, "role": "user", "content": "x"}), "input[1].type is an integer; text is wanted"),
    (
        "responses",
        items({"type": "reasoning", "id": "r", "summary": ["x"]}),
        "input[1].summary is a list; a list of objects is wanted",
    ),
    (
        "messages",
        said({"type": "tool_result", "tool_use_id": 7, "content": "x"}),
        "messages[0].content[1].tool_use_id is an integer; text is wanted",
    ),
    (
        "messages",
        said({"type": "tool_result", "tool_use_id": "t", "is_error": "false"}),
        "messages[0].content[1].is_error is text; a boolean is wanted",
    ),
    (
        "messages",
        said({"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image", "source": {"url": 5}}]}),
        "messages[0].content[1].content[0].source.url is an integer; text is wanted",
    ),
    (
        "messages",
        said({"type": "tool_use", "id": "t", "name": "f", "input": [1]}, role="assistant"),
        "messages[0].content[1].input is a list; text or an object is wanted",
    ),
]


@pytest.mark.parametrize(
    ("client_format", "more", "message"), WRONG, ids=[case[2].partition(" is ")[0] for case in WRONG]
)
def test_a_type_inside_a_turn_that_a_conversion_would_not_see_is_rejected(client_format, more, message):
    with pytest.raises(BadRequest) as caught:
        check_converted(client_format, CHAT | more)
    assert (caught.value.message, caught.value.param) == (message, message.partition(" is ")[0])


@pytest.mark.parametrize(
    ("client_format", "more"),
    [
        ("chat", said({"type": "image_url", "image_url": "https://x/y.png"}, {"type": "acme", "acme": 5}, "b")),
        ("chat", said({"type": "text", "text": "b", "cache_control": None}, name="", tool_call_id=None)),
        ("chat", said(tool_calls=[{"id": "c", "function": {"name": "f", "arguments": {"a": 1}}}], role="assistant")),
        ("responses", items("x", {"type": "function_call", "call_id": "c", "name": "f", "arguments": {"a": 1}})),
        ("responses", items({"type": "function_call_output", "call_id": "c", "output": 5})),
        ("responses", {"input": "Hi"}),
        ("messages", said({"type": "tool_use", "id": "t", "name": "f", "input": "{}"}, role="assistant")),
    ],
    ids=["parts", "nothing said", "arguments of chat", "arguments of responses", "an output", "a text", "an input"],
)
def test_what_a_conversion_reads_in_turns_passes(client_format, more):
    assert check_converted(client_format, CHAT | more) is None


@pytest.mark.parametrize(
    "body",
    [
        CHAT | {"reasoning": None, "thinking": {"type": "enabled"}, "user": 7, "tool_choice": "auto", "acme": 1},
        CHAT | {"reasoning": [], "thinking": "", "modalities": {}, "extra_body": []},
        CHAT | {"response_format": {"type": "json_schema", "json_schema": {"name": "", "strict": False}}},
        CHAT | {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{}]}}},
    ],
    ids=["settings", "empty values", "a schema", "allowed tools"],
)
def test_every_other_field_may_be_converted(body):
    assert check_converted("chat", body) is None


async def test_only_a_converted_request_must_have_the_published_types(tmp_path):
    """A provider of the client's own format may take other types, and says itself what it cannot read."""
    config = """
provider: {speaks}
speaks: {speaks}
url: app://acme/v1
models:
  {speaks}/one: {{price: {{prompt: "0", completion: "0", unit: 1, currency: USD}}}}
"""
    seen = []
    answer = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}'
    providers = {speaks: config.format(speaks=speaks) for speaks in ("chat", "messages")}
    async with inprocess(tmp_path, providers=providers, apps={"acme": replying(body=answer, seen=seen)}) as here:
        native, converted = [
            await here.post("/v1/chat/completions", CHAT | {"model": f"{speaks}/one", "reasoning": True})
            for speaks in providers
        ]
    assert (native.status_code, converted.status_code, len(seen)) == (200, 400, 1), (native.text, converted.text)
    assert converted.text == "reasoning is a boolean; an object is wanted"
