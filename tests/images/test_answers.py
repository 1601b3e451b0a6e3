"""Answers of image providers that are not JSON, and those read as the provider file specifies."""

import base64
import io
import os
import threading
import zipfile
from decimal import Decimal

import pytest

from support.image_provider import PNG
from support.inprocess import inprocess
from tollgate.images import answers
from tollgate.images.answers import is_text, read_body
from tollgate.json_bounds import too_many

PICTURE = base64.b64decode(PNG)
EVENTS = (
    b': beat\n\nevent: generating\ndata: null\n\nevent: complete\ndata: [{"url":"https://a.example/1"}]\n\ndata: bye'
)


def archive(*names, content=PICTURE):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as writer:
        for name in names:
            writer.writestr(name, b"" if name.endswith("/") else content)
    return packed.getvalue()


@pytest.mark.parametrize(
    ("raw", "kind", "framing", "value"),
    [
        (b'{"id": 1}', "text/plain", None, {"id": 1}),
        (b"", "text/html", None, {}),
        (b" \r\n", "", "sse", []),
        (PICTURE, "image/png; q=1", None, {"data": PNG, "content_type": "image/png"}),
        (PICTURE, "binary/octet-stream", None, {"data": PNG, "content_type": "image/png"}),
        (b"BM is a word", "text/plain", None, "BM is a word"),
        (b"<html>", "text/html", None, "<html>"),
        (
            archive("a/", "a/b.png"),
            "application/x-zip-compressed",
            None,
            {"files": [{"name": "a/b.png", "data": PNG, "content_type": "image/png"}]},
        ),
        (
            archive("b.json", content=b"{}"),
            "",
            "sse",
            {"files": [{"name": "b.json", "data": "e30=", "content_type": "application/octet-stream"}]},
        ),
        (
            EVENTS,
            "text/event-stream",
            "sse",
            [
                {"event": "generating", "data": None},
                {"event": "complete", "data": [{"url": "https://a.example/1"}]},
                {"event": None, "data": "bye"},
            ],
        ),
        (b'{"error": "busy"}', "application/json", "sse", {"error": "busy"}),
        (b'{"step": 1}\r\n\n{"image": "AA"}', "application/json", "ndjson", [{"step": 1}, {"image": "AA"}]),
    ],
    ids=[
        "json",
        "empty",
        "empty stream",
        "image",
        "image of unknown type",
        "text that begins like a bitmap",
        "html",
        "archive",
        "archive despite framing",
        "event stream",
        "json despite framing",
        "json lines",
    ],
)
async def test_a_body_is_read_as_a_value(raw, kind, framing, value):
    assert await read_body(raw, kind, framing) == value


@pytest.mark.parametrize(
    ("raw", "in_thread"),
    [(b'{"id": 1}', False), (b'{"id": 100}', True), (archive("a.png", content=b"").ljust(10), True)],
    ids=["small", "large", "archive"],
)
async def test_large_bodies_and_archives_are_read_in_a_thread(monkeypatch, raw, in_thread):
    read, threads = answers._read, []
    monkeypatch.setattr(answers, "_LARGE", 10)
    monkeypatch.setattr(answers, "_read", lambda *args: threads.append(threading.current_thread()) or read(*args))
    assert await read_body(raw, "application/json") is not None
    assert [thread is not threading.main_thread() for thread in threads] == [in_thread]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (archive("a.png")[:-30], "cannot be unpacked: File is not a zip file"),
        (archive(*map(str, range(101))), "more than 100 files"),
        (archive("a", content=b"\0" * 20_000), "or 10000 bytes"),
    ],
    ids=["damaged", "many", "large"],
)
async def test_an_unusable_archive_is_an_error(monkeypatch, raw, message):
    monkeypatch.setattr(answers, "MOST_BYTES", 10_000)
    with pytest.raises(ValueError, match=message):
        await read_body(raw, "application/zip")


