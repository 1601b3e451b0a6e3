"""The guarded download: allowed addresses, limits of size and time, and what its errors omit."""

from __future__ import annotations

import asyncio
import base64
import gzip
import socket
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest

from support.waiting import until
from tollgate import fetch
from tollgate.config.settings import Fetch
from tollgate.errors import BadRequest
from tollgate.fetch import fetch_inline, is_public, media_type
from tollgate.upstream.dial import resolve

PNG = b"\x89PNG\r\n\x1a\n" + bytes(50)
OPEN = Fetch(max_bytes=100_000, seconds=2, allow_private=True)
GUARDED = Fetch(max_bytes=100_000, seconds=2)


class Site:
    """A web site on loopback. `pages` maps paths to raw bytes or functions of the writer; `heads` are the received
    requests."""

    def __init__(self, pages: dict[str, bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]]) -> None:
        self.pages, self.heads, self.port = pages, [], 0
        self.resolved: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            page = self.pages[self.heads[-1].split()[1]]
            if isinstance(page, bytes):
                writer.write(page)
            else:
                await page(writer)
        except (ConnectionError, asyncio.CancelledError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def url(self, path: str, host: str = "pictures.example") -> str:
        return f"http://{host}:{self.port}{path}"

    async def resolver(self, host: str, port: int) -> list:
        self.resolved.append(host)
        return [(socket.AF_INET, {"inner.example": "127.0.0.2"}.get(host, "127.0.0.1"), port)]


@asynccontextmanager
async def site(pages: dict):
    running = Site(pages)
    server = await asyncio.start_server(running.serve, "127.0.0.1", 0)
    running.port = server.sockets[0].getsockname()[1]
    try:
        yield running
    finally:
        server.close()


def page(body: bytes, kind: str | None = "image/png", *more: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"content-length: {len(body)}", *([f"content-type: {kind}"] if kind else []), *more]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def redirect(where: str, status: int = 302) -> bytes:
    return f"HTTP/1.1 {status} Moved\r\nlocation: {where}\r\ncontent-length: 0\r\n\r\n".encode()


async def test_an_image_is_fetched_without_credentials() -> None:
    async with site({"/a.png?sig=1": page(PNG)}) as web:
        assert await fetch_inline(web.url("/a.png?sig=1"), OPEN, resolver=web.resolver) == ("image/png", PNG)
        head = web.heads[0].lower()
    assert f"host: pictures.example:{web.port}" in head
    assert "cookie" not in head
    assert "authorization" not in head


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_at_most_three_redirects_are_followed(status: int) -> None:
    pages = {"/0": page(PNG), **{f"/{n}": redirect(f"/{n - 1}", status) for n in range(1, 5)}}
    async with site(pages) as web:
        assert (await fetch_inline(web.url("/3"), OPEN, resolver=web.resolver))[1] == PNG
        with pytest.raises(BadRequest, match="redirects more than 3 times"):
            await fetch_inline(web.url("/4"), OPEN, resolver=web.resolver)


async def test_every_redirect_target_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "is_public", lambda address: address == "127.0.0.1")
    async with site({}) as web:
        web.pages |= {
            "/a": redirect(web.url("/secret", "inner.example")),
            "/b": redirect("file:///etc/passwd"),
            "/c": redirect("//u:p@x/"),
            "/d": redirect("http://pictures.example:25/"),
            "/ok": redirect("/png"),
            "/png": page(PNG),
            "/secret": page(b"secret"),
        }
        assert (await fetch_inline(web.url("/ok"), GUARDED, resolver=web.resolver))[1] == PNG
        for path in ("/a", "/b", "/c", "/d"):
            with pytest.raises(BadRequest, match="cannot be fetched"):
                await fetch_inline(web.url(path), GUARDED, resolver=web.resolver)
        assert not any("/secret" in head for head in web.heads)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]"],
)
async def test_loopback_is_rejected_in_every_spelling(host: str) -> None:
    async with site({"/": page(PNG)}) as web:
        with pytest.raises(BadRequest, match="unknown, unreachable or not a public address"):
            await fetch_inline(web.url("/", host), GUARDED)
        assert web.heads == []


