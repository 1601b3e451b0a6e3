"""tollgate.images.answers: bodies that are no JSON, and what a file says of the answers that stand in them."""

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
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as made:
        for name in names:
            made.writestr(name, b"" if name.endswith("/") else content)
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
        "picture",
        "unnamed picture",
        "bitmap in words",
        "page",
        "archive",
        "archive of others",
        "events",
        "no events",
        "lines",
    ],
)
async def test_a_body_becomes_a_value(raw, kind, framing, value):
    assert await read_body(raw, kind, framing) == value


@pytest.mark.parametrize(
    ("raw", "beside"),
    [(b'{"id": 1}', False), (b'{"id": 100}', True), (archive("a.png", content=b"").ljust(10), True)],
    ids=["small", "large", "archive"],
)
async def test_large_bodies_and_archives_are_read_beside_the_event_loop(monkeypatch, raw, beside):
    read, threads = answers._read, []
    monkeypatch.setattr(answers, "_LARGE", 10)
    monkeypatch.setattr(answers, "_read", lambda *args: threads.append(threading.current_thread()) or read(*args))
    assert await read_body(raw, "application/json") is not None
    assert [thread is not threading.main_thread() for thread in threads] == [beside]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (archive("a.png")[:-30], "cannot be unpacked: File is not a zip file"),
        (archive(*map(str, range(101))), "more than 100 files"),
        (archive("a", content=b"\0" * 20_000), "or 10000 bytes"),
    ],
    ids=["damaged", "many", "large"],
)
async def test_an_archive_that_cannot_be_taken_is_named(monkeypatch, raw, said):
    monkeypatch.setattr(answers, "MOST_BYTES", 10_000)
    with pytest.raises(ValueError, match=said):
        await read_body(raw, "application/zip")


async def test_values_are_counted_in_texts_only():
    """A raw picture of 20 MB has as many commas and brackets as a large document."""
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


async def test_an_empty_success_is_a_failure_that_another_route_may_mend(tmp_path):
    async def app(method, path, headers, body):
        async def chunks():
            yield b" "

        return 200, {}, chunks()

    async with inprocess(tmp_path, providers={"acme": FILE}, apps={"acme": app}, environ={"ACME_KEY": "k"}) as here:
        made = await here.post("/v1/images/generations", {"model": "acme/draw", "input": {"prompt": "x"}})
        assert made.status_code == 500
        assert not await here.services.ledger.generations.pending()


SIGNED = FILE.replace(
    'headers: {Authorization: "Bearer {{ $secret.ACME_KEY }}"}',
    'auth: {kind: signed, adds: {headers: {Authorization: "Bearer {{ $secret.ACME_KEY }}"}}}',
).replace("headers: {Authorization: $nothing}", "auth: false")


@pytest.mark.parametrize("file", [FILE, SIGNED], ids=["a header", "auth"])
async def test_a_job_told_by_statuses_and_headers_without_an_id(tmp_path, file):
    """An empty 202 whose header says where to ask, lines while it runs, a 303 to a signed address, an archive there."""
    said = [
        (202, {"location": "jobs/7"}, b""),
        (200, {"content-type": "application/json"}, b'{"state": "queued"}\n{"state": "running"}\n'),
        (303, {"location": "files/7?signature=x"}, b"<a>see there</a>"),
        (200, {"content-type": "application/octet-stream"}, archive("1.png", "2.png")),
    ]
    called = []

    async def app(method, path, headers, body):
        status, told, data = said.pop(0)
        called.append((method, path, headers.get("authorization")))

        async def chunks():
            yield data

        return status, told, chunks()

    async with inprocess(tmp_path, providers={"acme": file}, apps={"acme": app}, environ={"ACME_KEY": "k"}) as here:
        before = here.balance()
        made = (await here.post("/v1/images/generations", {"model": "acme/draw", "input": {"prompt": "x"}})).json()
        seen = [made["data"]["status"]]
        for _ in range(2):
            found = (await here.get(f"/v1/images/generations/{made['data']['id']}")).json()["data"]
            seen.append(found["status"])
        assert seen == ["starting", "processing", "succeeded"]
        assert [picture["data"] for picture in found["images"]] == [PNG, PNG]
        assert found["cost"] == 0.08
        assert before - here.balance() == Decimal("0.08")
    assert called == [
        ("POST", "/jobs", "Bearer k"),
        ("GET", "/jobs/7", "Bearer k"),
        ("GET", "/jobs/7", "Bearer k"),
        ("GET", "/files/7?signature=x", None),
    ]