async def test_values_are_counted_in_text_bodies_only():
    """An image of 20 MB has as many commas and brackets as a large JSON document."""
    picture = PICTURE[:8] + os.urandom(20 << 20)
    assert too_many(picture, 100_000)
    assert not is_text(picture, "application/octet-stream")
    assert not is_text(b"....", "image/webp")
    assert is_text(b"[1,2]", "application/octet-stream")


FILE = """
provider: acme
headers: {Authorization: "Bearer {{ $secret.ACME_KEY }}"}
images:
  statuses: {running: processing}
  submit:
    call: POST app://acme/jobs
    body: $.input
    result: {status: starting, at: $http.headers.location}
  poll:
    call: GET app://acme/{{ $job.at | raw }}
    answers: [303]
    framing: ndjson
    result: {status: {$when: $http.status == 303, $value: succeeded, $else: "$[-1].state"}, at: $http.headers.location}
  fetch:
    call: GET app://acme/{{ $job.at | raw }}
    headers: {Authorization: $nothing}
    result: {status: succeeded, images: [{$each: $f in $.files, data: $f.data}]}
models:
  acme/draw:
    price: {price: "0.04"}
    input_schema: {type: object, required: [prompt], properties: {prompt: {type: string}}}
"""


async def test_an_empty_success_is_a_failed_route(tmp_path):
    async def upstream(method, path, headers, body):
        async def chunks():
            yield b" "

        return 200, {}, chunks()

    async with inprocess(
        tmp_path, providers={"acme": FILE}, apps={"acme": upstream}, environ={"ACME_KEY": "k"}
    ) as upstream:
        made = await upstream.post("/v1/images/generations", {"model": "acme/draw", "input": {"prompt": "x"}})
        assert made.status_code == 500
        assert not await upstream.services.ledger.generations.pending()


SIGNED = FILE.replace(
    'headers: {Authorization: "Bearer {{ $secret.ACME_KEY }}"}',
    'auth: {kind: signed, adds: {headers: {Authorization: "Bearer {{ $secret.ACME_KEY }}"}}}',
).replace("headers: {Authorization: $nothing}", "auth: false")


@pytest.mark.parametrize("file", [FILE, SIGNED], ids=["a header", "auth"])
async def test_a_job_without_an_id_is_followed_by_statuses_and_headers(tmp_path, file):
    """An empty 202 with the address to poll in a header, JSON lines while the job runs, a 303 to a signed URL, an
    archive there."""
    answers = [
        (202, {"location": "jobs/7"}, b""),
        (200, {"content-type": "application/json"}, b'{"state": "queued"}\n{"state": "running"}\n'),
        (303, {"location": "files/7?signature=x"}, b"<a>see there</a>"),
        (200, {"content-type": "application/octet-stream"}, archive("1.png", "2.png")),
    ]
    called = []

    async def upstream(method, path, headers, body):
        status, response_headers, data = answers.pop(0)
        called.append((method, path, headers.get("authorization")))

        async def chunks():
            yield data

        return status, response_headers, chunks()

    async with inprocess(
        tmp_path, providers={"acme": file}, apps={"acme": upstream}, environ={"ACME_KEY": "k"}
    ) as upstream:
        before = upstream.balance()
        made = (await upstream.post("/v1/images/generations", {"model": "acme/draw", "input": {"prompt": "x"}})).json()
        seen = [made["data"]["status"]]
        for _ in range(2):
            found = (await upstream.get(f"/v1/images/generations/{made['data']['id']}")).json()["data"]
            seen.append(found["status"])
        assert seen == ["starting", "processing", "succeeded"]
        assert [picture["data"] for picture in found["images"]] == [PNG, PNG]
        assert found["cost"] == 0.08
        assert before - upstream.balance() == Decimal("0.08")
    assert called == [
        ("POST", "/jobs", "Bearer k"),
        ("GET", "/jobs/7", "Bearer k"),
        ("GET", "/jobs/7", "Bearer k"),
        ("GET", "/files/7?signature=x", None),
    ]
