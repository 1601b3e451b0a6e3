"""`tollgate convert`: bodies and streams through the built-in mappings, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tollgate.cli import main

REQUEST = {"model": "m", "max_tokens": 9, "logit_bias": {"1": 2}, "messages": [{"role": "user", "content": "Hi"}]}
CHUNKS = [
    {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": {"content": "Hey"}, "finish_reason": None}],
    },
    {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
    },
]


def run(*arguments: str, body: object = REQUEST) -> Result:
    text = body if isinstance(body, str) else json.dumps(body)
    return CliRunner().invoke(main, ["convert", *arguments, "-"], input=text)


def test_a_request_is_converted_for_the_upstream() -> None:
    result = run("--from", "chat", "--to", "messages")
    assert result.exit_code == 0
    body = json.loads(result.stdout)
    assert body["max_tokens"] == 9 and body["messages"][0]["role"] == "user"
    assert "lost: logit_bias" in result.stderr


def test_json_contains_the_result_and_the_losses() -> None:
    output = json.loads(run("--from", "chat", "--to", "messages", "--json").stdout)
    assert output["lost"] == ["logit_bias"] and output["result"]["max_tokens"] == 9


def test_an_answer_is_converted_for_the_client() -> None:
    answer = {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "x",
        "content": [{"type": "text", "text": "Hey"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 2},
    }
    body = json.loads(run("--from", "messages", "--to", "chat", "--answer", body=answer).stdout)
    assert body["choices"][0]["message"]["content"] == "Hey" and body["choices"][0]["finish_reason"] == "stop"


def test_the_vectors_and_the_usage_of_an_embeddings_answer_are_shown(tmp_path: Path) -> None:
    answer = {"data": [{"embedding": [0.5, 1]}], "model": "m", "usage": {"total_tokens": 4}}
    result = run("--from", "voyage-embeddings", "--to", "embeddings", "--answer", body=answer)
    assert json.loads(result.stdout) == {"model": "m", "vectors": [[0.5, 1]], "usage": {"input": 4}}, result.stderr

    result = run("--from", "voyage-embeddings", "--to", "embeddings", "--answer", "--explain", body=answer)
    assert result.exit_code == 0 and "[0.5,1]" in result.stdout

    (tmp_path / "mappings").mkdir()
    (tmp_path / "mappings" / "bare.yaml").write_text(
        "mapping: bare\nhub: embeddings\nrequest: {from_hub: $.inputs}\nresponse: {to_hub: {vectors: $}}\n"
    )
    (tmp_path / "gateway.yaml").write_text("")
    result = run("--from", "bare", "--to", "embeddings", "--answer", "--config", str(tmp_path), body="[[0.5, 1]]")
    assert json.loads(result.stdout) == {"vectors": [[0.5, 1]]}, result.stderr


def test_an_error_is_converted_for_the_client() -> None:
    body = json.loads(run("--from", "chat", "--to", "messages", "--error", body={"error": {"message": "boom"}}).stdout)
    assert body["type"] == "error" and body["error"]["message"] == "boom"


FORMS = {
    "event stream": "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in CHUNKS) + "data: [DONE]\n\n",
    "json array": json.dumps(CHUNKS),
    "json lines": "\n".join(json.dumps(chunk) for chunk in CHUNKS),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_stream_is_written_as_an_event_stream(form: str) -> None:
    result = run("--from", "chat", "--to", "messages", "--stream", body=FORMS[form])
    assert result.exit_code == 0
    names = [line.removeprefix("event: ") for line in result.stdout.splitlines() if line.startswith("event: ")]
    assert names == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_explain_lists_the_steps_and_unread_fields() -> None:
    text = run("--from", "chat", "--to", "messages", "--explain").stdout
    assert "== chat request -> hub" in text and "never read by the mapping: logit_bias" in text
    explained = json.loads(run("--from", "chat", "--to", "messages", "--explain", "--json").stdout)
    assert explained["stages"][0]["steps"] and explained["result"]["max_tokens"] == 9


def test_a_rejected_request_is_reported_and_fails() -> None:
    result = run("--from", "chat", "--to", "messages", body={**REQUEST, "n": 2})
    assert result.exit_code == 1 and "n is greater than 1" in result.stderr


def test_strict_fails_on_a_loss() -> None:
    result = run("--from", "chat", "--to", "messages", "--strict")
    assert result.exit_code == 1 and "logit_bias" in result.stderr


def test_an_unknown_protocol_has_a_suggestion() -> None:
    result = run("--from", "chat", "--to", "mesages")
    assert result.exit_code == 2 and "did you mean `messages`?" in result.stderr


def test_a_file_is_one_kind_of_document() -> None:
    result = run("--from", "chat", "--to", "messages", "--answer", "--error")
    assert result.exit_code == 2 and "more than one of --answer, --stream and --error" in result.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("{", "-: found no JSON: "),
        ("[1]", "-: found JSON that is no object, wanted the body of a request"),
        ("", "-: found no JSON: "),
    ],
)
def test_an_invalid_body_is_reported_with_its_file(tmp_path: Path, given: str, message: str) -> None:
    result = run("--from", "chat", "--to", "messages", body=given)
    assert (result.exit_code, result.stderr.startswith(message)) == (1, True), result.stderr
    file = tmp_path / "body.json"
    file.write_text(given)
    result = CliRunner().invoke(main, ["convert", "--from", "chat", "--to", "messages", str(file)])
    assert (result.exit_code, result.stderr.startswith(f"{file}{message[1:]}")) == (1, True), result.stderr


@pytest.mark.parametrize("given", ["", "[]", "not a stream\n"], ids=["empty", "empty list", "text"])
def test_a_file_without_events_is_reported(given: str) -> None:
    result = run("--from", "chat", "--to", "messages", "--stream", body=given)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "-: found no events, wanted an event stream, a JSON array or JSON lines\n"


def test_requests_and_answers_may_be_lists(tmp_path: Path) -> None:
    (tmp_path / "mappings").mkdir()
    (tmp_path / "mappings" / "bare.yaml").write_text(
        "mapping: bare\nrequest:\n  from_hub: {$value: [{$each: $t in $.turns, say: '$t.parts[0].text'}]}\n"
        "response:\n  to_hub: {parts: [{kind: text, text: '$[0].say'}]}\n"
    )
    (tmp_path / "gateway.yaml").write_text("")
    request = '{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'
    result = run("--from", "chat", "--to", "bare", "--config", str(tmp_path), body=request)
    assert json.loads(result.stdout) == [{"say": "hi"}], result.stderr
    result = run("--from", "bare", "--to", "chat", "--answer", "--config", str(tmp_path), body='[{"say": "ho"}]')
    assert json.loads(result.stdout)["choices"][0]["message"]["content"] == "ho"


def test_an_unread_ability_is_reported() -> None:
    result = run("--from", "chat", "--to", "messages", "--can", "mid_sytem", "--can", "strict_tools")
    assert result.exit_code == 0
    assert (
        "--can mid_sytem: no mapping reads it (did you mean `mid_system`?)\n" in result.stderr
        and "strict_tools" not in result.stderr
    )


@pytest.fixture
def acme(tmp_path: Path) -> str:
    (tmp_path / "providers").mkdir()
    (tmp_path / "gateway.yaml").write_text("")
    (tmp_path / "providers" / "acme.yaml").write_text(
        "provider: acme\nspeaks: chat\nurl: https://acme.example/v1/chat/completions\n"
        "request: [{rename: {max_completion_tokens: max_tokens}}]\nmodels: {acme/one: {upstream: one-2026, aliases: "
        "[one]}}\n"
    )
    return str(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--model", "acme/one1"), 1, "no model acme/one1 (did you mean `acme/one`?)"),
        (("--model", "zzz"), 1, "no model zzz (tollgate models --routes lists them)"),
        (("--model", "one", "--provider", "bemo"), 1, "one is not served at bemo, but through chat at acme"),
        (("--model", "one", "--to", "messages"), 1, "one is not served through messages, but through chat at acme"),
        (
            ("--to", "chat", "--provider", "acme"),
            2,
            "--provider chooses between the routes of --model, which is not given",
        ),
    ],
)
def test_a_missing_route_is_reported(acme: str, arguments: tuple[str, ...], code: int, message: str) -> None:
    result = run("--from", "messages", *arguments, "--config", acme)
    assert (result.exit_code, message in result.stderr) == (code, True), result.stderr


@pytest.mark.parametrize("name", ["acme/one", "one"])
def test_a_route_applies_the_edits_of_its_provider(acme: str, name: str) -> None:
    given = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    result = run("--from", "messages", "--model", name, "--config", acme, body=given)
    body = json.loads(result.stdout)
    assert body["model"] == "one-2026" and body["max_tokens"] == 9 and "max_completion_tokens" not in body


TALK = """
mapping: talk
request: {from_hub: {session: new, heat: $.temperature, prompt: "{{ $.turns[*].parts[*].text | join }}"}}
response: {to_hub: {parts: [{kind: text, text: $.said}]}}
"""
TALKING = """
provider: acme
url: https://api.acme.example
query: {key: $secret.ACME_KEY}
vars: {key: $secret.ACME_KEY}
speaks:
  talk:
    path: /sessions
    request: [{set: {user: $vars.key}}]
    prepare: [{at: $.session, call: POST /sessions, body: {by: $vars.key}, value: $.id}]
    send:
      path: /{{ $.session }}/messages
      query: {heat: $.heat, live: $stream}
      headers: {x-key: "{{ $vars.key }}"}
      body: "{{ $ | without('session', 'heat') }}"
