"""PITFALLS 25: no secret leaks. Canaries are planted where secrets are, and searched for in everything the gateway
outputs."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.upstreams import ASKS, PATHS, provider
from support.inprocess import inprocess
from support.running import environment
from support.usage_files import rows_by_id

HEADER, QUERY, VARIABLE, FILE = "canary-header-81f1", "canary-query-6c22", "canary-variable-9d33", "canary-file-4e44"
CANARIES = (HEADER, QUERY, VARIABLE, FILE)
ENVIRON = {"CANARY_HEADER": HEADER, "CANARY_QUERY": QUERY, "CANARY_VARIABLE": VARIABLE}
PLANTED = """
vars: {project: $secret.CANARY_VARIABLE}
headers: {authorization: "Bearer {{ $secret.CANARY_HEADER }}", x-project: $vars.project, x-file: $secret.CANARY_FILE}
query: {key: $secret.CANARY_QUERY}
"""


def leaky(protocol: str) -> str:
    return provider(f"app://{protocol}/v1/talk", protocol, name=protocol, more=PLANTED, model=f"leaky/{protocol}")


async def echo_everything(method, path, headers, body):
    """An upstream that repeats everything it receives, in whatever way it is requested to fail."""
    everything = f"{path} {json.dumps(dict(headers))}"
    assert HEADER in everything and QUERY in everything and VARIABLE in everything and FILE in everything
    request = json.loads(body)
    text = json.dumps(request.get("messages") or request.get("input"))
    status = next(
        (
            int(word)
            for word in ("400", "401", "402", "403", "404", "422", "429", "500", "503", "529")
            if f"fail {word}" in text
        ),
        200,
    )
    error = {
        "type": "error",
        "error": {"message": everything, "type": f"{HEADER}_error", "code": QUERY, "param": VARIABLE},
    }

    failed = {
        "id": "r",
        "object": "response",
        "created_at": 1,
        "status": "failed",
        "model": "m",
        "output": [],
        "error": {"code": "server_error", "message": everything},
    }
    fails = "failed response" in text and "input" in request

    async def blocks():
        if fails and request.get("stream"):
            for type, response in (
                ("response.created", {**failed, "status": "in_progress", "error": None}),
                ("response.failed", failed),
            ):
                event = {"type": type, "sequence_number": int(response is failed), "response": response}
                yield f"event: {type}\ndata: {json.dumps(event)}\n\n".encode()
        elif fails:
            yield json.dumps(failed).encode()
        elif "mid-stream" in text:
            if request["model"] and "messages" in request and "max_tokens" not in request:
                yield (
                    b'data: {"id": "1", "choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": '
                    b"null}]}\n\n"
                )
            else:
                yield b'event: ping\ndata: {"type": "ping"}\n\n'
            yield b"event: error\ndata: " + json.dumps(error).encode() + b"\n\n"
        elif "html" in text:
            yield f"<html>{everything}</html>".encode()
        else:
            yield json.dumps(error).encode()

    streams = "mid-stream" in text or fails and request.get("stream")
    kind = "text/event-stream" if streams else "text/html" if "html" in text else "application/json"
    return status, {"content-type": kind, "x-request-id": HEADER, "set-cookie": QUERY}, blocks()


FAILURES = [
    *(f"fail {status}" for status in (400, 401, 402, 403, 404, 422, 429, 500, 503, 529)),
    "an error in a 200",
    "html",
    "mid-stream",
    "failed response",
]


def stored_text(folder: Path) -> str:
    """Every byte the gateway stores on disk, except the folder of secrets."""
    return "".join(
        file.read_bytes().decode("latin-1")
        for part in ("var", "usage")
        for file in (folder / part).rglob("*")
        if file.is_file()
    )


async def test_25_no_secret_in_answers_headers_logs_rows_files_metrics_or_catalog(tmp_path, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "CANARY_FILE").write_text(FILE + "\n")
    protocols = ("chat", "responses", "messages")
    outputs = []
    async with inprocess(
        tmp_path,
        providers={name: leaky(name) for name in protocols},
        apps=dict.fromkeys(protocols, echo_everything),
        environ=ENVIRON,
        settings="secrets_dir: secrets\n",
    ) as here:
        for client in protocols:
            for upstream in protocols:
                for failure in FAILURES:
                    for stream in (False, True):
                        content = f"please {failure}"
                        body_of_request = {**ASKS[client], "model": f"leaky/{upstream}", "stream": stream}
                        body_of_request["input" if client == "responses" else "messages"] = (
                            content if client == "responses" else [{"role": "user", "content": content}]
                        )
                        reply = await here.post(PATHS[client], body_of_request)
                        outputs.append(f"{failure}: {reply.status_code} {dict(reply.headers)} {reply.text}")
        for path in ("/v1/models", "/metrics", "/readyz", "/healthz", "/v1/images/models", "/", "/nowhere"):
            outputs.append((await here.get(path)).text)
        wrong = await here.post(PATHS["chat"], ASKS["chat"], key="sk-tg-" + "q" * 49)
        outputs.append(wrong.text)
        assert "q" * 10 not in wrong.text
        rows = await rows_by_id(here, tmp_path)
        assert len(rows) == len(protocols) ** 2 * len(FAILURES) * 2
        outputs += [str(row) for row in rows.values()]
        key = here.key
    outputs += [record.getMessage() + str(record.exc_text or "") for record in caplog.records]
    outputs += list(capfd.readouterr())
    kept = stored_text(tmp_path)
    for canary in CANARIES:
        assert canary not in kept, canary
        leaks = [text for text in outputs if canary in text]
        assert not leaks, f"{canary} in {len(leaks)} of {len(outputs)} outputs, such as {leaks[0][:600]}"
    assert key not in kept and not [text for text in outputs if key in text], (
        "the caller's own key was stored or repeated"
    )


async def test_25_the_callers_key_and_cookies_never_reach_a_provider(tmp_path):
    seen = []

    async def upstream(method, path, headers, body):
        seen.append(f"{path} {json.dumps(dict(headers))} {body!r}")

        async def blocks():
            yield b"{}"

        return 500, {}, blocks()

    async with inprocess(
        tmp_path, providers={"acme": provider("app://acme/x", "messages")}, apps={"acme": upstream}
    ) as here:
        for headers in ({"authorization": f"Bearer {here.key}"}, {"x-api-key": here.key}):
            await here.http.post(
                PATHS["messages"],
                json=ASKS["messages"],
                headers={**headers, "cookie": "session=cookie-canary", "x-forwarded-for": "10.9.8.7"},
            )
        assert len(seen) == 2 and all(here.key not in each and "cookie-canary" not in each for each in seen)


@pytest.mark.parametrize("words", [("check",), ("check", "--json"), ("models", "--routes")], ids=" ".join)
def test_25_no_secret_in_what_the_commands_print(tmp_path, words):
    (tmp_path / "providers").mkdir()
    (tmp_path / "providers" / "acme.yaml").write_text(
        provider("https://api.acme.example/v1", "chat", more=PLANTED.replace(", x-file: $secret.CANARY_FILE", ""))
    )
    (tmp_path / "providers" / "bad.yaml").write_text(
        provider("https://{{ $secret.CANARY_QUERY }}/v1", "chat", name="bad", model="bad/one")
    )
    (tmp_path / "gateway.yaml").write_text("server: {engine: hypercorn}\n")
    done = subprocess.run(
        [sys.executable, "-m", "tollgate", *words],
        cwd=tmp_path,
        env=environment(**ENVIRON),
        capture_output=True,
        timeout=60,
        text=True,
    )
    assert done.stdout or done.stderr
    assert not any(canary in done.stdout + done.stderr for canary in CANARIES)
