"""Ids of provider-side state: which ones a request refers to, which ones an answer creates, and which account owns
them."""

import json

import pytest

from conformance.upstreams import events, provider, whole
from support.inprocess import inprocess, replying
from tollgate.completions.state_ids import minted_ids, referenced_ids
from tollgate.sandbox import app as sandbox


@pytest.mark.parametrize(
    ("dialect", "body", "found"),
    [
        ("responses", {"previous_response_id": "resp_1"}, [("previous_response_id", "resp_1")]),
        ("responses", {"conversation": {"id": "conv_1"}}, [("conversation", "conv_1")]),
        ("responses", {"prompt": {"id": "pmpt_1"}}, [("prompt.id", "pmpt_1")]),
        ("responses", {"input": [{"type": "item_reference", "id": "msg_1"}]}, [("input.item_reference", "msg_1")]),
        ("responses", {"input": [{"id": "msg_1"}]}, [("input.item_reference", "msg_1")]),
        ("responses", {"input": [{"type": None, "id": "msg_1"}]}, [("input.item_reference", "msg_1")]),
        ("responses", {"input": [{"id": "msg_1", "role": "assistant", "content": "hi"}]}, []),
        (
            "responses",
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file_1"}]}]},
            [("input.file_id", "file_1")],
        ),
        (
            "responses",
            {"tools": [{"type": "file_search", "vector_store_ids": ["vs_1", "vs_2"]}]},
            [("tools.vector_store_id", "vs_1"), ("tools.vector_store_id", "vs_2")],
        ),
        ("messages", {"container": "cont_1", "messages": []}, [("container", "cont_1")]),
        (
            "messages",
            {"thread": {"type": "continue", "previous_message_id": "msg_1"}, "messages": []},
            [("thread.previous_message_id", "msg_1")],
        ),
        (
            "messages",
            {"thread": {"type": "create"}, "diagnostics": {"previous_message_id": "msg_1"}, "messages": []},
            [],
        ),
        (
            "messages",
            {
                "messages": [
                    {"role": "user", "content": [{"type": "document", "source": {"type": "file", "file_id": "file_1"}}]}
                ]
            },
            [("messages.file_id", "file_1")],
        ),
        (
            "chat",
            {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "file_1"}}]}]},
            [("messages.file_id", "file_1")],
        ),
        (
            "chat",
            {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "https://x/a.pdf"}}]}]},
            [],
        ),
        ("chat", {"messages": [{"role": "user", "content": "what is a file_id?"}]}, []),
        ("responses", {"previous_response_id": None, "input": "x"}, []),
        (
            "responses",
            {
                "input": [
                    {"type": "image_generation_call", "id": "ig_1"},
                    {"type": "image_generation_call", "id": "ig_2", "result": "aGk="},
                ]
            },
            [("input.image_generation_call", "ig_1")],
        ),
        (
            "responses",
            {"input": [{"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}]},
            [("input.approval_request_id", "mcpr_1")],
        ),
        (
            "responses",
            {
                "input": [
                    {"type": "mcp_approval_request", "id": "mcpr_1"},
                    {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
                    {"type": "mcp_approval_response", "approval_request_id": "mcpr_2", "approve": True},
                ]
            },
            [("input.approval_request_id", "mcpr_2")],
        ),
        (
            "responses",
            {"tools": [{"type": "image_generation", "input_image_mask": {"file_id": "file_1"}}]},
            [("tools.input_image_mask.file_id", "file_1")],
        ),
        (
            "responses",
            {"prompt": {"id": "pmpt_1", "variables": {"a": {"type": "input_file", "file_id": "file_1"}, "b": "text"}}},
            [("prompt.id", "pmpt_1"), ("prompt.variables.file_id", "file_1")],
        ),
        (
            "responses",
            {
                "input": [
                    {
                        "type": "computer_call_output",
                        "call_id": "c",
                        "output": {"type": "computer_screenshot", "file_id": "file_1"},
                    }
                ]
            },
            [("input.file_id", "file_1")],
        ),
        (
            "responses",
            {
                "tools": [{"type": "code_interpreter", "container": {"type": "auto"}}],
                "input": [{"type": "code_interpreter_call", "container_id": "cntr_1"}],
            },
            [("input.container_id", "cntr_1")],
        ),
        ("responses", {"input": [{"type": "code_interpreter_call", "container_id": "cntr_1"}]}, []),
        (
            "responses",
            {"tools": [{"type": "shell", "environment": {"type": "container_reference", "container_id": "cntr_1"}}]},
            [("tools.environment.container_id", "cntr_1")],
        ),
        (
            "responses",
            {
                "tools": [{"type": "shell", "environment": {"type": "container_auto", "file_ids": ["file_1"]}}],
                "input": [
                    {"type": "shell_call", "environment": {"type": "container_reference", "container_id": "cntr_1"}}
                ],
            },
            [("tools.environment.file_id", "file_1"), ("input.container_id", "cntr_1")],
        ),
        ("responses", {"input": [{"id": "msg_1", "content": None}]}, [("input.item_reference", "msg_1")]),
        ("responses", {"input": [{"type": "item_reference", "id": "msg_1"}] * 2}, [("input.item_reference", "msg_1")]),
        (
            "messages",
            {
                "messages": [
                    {
                        "content": [
                            {
                                "type": "tool_result",
                                "content": [
                                    {
                                        "type": "document",
                                        "source": {
                                            "type": "content",
                                            "content": [
                                                {"type": "image", "source": {"type": "file", "file_id": "f_1"}}
                                            ],
                                        },
                                    }
                                ],
                            }
                        ]
                    }
                ]
            },
            [("messages.file_id", "f_1")],
        ),
        *(
            (
                "responses",
                {
                    "tools": [
                        {
                            "type": "file_search",
                            "environment": wrong,
                            "vector_store_ids": wrong,
                            "container": {"file_ids": wrong},
                        }
                    ],
                    "prompt": {"variables": wrong},
                },
                [],
            )
            for wrong in (5, 0.5, True, "vs_1", {"vs_1": 1}, None)
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_ids_of_provider_state_are_found_in_a_request(dialect, body, found):
    assert referenced_ids(dialect, body, json.dumps(body)) == found


def test_a_field_name_with_escapes_is_found_too():
    raw = rb'{"previous\u005fresponse_id": "resp_1"}'
    assert referenced_ids("responses", json.loads(raw), raw.decode()) == [("previous_response_id", "resp_1")]


@pytest.mark.parametrize("output", [5, "x", None, {"id": "a"}, [5, None]])
def test_an_answer_of_another_shape_creates_only_its_own_id(output):
    assert minted_ids({"object": "response", "id": "resp_1", "output": output}) == ["resp_1"]


def test_the_ids_an_answer_creates_are_found():
    answer = {
        "object": "response",
        "id": "resp_1",
        "store": True,
        "output": [{"id": "msg_1"}, {"id": "ci_1", "container_id": "cntr_1"}],
    }
    assert minted_ids(answer) == ["resp_1", "msg_1", "ci_1", "cntr_1"]
    assert minted_ids({**answer, "store": False}) == ["cntr_1"], "a container persists, and its account may refer to it"
    shell = {
        "type": "shell_call",
        "id": "sh_1",
        "environment": {"type": "container_reference", "container_id": "cntr_2"},
    }
    assert minted_ids({**answer, "output": [shell]}) == ["resp_1", "sh_1", "cntr_2"]
    assert minted_ids({"type": "message", "id": "msg_1", "container": {"id": "cont_1"}}) == ["cont_1"]
    assert minted_ids({"type": "message", "id": "msg_1"}, thread=True) == ["msg_1"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_conversation_can_be_continued_by_its_account_only(tmp_path, stream):
    async with inprocess(tmp_path) as here:
        first = await here.post(
            "/v1/responses", {"model": "sandbox/echo", "input": "remember me", "store": True, "stream": stream}
        )
        body = (
            first.json()
            if not stream
            else next(
                event["response"]
                for event in map(
                    json.loads, (line[6:] for line in first.text.splitlines() if line.startswith("data: "))
                )
                if event["type"] == "response.completed"
            )
        )
        ask = {"model": "sandbox/echo", "input": "go on", "previous_response_id": body["id"]}
        assert (await here.post("/v1/responses", ask)).status_code == 200
        key = await here.key_of_another_account()
        refused = await here.post("/v1/responses", ask, key=key)
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "previous_response_not_found")
        unknown = await here.post("/v1/responses", {**ask, "previous_response_id": "resp_nobody"})
        assert unknown.status_code == 404


async def test_a_rejected_item_reference_says_to_send_the_item_itself(tmp_path):
    """Clients that store by default refer to every item of an earlier answer; the error must say how to avoid it."""
    async with inprocess(tmp_path) as here:
        refused = await here.post(
            "/v1/responses", {"model": "sandbox/echo", "input": [{"type": "item_reference", "id": "rs_1"}]}
        )
        assert refused.status_code == 404
        assert refused.json()["error"]["message"] == (
            "Item reference with id 'rs_1' not found. Converted answers are only remembered for a while: "
            "set `store` to false and send the item itself."
        )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"input": "x", "tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}]},
            "Vector store with id 'vs_1' not found.",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file_1"}]}]},
            "File with id 'file_1' not found.",
        ),
    ],
    ids=["vector store", "file"],
)
async def test_a_reference_to_what_cannot_be_created_here_says_to_send_the_content(tmp_path, fields, message):
    async with inprocess(tmp_path) as here:
        refused = await here.post("/v1/responses", {"model": "sandbox/echo", **fields})
        assert refused.status_code == 404
        assert refused.json()["error"]["message"] == (
            f"{message} Files and vector stores cannot be created here: send their content in the request itself."
        )


async def test_a_prompt_of_another_account_is_not_found(tmp_path):
    async with inprocess(tmp_path) as here:
        refused = await here.post("/v1/responses", {"model": "sandbox/echo", "prompt": {"id": "pmpt_1"}})
        assert refused.status_code == 404
        assert refused.json()["error"]["message"] == "Prompt with id 'pmpt_1' not found."


ASK = {"max_tokens": 50, "messages": [{"role": "user", "content": "remember me"}]}
THREADED = """
provider: keeps
speaks: {messages: /messages}
url: app://keeps/v1
can: {threads: true}
models:
  keeps/echo: {upstream: echo, context: 4096, max_output: 512, price: {prompt: "0.1", completion: "0.4", unit: 1000000, currency: USD}}
"""  # noqa: E501


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_thread_can_be_continued_by_its_account_only(tmp_path, stream):
    seen = []

    async def keeps(method, path, headers, body):
        seen.append(json.loads(body))
        unthreaded = {name: value for name, value in seen[-1].items() if name != "thread"}  # The sandbox stores none.
        return await sandbox(method, path, headers, json.dumps(unthreaded).encode())

    async with inprocess(tmp_path, providers={"keeps": THREADED}, apps={"keeps": keeps}) as here:
        made = {**ASK, "model": "keeps/echo", "thread": {"type": "create"}, "stream": stream}
        first = await here.post("/v1/messages", made)
        message = (
            first.json() if not stream else json.loads(first.text.split("data: ", 1)[1].split("\n", 1)[0])["message"]
        )
        next_request = {**made, "thread": {"type": "continue", "previous_message_id": message["id"]}}
        assert (await here.post("/v1/messages", next_request)).status_code == 200
        assert [body["thread"]["type"] for body in seen] == ["create", "continue"]
        key = await here.key_of_another_account()
        refused = await here.post("/v1/messages", next_request, key=key)
        assert (refused.status_code, refused.json()["error"]["details"]) == (404, {"error_code": "thread_not_found"})
        assert len(seen) == 2


@pytest.mark.parametrize("sent_in", ["message_start", "message_delta", None], ids=["first", "last", "whole"])
async def test_a_container_belongs_to_the_account_whose_answer_named_it(tmp_path, sent_in):
    """Anthropic sends it in the first event or, if it was created later, beside the stop reason."""
    if sent_in is None:
        upstream = replying(body=json.dumps({**whole("messages"), "container": {"id": "cont_1"}}).encode())
    else:
        blocks = [json.loads(block.split(b"data: ", 1)[1]) for block in events("messages")]
        [naming] = [block for block in blocks if block["type"] == sent_in]
        naming["message" if sent_in == "message_start" else "delta"]["container"] = {"id": "cont_1"}
        written = [f"event: {block['type']}\ndata: {json.dumps(block)}\n\n".encode() for block in blocks]
        upstream = replying(headers={"content-type": "text/event-stream"}, blocks=written)
    async with inprocess(
        tmp_path, providers={"acme": provider("app://acme/v1", "messages")}, apps={"acme": upstream}
    ) as here:
        request = {**ASK, "model": "acme/one", "stream": sent_in is not None}
        next_request = {**request, "container": "cont_1"}
        assert (await here.post("/v1/messages", next_request)).status_code == 404
        assert (await here.post("/v1/messages", request)).status_code == 200
        assert (await here.post("/v1/messages", next_request)).status_code == 200
        key = await here.key_of_another_account()
        assert (await here.post("/v1/messages", next_request, key=key)).status_code == 404


async def test_a_thread_that_no_provider_stores_is_rejected_with_the_code_that_clients_fall_back_on(tmp_path):
    """The tool runner of the official client starts with a thread; given this code it continues without one."""
    async with inprocess(tmp_path) as here:
        refused = await here.post("/v1/messages", {**ASK, "model": "sandbox/echo", "thread": {"type": "create"}})
        assert refused.status_code == 400 and refused.json()["error"]["details"] == {
            "error_code": "thread_unsupported_request"
        }
        assert (await here.post("/v1/messages", {**ASK, "model": "sandbox/echo", "thread": None})).status_code == 200


async def test_a_messages_client_receives_the_providers_error_code_and_what_it_is_about(tmp_path):
    """The official client 2.14 raises a class for such a code, with the rest as its attributes."""
    details = {"error_code": "image_dimensions_too_large", "max_side_length_pixels": 8000, "paths": ["messages.0"]}
    error = {"type": "not_found_error", "message": "lost", "details": details}

    async def lost(method, path, headers, body):
        async def content():
            yield json.dumps({"type": "error", "error": error}).encode()

        return 404, {"content-type": "application/json"}, content()

    async with inprocess(tmp_path, providers={"keeps": THREADED}, apps={"keeps": lost}) as here:
        refused = await here.post("/v1/messages", {**ASK, "model": "keeps/echo"})
        assert (refused.status_code, refused.json()["error"]) == (404, error)


SPEAKER = """
provider: speaker
speaks: {chat: /chat/completions, responses: /responses}
url: app://speaker/v1
models:
  speaker/one: {upstream: one, context: 4096, max_output: 512, price: {prompt: "0.1", completion: "0.4", unit: 1000000, currency: USD}}
"""  # noqa: E501
APPROVAL = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "wiki", "name": "read", "arguments": "{}"}
AUDIO = {"id": "audio_1", "data": "aGk=", "transcript": "hi", "expires_at": 1}


async def speaker(method, path, headers, body):
    """Answers with audio if it is requested, and with one reasoning item."""
    request = json.loads(body)
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    about = {"id": "c", "created": 1, "model": "one"}

    async def content():
        if path.endswith("/responses"):
            yield json.dumps(
                {
                    "id": "resp_1",
                    "object": "response",
                    "status": "completed",
                    "store": request.get("store", True),
                    "output": {"hi": [{"type": "reasoning", "id": "rs_1", "summary": []}], "look": [APPROVAL]}.get(
                        str(request["input"]), []
                    ),
                    "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
                }
            ).encode()
        elif request.get("stream"):
            for delta, finish in (({"role": "assistant", "audio": AUDIO}, None), ({}, "stop")):
                chunk = {
                    **about,
                    "object": "chat.completion.chunk",
                    "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
                    "usage": usage if finish else None,
                }
                yield b"data: " + json.dumps(chunk).encode() + b"\n\n"
            yield b"data: [DONE]\n\n"
        else:
            message = {"role": "assistant", "content": "hi", **({"audio": AUDIO} if "audio" in request else {})}
            yield json.dumps(
                {
                    **about,
                    "object": "chat.completion",
                    "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                    "usage": usage,
                }
            ).encode()

    return 200, {"content-type": "text/event-stream" if request.get("stream") else "application/json"}, content()


@pytest.mark.parametrize(
    ("path", "first", "next_request", "message"),
    [
        (
            "/v1/chat/completions",
            {
                "messages": [{"role": "user", "content": "hi"}],
                "modalities": ["text", "audio"],
                "audio": {"voice": "alloy", "format": "wav"},
                "stream": stream,
            },
            {"messages": [{"role": "assistant", "audio": {"id": "audio_1"}}, {"role": "user", "content": "again"}]},
            "Audio with id 'audio_1' not found",
        )
        for stream in (False, True)
    ]
    + [
        (
            "/v1/responses",
            {"input": "hi"},
            {"input": [{"type": "reasoning", "id": "rs_1", "summary": []}, {"role": "user", "content": "again"}]},
            "Reasoning with id 'rs_1' not found",
        ),
        (
            "/v1/responses",
            {"input": "look"},
            {
                "input": [
                    APPROVAL,
                    {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
                ],
                "store": False,
            },
            "Approval request with id 'mcpr_1' not found",
        ),
        (
            "/v1/responses",
            {"input": "hi"},
            {"input": "again", "prompt_cache_options": {"comparison_response_id": "resp_1"}, "store": False},
            "Comparison response with id 'resp_1' not found",
        ),
    ],
    ids=["audio", "streamed audio", "reasoning", "approval", "cache comparison"],
)
async def test_state_looked_up_by_id_belongs_to_the_account_that_received_it(
    tmp_path, path, first, next_request, message
):
    async with inprocess(tmp_path, providers={"speaker": SPEAKER}, apps={"speaker": speaker}) as here:
        key = await here.key_of_another_account()
        next_request = {**next_request, "model": "speaker/one"}
        assert (await here.post(path, next_request, key=key)).status_code == 200, (
            "unknown here: a conversation from elsewhere"
        )
        assert (await here.post(path, {**first, "model": "speaker/one"})).status_code == 200
        assert (await here.post(path, next_request)).status_code == 200
        refused = await here.post(path, next_request, key=key)
        assert refused.status_code == 404 and message in refused.text