async def test_lookups_that_hang_do_not_block_others(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    started, end = threading.Event(), threading.Event()
    real = socket.getaddrinfo

    def hanging(host: str, *rest: object, **more: object) -> object:
        if host != "hangs.example":
            return real(host, *rest, **more)
        started.set()
        end.wait(60)
        raise socket.gaierror("nobody answers")

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    slow = asyncio.ensure_future(fetch_inline("http://hangs.example/a.png", GUARDED))
    await until(lambda: started.is_set())
    try:
        async with asyncio.timeout(30):
            assert await resolve("127.0.0.1", 80) == [(socket.AF_INET, "127.0.0.1", 80)]
    finally:
        end.set()
    with pytest.raises(BadRequest, match="its host is unknown"):
        await slow


async def test_a_name_is_resolved_once_and_the_checked_address_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "is_public", lambda address: address == "127.0.0.1")
    async with site({"/": page(PNG)}) as web:
        answers = [
            [(socket.AF_INET, "127.0.0.2", web.port), (socket.AF_INET, "127.0.0.1", web.port)],
            [(socket.AF_INET, "127.0.0.2", web.port)],
        ]

        async def rebinding(host: str, port: int) -> list:
            return answers.pop(0)

        assert (await fetch_inline(web.url("/"), GUARDED, resolver=rebinding))[1] == PNG
        assert len(answers) == 1


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.215.14", True),
        ("2606:2800:21f:cb07::1", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.100.100.200", False),
        ("192.0.0.192", False),
        ("168.63.129.16", False),
        ("168.63.129.17", True),
        ("198.18.0.1", False),
        ("224.0.0.1", False),
        ("240.0.0.1", False),
        ("255.255.255.255", False),
        ("0.0.0.0", False),
        ("192.88.99.1", False),
        ("::1", False),
        ("::", False),
        ("fe80::1", False),
        ("fe80::1%eth0", False),
        ("fd00:ec2::254", False),
        ("fec0::1", False),
        ("ff02::1", False),
        ("::ffff:93.184.215.14", False),
        ("::ffff:127.0.0.1", False),
        ("::7f00:1", False),
        ("4000::1", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b:1::1", False),
        ("2002:7f00:1::", False),
        ("2001:0:7f00:1::", False),
        ("2001:db8::1", False),
    ],
)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    assert is_public(address) is public


@pytest.mark.parametrize(
    "url",
    [
        "ftp://x/a",
        "file:///etc/passwd",
        "gopher://x",
        "javascript:alert(1)",
        "http://u:p@x.example/",
        "//x",
        "",
        "http://",
        "http://a..b/c.png",
        f"http://{'a' * 64}.example/",
    ],
)
async def test_only_plain_http_urls_are_accepted(url: str) -> None:
    with pytest.raises(BadRequest, match="cannot be fetched"):
        await fetch_inline(url, OPEN)


async def test_a_redirect_to_an_invalid_url_is_reported() -> None:
    async with site({"/": redirect("http://[")}) as web:
        with pytest.raises(BadRequest, match="it redirects to an invalid URL"):
            await fetch_inline(web.url("/"), OPEN, resolver=web.resolver)


@pytest.mark.parametrize("port", [1, 22, 25, 110, 445])
async def test_ports_of_other_services_are_rejected(port: int) -> None:
    with pytest.raises(BadRequest, match=f"port {port} is not allowed"):
        await fetch_inline(f"http://x.example:{port}/", OPEN)


async def _endless(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"x" * 10_000)
        await writer.drain()


async def _trickle(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.02)


