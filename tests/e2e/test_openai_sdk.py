"""The official openai client against a real gateway: the sandbox in-process and over HTTP."""

import openai
import pytest

MODELS = ["sandbox/echo", "remote/echo"]
HELLO = [{"role": "user", "content": "hello there"}]


@pytest.fixture(scope="module")
def client(running):
    return openai.OpenAI(base_url=running.url, api_key=running.key, max_retries=0)


def test_the_models_list_can_be_iterated(client):
    names = [model.id for model in client.models.list()]
    assert set(MODELS) <= set(names) and names == sorted(names)
    assert client.models.retrieve("sandbox/echo").id == "sandbox/echo"


@pytest.mark.parametrize("model", MODELS)
def test_a_chat_completion_is_created(client, model):
    answer = client.chat.completions.create(model=model, messages=HELLO)
    assert answer.choices[0].message.content == "You said: hello there"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0


@pytest.mark.parametrize("model", MODELS)
def test_a_stream_has_usage_on_its_last_chunk(client, model):
    chunks = list(client.chat.completions.create(model=model, messages=HELLO, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "You said: hello there"
    assert chunks[-1].choices[0].finish_reason == "stop" and chunks[-1].usage.total_tokens > 0
    assert all(chunk.usage is None for chunk in chunks[:-1])


@pytest.mark.parametrize("model", MODELS)
def test_the_stream_helper_builds_the_completion(client, model):
    with client.chat.completions.stream(model=model, messages=HELLO) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.content == "You said: hello there"
    assert final.usage.completion_tokens > 0


@pytest.mark.parametrize("model", MODELS)
def test_parallel_tool_calls_are_streamed_completely(client, model):
    tool = {
        "type": "function",
        "function": {"name": "look", "parameters": {"type": "object", "properties": {"place": {"type": "string"}}}},
    }
    with client.chat.completions.stream(
        model=model, tools=[tool], messages=[{"role": "user", "content": "[[tools=2]] go"}]
    ) as stream:
        final = stream.get_final_completion()
    calls = final.choices[0].message.tool_calls
    assert (
        len(calls) == 2 and {call.function.name for call in calls} == {"look"} and len({call.id for call in calls}) == 2
    )
    assert final.choices[0].finish_reason == "tool_calls"


async def test_the_async_client_creates_and_streams(running):
    async with openai.AsyncOpenAI(base_url=running.url, api_key=running.key) as client:
        whole = await client.chat.completions.create(model="echo", messages=HELLO)
        assert whole.choices[0].message.content == "You said: hello there"
        text = ""
        async for chunk in await client.chat.completions.create(model="echo", messages=HELLO, stream=True):
            text += chunk.choices[0].delta.content or ""
    assert text == "You said: hello there"


def test_raw_responses_have_our_headers(client):
    raw = client.chat.completions.with_raw_response.create(model="sandbox/echo", messages=HELLO)
    assert raw.headers["x-request-id"].startswith("req_") and raw.headers["request-id"] == raw.headers["x-request-id"]
    assert raw.headers["x-tollgate-provider"] == "sandbox" and raw.headers["x-tollgate-attempts"] == "1"
    assert float(raw.headers["x-tollgate-cost"]) > 0
    assert raw.parse()._request_id == raw.headers["x-request-id"]


@pytest.mark.parametrize(
    ("key", "message"),
    [("sk-tg-wrong", "Incorrect API key provided"), (None, "You didn't provide an API key")],
    ids=["a wrong key", "no key"],
)
def test_a_wrong_or_missing_key_is_an_authentication_error(running, key, message):
    client = openai.OpenAI(
        base_url=running.url, api_key=key or "x", max_retries=0, default_headers={} if key else {"Authorization": ""}
    )
    with pytest.raises(openai.AuthenticationError) as caught:
        client.chat.completions.create(model="sandbox/echo", messages=HELLO)
    assert message in caught.value.message
    assert "sk-tg-wrong" not in caught.value.message


def test_an_unknown_model_is_a_bad_request(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="nobody/nothing", messages=HELLO)
    assert caught.value.response.text == "model not found: nobody/nothing"


def test_an_upstream_failure_is_a_500_without_its_message(client):
    with pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(
            model="sandbox/echo", messages=[{"role": "user", "content": "[[error=500 message=secret_inside]]"}]
        )
    assert caught.value.status_code == 500 and "secret_inside" not in str(caught.value)


def test_a_stream_that_breaks_off_raises_in_the_client(client):
    with pytest.raises(openai.APIError):
        for _ in client.chat.completions.create(
            model="remote/echo", messages=[{"role": "user", "content": "[[cut=3]] a b c d e f"}], stream=True
        ):
            pass


def test_embeddings_are_floats_although_the_client_requests_base64(client):
    answer = client.embeddings.create(model="sandbox/embed", input=["a", "b"], dimensions=256)
    assert [len(item.embedding) for item in answer.data] == [256, 256]
    assert answer.usage.prompt_tokens > 0


def test_responses_are_created_and_streamed(client):
    whole = client.responses.create(model="sandbox/echo", input="hello there")
    assert whole.output_text == "You said: hello there" and whole.status == "completed"
    with client.responses.stream(model="sandbox/echo", input="hello there") as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == "You said: hello there"
