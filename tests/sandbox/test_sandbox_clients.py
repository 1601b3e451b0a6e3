"""The official client libraries against the sandbox over HTTP."""

from __future__ import annotations

import json

import anthropic
import openai
import pytest

HELLO = [{"role": "user", "content": "hi"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "get",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture
def client(sandbox_url):
    with openai.OpenAI(base_url=f"{sandbox_url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
def anthropic_client(sandbox_url):
    with anthropic.Anthropic(base_url=sandbox_url, api_key="none", max_retries=0) as made:
        yield made


def test_chat_completions_are_created_and_streamed(client):
    assert client.chat.completions.create(model="echo", messages=HELLO).choices[0].message.content == "You said: hi"
    chunks = list(
        client.chat.completions.create(
            model="echo", messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
    )
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "You said: hi"
    assert chunks[-1].usage.total_tokens == 9


def test_a_raw_chat_response_has_a_request_id(client):
    raw = client.chat.completions.with_raw_response.create(model="echo", messages=HELLO)
    assert raw.headers["x-request-id"].startswith("req_")


def test_the_chat_stream_helper_accumulates_parallel_calls(client):
    messages = [{"role": "user", "content": "x [[tools=2]] [[preface]]"}]
    with client.chat.completions.stream(model="echo", messages=messages, tools=[TOOL]) as stream:
        for _ in stream:
            pass
        done = stream.get_final_completion()
    assert [c.function.arguments for c in done.choices[0].message.tool_calls] == ['{"city":"x"}'] * 2


def test_the_chat_parse_helper_gets_valid_json(client):
    from pydantic import BaseModel

    class Person(BaseModel):
        name: str
        age: int

    done = client.chat.completions.parse(
        model="echo", messages=[{"role": "user", "content": "Ada"}], response_format=Person
    )
    assert done.choices[0].message.parsed == Person(name="Ada", age=1)


async def test_the_async_chat_client_streams_reasoning(sandbox_url):
    async with openai.AsyncOpenAI(base_url=f"{sandbox_url}/v1", api_key="none") as client:
        stream = await client.chat.completions.create(model="reasoner", messages=HELLO, stream=True)
        chunks = [c async for c in stream]
    assert any(getattr(c.choices[0].delta, "reasoning", None) for c in chunks)


def test_responses_are_created_and_streamed(client):
    assert client.responses.create(model="echo", input="hi").output_text == "You said: hi"
    with client.responses.stream(model="reasoner", input="hi", reasoning={"summary": "auto"}) as stream:
        kinds = [event.type for event in stream]
        done = stream.get_final_response()
    assert (done.output_text, kinds[0], kinds[-1]) == ("You said: hi", "response.created", "response.completed")


def test_a_responses_tool_loop_runs_over_a_stored_conversation(client):
    tool = {"type": "function", **{k: v for k, v in TOOL["function"].items()}}
    first = client.responses.create(model="echo", input="x [[tool]]", tools=[tool])
    output = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": "sunny"}
    second = client.responses.create(model="echo", input=[output], previous_response_id=first.id, tools=[tool])
    assert second.output_text == "The tool said: sunny"


def test_embeddings_are_equal_through_base64(client):
    found = client.embeddings.create(model="embed", input=["a", "b"], dimensions=256)
    plain = client.embeddings.create(model="embed", input=["a", "b"], dimensions=256, encoding_format="float")
    assert [d.embedding for d in found.data] == [d.embedding for d in plain.data]


def test_models_are_listed(client):
    assert [m.id for m in client.models.list()][:2] == ["draw", "echo"]


ERRORS = {
    400: openai.BadRequestError,
    401: openai.AuthenticationError,
    403: openai.PermissionDeniedError,
    404: openai.NotFoundError,
    429: openai.RateLimitError,
    500: openai.InternalServerError,
    503: openai.InternalServerError,
}


@pytest.mark.parametrize("status", ERRORS)
def test_errors_are_raised_as_their_class(client, status):
    with pytest.raises(ERRORS[status]) as caught:
        client.chat.completions.create(
            model="echo", messages=[{"role": "user", "content": f"[[error={status} code=why]]"}]
        )
    assert caught.value.code == "why"


def test_a_stream_error_is_raised(client):
    with pytest.raises(openai.APIError, match="server had an error"):
        list(
            client.chat.completions.create(
                model="echo", messages=[{"role": "user", "content": "[[stream-error=2]]"}], stream=True
            )
        )


def test_messages_are_created_and_streamed(anthropic_client):
    assert (
        anthropic_client.messages.create(model="echo", max_tokens=100, messages=HELLO).content[0].text == "You said: hi"
    )
    with anthropic_client.messages.stream(
        model="echo", max_tokens=3000, messages=HELLO, thinking={"type": "enabled", "budget_tokens": 1024}
    ) as stream:
        assert "".join(stream.text_stream) == "You said: hi"
        done = stream.get_final_message()
    assert [b.type for b in done.content] == ["thinking", "text"]
    assert done.content[0].signature
    assert done.usage.input_tokens == 5


def test_a_messages_tool_loop(anthropic_client):
    tool = {"name": "get", "input_schema": TOOL["function"]["parameters"]}
    turns = [{"role": "user", "content": "Rome [[tools=2]] [[think]]"}]
    first = anthropic_client.messages.create(model="echo", max_tokens=500, messages=turns, tools=[tool])
    turns += [
        {"role": "assistant", "content": first.content},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": b.id, "content": json.dumps(b.input)}
                for b in first.content
                if b.type == "tool_use"
            ],
        },
    ]
    second = anthropic_client.messages.create(model="echo", max_tokens=500, messages=turns, tools=[tool])
    assert second.content[-1].text == 'The tool said: {"city":"Rome"}; {"city":"Rome"}'.replace('":"', '": "')


@pytest.mark.parametrize("stream", [False, True])
def test_the_messages_tool_runner_continues_without_a_stored_thread(anthropic_client, stream):
    """It begins with a `thread` and sends only what is new, unless the service says that it stores none."""

    @anthropic.beta_tool
    def get(city: str) -> str:
        """Look a city up.

        Args:
            city: Which one.
        """
        return f"{city} is sunny"

    done = anthropic_client.beta.messages.tool_runner(
        model="echo",
        max_tokens=500,
        messages=[{"role": "user", "content": "Rome [[tools=2]] [[think]]"}],
        tools=[get],
        stream=stream,
    ).until_done()
    assert done.content[-1].text == "The tool said: Rome is sunny; Rome is sunny"


async def test_the_async_messages_client_streams_a_tool_call(sandbox_url):
    async with (
        anthropic.AsyncAnthropic(base_url=sandbox_url, api_key="none") as anthropic_client,
        anthropic_client.messages.stream(
            model="echo", max_tokens=100, messages=[{"role": "user", "content": '[[tool=get {"a": 1}]]'}]
        ) as stream,
    ):
        done = await stream.get_final_message()
    assert (done.stop_reason, done.content[0].input) == ("tool_use", {"a": 1})


def test_message_tokens_are_counted(anthropic_client):
    assert anthropic_client.messages.count_tokens(model="echo", messages=HELLO).input_tokens == 5


def test_messages_errors_are_raised_as_their_class(anthropic_client):
    with pytest.raises(anthropic.APIStatusError) as caught:
        anthropic_client.messages.create(
            model="echo", max_tokens=9, messages=[{"role": "user", "content": "[[error=529]]"}]
        )
    assert (caught.value.status_code, caught.value.type) == (529, "overloaded_error")
    with (
        pytest.raises(anthropic.APIStatusError, match="Overloaded"),
        anthropic_client.messages.stream(
            model="echo", max_tokens=9, messages=[{"role": "user", "content": "[[stream-error=3]]"}]
        ) as stream,
    ):
        stream.get_final_message()
