"""The official anthropic client against a real gateway."""

import anthropic
import pytest

HELLO = [{"role": "user", "content": "hello there"}]


@pytest.fixture(scope="module", params=["/v1", ""], ids=["base with /v1", "base without"])
def client(running, request):
    return anthropic.Anthropic(base_url=running.base + request.param, api_key=running.key, max_retries=0)


def test_a_message_is_created(client):
    answer = client.messages.create(model="sandbox/echo", max_tokens=100, messages=HELLO)
    assert answer.content[0].text == "You said: hello there" and answer.stop_reason == "end_turn"
    assert answer.usage.input_tokens > 0 and answer.usage.output_tokens > 0


def test_the_stream_helper_builds_the_message(client):
    with client.messages.stream(model="sandbox/echo", max_tokens=100, messages=HELLO) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == "You said: hello there" == final.content[0].text and final.usage.output_tokens > 0


def test_an_unknown_model_is_a_not_found_error(client):
    with pytest.raises(anthropic.NotFoundError) as caught:
        client.messages.create(model="nobody/nothing", max_tokens=10, messages=HELLO)
    assert caught.value.body["error"] == {"type": "not_found_error", "message": "model: nobody/nothing"}
    assert caught.value.request_id.startswith("req_")


def test_a_wrong_key_is_an_authentication_error(running):
    client = anthropic.Anthropic(base_url=running.base, api_key="sk-tg-nope", max_retries=0)
    with pytest.raises(anthropic.AuthenticationError) as caught:
        client.messages.create(model="sandbox/echo", max_tokens=10, messages=HELLO)
    assert caught.value.body["error"] == {"type": "authentication_error", "message": "invalid x-api-key"}


def test_an_overloaded_provider_is_a_529(client):
    with pytest.raises(anthropic.APIStatusError) as caught:
        client.messages.create(
            model="sandbox/echo", max_tokens=10, messages=[{"role": "user", "content": "[[error=529]] x"}]
        )
    assert (caught.value.status_code, caught.value.body["error"]["type"]) == (529, "overloaded_error")


def test_tokens_are_counted(client):
    assert client.messages.count_tokens(model="sandbox/echo", messages=HELLO).input_tokens > 0


def test_batches_are_a_not_found_error_of_the_api(client):
    with pytest.raises(anthropic.NotFoundError) as caught:
        client.messages.batches.list()
    assert caught.value.body["error"] == {
        "type": "not_found_error",
        "message": "no such endpoint: GET /v1/messages/batches",
    }
    assert caught.value.body["request_id"] == caught.value.request_id


def test_the_tool_runner_continues_without_server_side_state(client):
    """From 2.12 on, it lets the server keep the conversation; if that is rejected, it sends everything itself."""

    @anthropic.beta_tool
    def look(place: str) -> str:
        """Look at a place."""
        return f"saw {place}"

    runner = client.beta.messages.tool_runner(
        model="sandbox/echo", max_tokens=100, tools=[look], messages=[{"role": "user", "content": "[[tool]] here"}]
    )
    assert [turn.content[0].type for turn in runner] == ["tool_use", "text"]