async def _silent(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(1)


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (page(bytes(100_001)), "larger than 100000 bytes"),
        (_endless, "larger than 100000 bytes"),
        (page(gzip.compress(bytes(10_000_000)), "image/png", "content-encoding: gzip"), "larger than 100000 bytes"),
        (_trickle, "longer than 0.3 s"),
        (_silent, "longer than 0.3 s"),
        (b"HTTP/1.1 404 Not Found\r\n\r\nx", "answered 404"),
        (b"HTTP/1.1 302 Found\r\n\r\n", "answered 302"),
        (page(bytes(500))[:-100], "connection broke"),
        (b"rubbish\r\n\r\n", "unreachable"),
    ],
    ids=[
        "known size",
        "endless",
        "compressed bomb",
        "trickle",
        "silence",
        "missing",
        "redirect to nowhere",
        "cut short",
        "not HTTP",
    ],
)
async def test_a_download_is_bounded_and_its_error_omits_the_path(answer, wanted: str) -> None:
    async with site({"/p?sig=canary": answer}) as web:
        with pytest.raises(BadRequest, match=wanted) as caught:
            await fetch_inline(
                web.url("/p?sig=canary"),
                Fetch(max_bytes=100_000, seconds=0.3 if "0.3 s" in wanted else 30, allow_private=True),
                resolver=web.resolver,
            )
    assert "canary" not in str(caught.value)
    assert "http://pictures.example cannot be fetched" in str(caught.value)
    assert caught.value.code == "url_not_fetched"


@pytest.mark.parametrize(
    ("header", "data", "wanted"),
    [
        ("image/jpeg", PNG, "image/png"),
        ("image/jpeg; charset=x", b"?", "image/jpeg"),
        ("", b"\xff\xd8\xff\xe0", "image/jpeg"),
        ("", b"GIF89a..", "image/gif"),
        ("", b"RIFF....WEBPVP8 ", "image/webp"),
        ("", b"RIFF....WAVEfmt ", "audio/wav"),
        ("binary/octet-stream", b"%PDF-1.7", "application/pdf"),
        ("", b"hello", "application/octet-stream"),
        ("garbage", b"hello", "application/octet-stream"),
        ("TEXT/Plain;charset=utf-8", b"hi", "text/plain"),
    ],
)
def test_the_media_type_is_detected_from_the_bytes_or_else_the_header(header: str, data: bytes, wanted: str) -> None:
    assert media_type(header, data) == wanted


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("data:image/png;base64," + base64.b64encode(PNG).decode(), ("image/png", PNG)),
        ("data:,a%20b", ("text/plain", b"a b")),
        ("DATA:text/html;charset=utf-8,%3Cb%3E", ("text/html", b"<b>")),
        ("data:image/gif;x=y;BASE64,R0lG", ("image/gif", b"GIF")),
        ("data:image/gif;base64,R0 lG\nR0k", ("image/gif", b"GIFGI")),
        ("data:;base64,", ("text/plain", b"")),
        ("data:image/png;base64,aGk%3D", ("image/png", b"hi")),
    ],
)
async def test_a_data_url_is_decoded(url: str, wanted: tuple[str, bytes]) -> None:
    assert await fetch_inline(url, GUARDED) == wanted


@pytest.mark.parametrize(
    "url",
    [
        "data:image/png;base64",
        "data:image/png;base64,%%%",
        "data:image/png;base64,a",
        "data:," + "x" * 100_001,
        "data:;base64," + "A" * 200_000,
    ],
    ids=["no comma", "not base64", "one letter", "too long", "too long encoded"],
)
async def test_an_invalid_data_url_is_a_bad_request(url: str) -> None:
    with pytest.raises(BadRequest, match="a data URL"):
        await fetch_inline(url, GUARDED)


@pytest.mark.parametrize("url", ["data:" + ";" * 20_000 + ",a", "http://pictures.example/" + "../" * 6_000])
async def test_an_address_or_a_media_type_of_megabytes_is_refused_without_parsing_it(url: str) -> None:
    with pytest.raises(BadRequest, match="longer than 16384 characters"):
        await fetch_inline(url, GUARDED)


async def test_other_tasks_run_while_a_long_data_url_is_decoded() -> None:
    rounds, ended = 0, False

    async def others() -> None:
        nonlocal rounds
        while not ended:
            rounds += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(others())
    text = "%%41a%4b%4" * 50_000
    assert (await fetch_inline("data:," + text, Fetch(max_bytes=1_000_000)))[1] == b"%AaK%4" * 50_000
    ended = True
    await running
    assert rounds > 20


async def test_the_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with site({"/": page(PNG)}) as web:
        assert (await fetch_inline(web.url("/"), OPEN, resolver=web.resolver))[1] == PNG