models: {acme/one: {price: {prompt: "0", completion: "0"}}}
"""


@pytest.fixture
def talking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A configuration whose endpoint sends more than a body; its secret is set."""
    for name, text in (("gateway.yaml", ""), ("mappings/talk.yaml", TALK), ("providers/acme.yaml", TALKING)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("ACME_KEY", "a-secret-value")
    return str(tmp_path)


def test_a_request_is_shown_as_it_is_sent_without_secrets(talking: str) -> None:
    given = {**REQUEST, "temperature": 0.5, "stream": True}
    arguments = ("--from", "chat", "--model", "acme/one", "--config", talking)
    call = "POST https://api.acme.example/sessions/new/messages?key=[secret]&heat=0.5&live=true"
    plain = run(*arguments, body=given)
    assert json.loads(plain.stdout) == {"prompt": "Hi", "user": "[secret]"}
    assert plain.stderr.splitlines()[:3] == [
        "before: POST https://api.acme.example/sessions",
        f"call: {call}",
        "header: x-key: [secret]",
    ]
    output = json.loads(run(*arguments, "--json", body=given).stdout)
    assert output["before"] == [{"call": "POST https://api.acme.example/sessions", "body": {"by": "[secret]"}}]
    assert (output["call"], output["headers"]) == (call, {"x-key": "[secret]"})
    assert f'"call: {call}"' in run(*arguments, "--explain", body=given).stdout


def test_a_model_of_a_provider_that_is_off_says_what_it_lacks(talking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACME_KEY")
    result = run("--from", "chat", "--model", "acme/one", "--config", talking)
    assert result.exit_code == 1
    assert "offered only by providers that are off: acme (secret ACME_KEY is not set)" in result.stderr


TEXTS = """
mapping: texts
request: {from_hub: {prompt: "{{ $.turns[*].parts[*].text | join }}"}}
response: {to_hub: {parts: [{kind: text, text: $.said}]}}
stream:
  to_hub:
    $match: $event
    output: [{delta: {kind: text, text: $}}]
    done: [{stop: {reason: end}}]
"""
ACME = """
provider: acme
url: https://api.acme.example
speaks: {texts: {path: /x, framing: sse-text}}
models: {acme/one: {price: {prompt: "0", completion: "0"}}}
"""


def test_event_names_and_plain_text_are_kept(tmp_path: Path) -> None:
    for name, text in (("gateway.yaml", ""), ("mappings/texts.yaml", TEXTS), ("providers/acme.yaml", ACME)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    stream = "event: output\ndata: 007\n\nevent: output\ndata: [1\n\nevent: done\ndata: {}\n\n"
    arguments = (
        "--from",
        "texts",
        "--to",
        "chat",
        "--stream",
        "--model",
        "acme/one",
        "--config",
        str(tmp_path / "gateway.yaml"),
    )
    output = run(*arguments, body=stream).stdout.replace(": ", ":")
    assert '"content":"007"' in output and '"content":"[1"' in output
    assert '{"$event":"output","data":"[1"}' in run(*arguments, "--explain", body=stream).stdout
    assert '"finish_reason":"stop"' in run(*arguments, body=stream.replace("data: {}\n", "")).stdout


@pytest.mark.parametrize("more", [(), ("--explain",)], ids=["plain", "explained"])
@pytest.mark.parametrize("stream", [False, True], ids=["answer", "stream"])
def test_the_marks_of_a_model_s_provider_are_applied(acme: str, stream: bool, more: tuple[str, ...]) -> None:
    file = (
        Path(acme) / "providers" / "acme.yaml" if Path(acme).is_dir() else Path(acme).parent / "providers" / "acme.yaml"
    )
    file.write_text(file.read_text() + "in_text: [{from: <think>, to: </think>, kind: reasoning}]\n")
    choice = {"index": 0, "finish_reason": "stop"}
    answer = {"id": "c1", "choices": [{**choice, "message": {"role": "assistant", "content": "<think>hm</think>Hi"}}]}
    events = [{"id": "c1", "choices": [{**choice, "delta": {"content": "<think>hm</think>Hi"}}]}]
    arguments = ("--from", "chat", "--to", "messages", "--model", "one", "--config", acme, *more)
    result = run(*arguments, "--stream" if stream else "--answer", body=json.dumps(events if stream else answer))
    assert result.exit_code == 0, result.stderr
    assert "thinking" in result.stdout and "<think>" not in result.stdout.rpartition("result")[2].rpartition("==")[2]
