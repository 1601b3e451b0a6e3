"""TLS and proxies: trust, tunnels, and what errors omit."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from authority import Authority
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from scripted import CHUNKED_HEAD, Peer, Seen, chunked, ok, upstream

from support.waiting import until
from tollgate.config.authorisation import Authorisation
from tollgate.config.settings import ConnectionSettings, Timeouts
from tollgate.errors import UpstreamTimeout, UpstreamUnreachable
from tollgate.upstream import Call, Client
from tollgate.upstream.connection import Connection
from tollgate.upstream.dial import Address
from tollgate.upstream.proxies import ProxyRules, parse_proxy

PATIENT = Timeouts(connect=30, first_byte=30, idle=30, total=60)


def call(url: str, **more) -> Call:
    return Call(**{"method": "POST", "url": url, "body": b"{}", "timeouts": PATIENT, **more})


async def fetch(client: Client, url: str, **more) -> bytes:
    connection = ConnectionSettings(**{name: more.pop(name) for name in ConnectionSettings._fields if name in more})
    async with await client.open(call(url, connection=connection, **more)) as answer:
        return await answer.read()


async def test_a_certificate_of_the_ca_file_is_trusted_and_the_connection_kept(
    client: Client, authority: Authority
) -> None:
    async with upstream(CHUNKED_HEAD + chunked(b"a" * 100_000), tls=authority.context("127.0.0.1")) as server:
        for _ in range(3):
            assert await fetch(client, server.url(), ca_file=authority.ca_file) == b"a" * 100_000
        assert server.connections == 1


async def test_a_large_body_is_sent_over_tls_completely(client: Client, authority: Authority) -> None:
    body = bytes(range(256)) * 8192
    async with upstream(ok(b"a"), tls=authority.context("127.0.0.1")) as server:
        assert await fetch(client, server.url(), ca_file=authority.ca_file, body=body) == b"a"
        assert server.seen[0].body == body


async def test_an_untrusted_certificate_is_rejected_unless_verification_is_off(
    client: Client, authority: Authority
) -> None:
    async with upstream(ok(b"a"), tls=authority.context("127.0.0.1")) as server:
        with pytest.raises(UpstreamUnreachable, match="no trusted certificate"):
            await fetch(client, server.url())
        assert await fetch(client, server.url(), verify_tls=False) == b"a"
        with pytest.raises(UpstreamUnreachable, match="no trusted certificate"):
            await fetch(client, server.url())


async def test_a_certificate_for_another_name_is_rejected(client: Client, authority: Authority) -> None:
    async with upstream(ok(b"a"), tls=authority.context("other.example")) as server:
        with pytest.raises(UpstreamUnreachable, match="no trusted certificate: IP address mismatch"):
            await fetch(client, server.url(), ca_file=authority.ca_file)


async def test_the_dot_that_ends_an_absolute_name_is_not_in_its_certificate(make_client, authority: Authority) -> None:
    async def here(host: str, port: int) -> list[Address]:
        return [(socket.AF_INET, "127.0.0.1", port)]

    async with upstream(ok(b"a"), tls=authority.context("api.example")) as server:
        url = f"https://api.example.:{server.port}/"
        assert await fetch(make_client(resolver=here), url, ca_file=authority.ca_file) == b"a"


async def test_tls_to_a_plain_server_is_a_clean_error(client: Client, authority: Authority) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(5)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    try:
        with pytest.raises(UpstreamUnreachable, match="the TLS handshake with 127.0.0.1"):
            await fetch(client, f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/", ca_file=authority.ca_file)
    finally:
        server.close()


async def test_an_unreadable_ca_file_is_reported(client: Client) -> None:
    async with upstream(ok()) as server:
        server.scheme = "https"
        with pytest.raises(UpstreamUnreachable, match="cannot read ca_file /nowhere.pem"):
            await fetch(client, server.url(), ca_file="/nowhere.pem")


async def test_a_replaced_ca_file_applies_to_new_connections(client: Client, tmp_path: Path) -> None:
    ca_file = tmp_path / "live.pem"
    old, new = Authority(_created(tmp_path / "old")), Authority(_created(tmp_path / "new"))
    ca_file.write_bytes(Path(old.ca_file).read_bytes())
    async with (
        upstream(ok(b"old", "connection: close"), tls=old.context("127.0.0.1")) as before,
        upstream(ok(b"new", "connection: close"), tls=new.context("127.0.0.1")) as after,
    ):
        assert await fetch(client, before.url(), ca_file=str(ca_file)) == b"old"
        with pytest.raises(UpstreamUnreachable, match="no trusted certificate"):
            await fetch(client, after.url(), ca_file=str(ca_file))
        ca_file.write_bytes(Path(new.ca_file).read_bytes())
        assert await fetch(client, after.url(), ca_file=str(ca_file)) == b"new"
        with pytest.raises(UpstreamUnreachable, match="no trusted certificate"):
            await fetch(client, before.url(), ca_file=str(ca_file))


@pytest.mark.parametrize("spoil", [lambda file: file.write_text("half of a cert"), Path.unlink])
async def test_a_ca_file_damaged_while_running_keeps_its_previous_contents(
    client: Client, authority: Authority, caplog: pytest.LogCaptureFixture, spoil: Callable[[Path], object]
) -> None:
    written = Path(authority.ca_file).read_bytes()
    async with upstream(ok(b"a", "connection: close"), tls=authority.context("127.0.0.1")) as server:
        assert await fetch(client, server.url(), ca_file=authority.ca_file) == b"a"
        spoil(Path(authority.ca_file))
        for _ in range(3):
            assert await fetch(client, server.url(), ca_file=authority.ca_file) == b"a"
        assert caplog.text.count(f"cannot read ca_file {authority.ca_file}") == 1
        Path(authority.ca_file).write_bytes(written)
        assert await fetch(client, server.url(), ca_file=authority.ca_file) == b"a"


async def test_a_client_certificate_is_shown_to_a_server_that_asks_for_one(
    client: Client, authority: Authority
) -> None:
    mutual = authority.context("127.0.0.1")
    mutual.verify_mode = ssl.CERT_REQUIRED
    mutual.load_verify_locations(authority.ca_file)
    authority.context("ours")
    ours = authority.folder / "ours.pem"
    async with upstream(ok(b"a"), tls=mutual) as server:
        assert await fetch(client, server.url(), ca_file=authority.ca_file, client_certificate=str(ours)) == b"a"
        with pytest.raises(UpstreamUnreachable, match="closed the connection before answering"):
            await fetch(client, server.url(), ca_file=authority.ca_file)


async def test_a_client_certificate_whose_key_has_a_password_is_reported(client: Client, tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    )
    (tmp_path / "ours.pem").write_bytes(Path(Authority(tmp_path).ca_file).read_bytes() + key)
    async with upstream(ok()) as server:
        server.scheme = "https"
        with pytest.raises(UpstreamUnreachable, match="cannot read client_certificate .*ours.pem"):
            await fetch(client, server.url(), client_certificate=str(tmp_path / "ours.pem"))


def _created(folder: Path) -> Path:
    folder.mkdir()
    return folder


async def test_a_call_cancelled_at_the_end_of_its_tls_handshake_leaks_no_socket(
    client: Client, authority: Authority, monkeypatch
) -> None:
    made = Connection.connection_made
    leaving: list[asyncio.Task[bytes]] = []

    def connection_made(self: Connection, transport: asyncio.BaseTransport) -> None:
        made(self, transport)
        if leaving:
            leaving.pop().cancel()

    monkeypatch.setattr(Connection, "connection_made", connection_made)
    async with upstream(ok(b"a", "connection: close"), tls=authority.context("127.0.0.1")) as server:
        for _ in range(3):
            leaving.append(asyncio.ensure_future(fetch(client, server.url(), verify_tls=False)))
            with pytest.raises(asyncio.CancelledError):
                await leaving[0]
            # the next socket has the descriptor of the closed one
            done = await asyncio.gather(*(fetch(client, server.url(), verify_tls=False) for _ in range(5)))
            assert done == [b"a"] * 5
        await client.close()
        await until(lambda: not server.open)


async def test_a_silent_tls_handshake_is_a_connect_timeout(client: Client) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    try:
        with pytest.raises(UpstreamTimeout, match="connect budget"):
            await fetch(
                client, f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/", timeouts=Timeouts(connect=0.1)
            )
    finally:
        server.close()


@asynccontextmanager
async def proxy(reply: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n"):
    """A forwarding proxy for CONNECT. `heads` are the requests it received."""
    heads: list[str] = []
    running: set[asyncio.Task] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        running.add(asyncio.current_task())
        try:
            heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            writer.write(reply)
            if not reply.startswith(b"HTTP/1.1 200") or not heads[-1].startswith("CONNECT"):
                return
            host, _, port = heads[-1].split()[1].rpartition(":")
            remote, back = await asyncio.open_connection(host, int(port))
            await asyncio.gather(pipe(reader, back), pipe(remote, writer), return_exceptions=True)
        except asyncio.CancelledError:
            pass
        finally:
            writer.close()

    async def pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        finally:
            sink.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", heads
    finally:
        server.close()
        for task in running:
            task.cancel()
        await asyncio.sleep(0)


async def test_https_uses_a_tunnel_and_keeps_it(client: Client, authority: Authority) -> None:
    async with upstream(ok(b"a"), tls=authority.context("127.0.0.1")) as server, proxy() as (address, heads):
        for _ in range(2):
            assert (
                await fetch(client, server.url(), ca_file=authority.ca_file, proxy=f"http://us%20er:pa%3Ass@{address}")
                == b"a"
            )
        assert len(heads) == 1
        assert heads[0].startswith(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\n")
        assert "proxy-authorization: Basic " + base64.b64encode(b"us er:pa:ss").decode() in heads[0]
        assert "proxy-authorization" not in server.seen[0].headers


async def test_http_through_a_proxy_sends_the_absolute_url(client: Client) -> None:
    async with proxy(ok(b"a")) as (address, heads):
        assert (
            await fetch(client, "http://far.example:81/x?y", proxy=f"http://u:p@{address}", method="GET", body=b"")
            == b"a"
        )
    assert heads[0].startswith("GET http://far.example:81/x?y HTTP/1.1\r\n")
    assert "host: far.example:81\r\n" in heads[0]
    assert "proxy-authorization: Basic dTpw\r\n" in heads[0]


async def test_a_token_is_requested_through_the_proxy_of_its_call(client: Client) -> None:
    auth = Authorisation(
        "oauth_client", {"token_url": "http://issuer.example/token", "client_id": "us", "client_secret": "s"}
    )
    async with proxy(ok(b'{"access_token": "t"}')) as (address, heads):
        await fetch(client, "http://far.example/x", proxy=f"http://{address}", auth=auth)
    assert [head.split()[1] for head in heads] == ["http://issuer.example/token", "http://far.example/x"]
    assert "authorization: Bearer t\r\n" in heads[1]


@pytest.mark.parametrize("url", ["http://far.example/x", "https://far.example/x"])
async def test_a_407_of_a_proxy_is_not_a_response_of_the_upstream(client: Client, url: str) -> None:
    reply = b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 12\r\n\r\nwho are you?"
    async with proxy(reply) as (address, _):
        with pytest.raises(UpstreamUnreachable, match=f"proxy {address} refused .* to far.example:.*: 407") as caught:
            await fetch(client, url, proxy=f"http://user:canary@{address}")
    assert caught.value.alarm == "proxy"
    assert "canary" not in str(caught.value)


async def test_a_407_without_a_proxy_is_the_upstream_s(client: Client) -> None:
    async with upstream(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n") as server:
        answer = await client.open(call(server.url()))
        assert answer.status == 407
        answer.abort()


async def test_an_unreachable_proxy_is_reported_as_the_proxy(client: Client) -> None:
    with pytest.raises(UpstreamUnreachable, match="cannot connect to proxy 127.0.0.1:1: Connection refused"):
        await fetch(client, "https://far.example/", proxy="http://u:canary@127.0.0.1:1")


@pytest.mark.parametrize(
    ("reply", "wanted"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "refused a tunnel to far.example:443: 407"),
        (b"SSH-2.0-x\r\n\r\n", "malformed reply"),
        (b"HTTP/1.1 200 OK\r\n\r\nboo", "bytes of its own"),
        (b"", "did not open a tunnel"),
        (b"HTTP/1.1 200 " + b"x" * 20_000, "did not open a tunnel"),
    ],
    ids=["refused", "not HTTP", "extra bytes", "no reply", "endless"],
)
async def test_a_failing_proxy_is_reported_without_its_password(client: Client, reply: bytes, wanted: str) -> None:
    async with proxy(reply) as (address, _):
        with pytest.raises(UpstreamUnreachable, match=wanted) as caught:
            await fetch(client, "https://far.example/x", proxy=f"http://user:canary@{address}")
    assert address in str(caught.value)
    assert "canary" not in str(caught.value)


async def test_the_connection_to_a_proxy_that_opens_no_tunnel_is_closed_at_once(client: Client) -> None:
    """Also while the error, whose traceback refers to the socket, is still held."""
    closed = []

    async def script(seen: Seen, peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 503 Busy\r\n\r\n")
        closed.append(await peer.is_closed())

    async with upstream(script) as server:
        with pytest.raises(UpstreamUnreachable, match="refused a tunnel") as caught:
            await fetch(client, "https://far.example/x", proxy=f"http://127.0.0.1:{server.port}")
        await until(lambda: closed)
    assert closed == [True]
    del caught


async def test_the_proxy_of_the_environment_is_used_unless_the_provider_overrides_it(make_client) -> None:
    async with proxy(ok(b"through")) as (address, heads):
        client = make_client(environ={"http_proxy": f"http://{address}", "no_proxy": "near.example"})
        assert await fetch(client, "http://far.example/") == b"through"
        with pytest.raises(UpstreamUnreachable, match="cannot resolve far.example.invalid"):
            await fetch(client, "http://far.example.invalid/", proxy="")
        assert len(heads) == 1


RULES = ProxyRules(
    {
        "HTTP_PROXY": "http://plain:1",
        "https_proxy": "secure:2",
        "HTTPS_PROXY": "http://ignored:3",
        "NO_PROXY": "example.com, .corp, 10.0.0.0/8,*.wild.net, ported:8080, fd00::/8",
    }
)


@pytest.mark.parametrize(
    ("scheme", "host", "wanted"),
    [
        ("http", "a.org", "plain"),
        ("https", "a.org", "secure"),
        ("http", "example.com", None),
        ("http", "x.example.com", None),
        ("http", "notexample.com", "plain"),
        ("http", "x.corp", None),
        ("https", "10.1.2.3", None),
        ("https", "11.1.2.3", "secure"),
        ("http", "a.wild.net", None),
        ("http", "localhost", None),
        ("http", "127.0.0.1", None),
        ("http", "::1", None),
        ("http", "fd12::1", None),
        ("http", "ported", "plain"),
        ("http", "EXAMPLE.com", None),
        ("http", "example.com.", None),
    ],
)
def test_no_proxy_exceptions(scheme: str, host: str, wanted: str | None) -> None:
    found = RULES.find(scheme, host, 80)
    assert (found.host if found else None) == wanted


def test_a_port_in_no_proxy_is_matched() -> None:
    assert RULES.find("http", "ported", 8080) is None


def test_without_variables_or_with_a_star_no_proxy_is_used() -> None:
    assert ProxyRules({}).find("https", "a.org", 443) is None
    assert ProxyRules({"ALL_PROXY": "x:1"}).find("https", "a.org", 443) is not None
    assert ProxyRules({"ALL_PROXY": "x:1", "no_proxy": "*"}).find("https", "a.org", 443) is None
    assert ProxyRules({"HTTP_PROXY": "x:1", "REQUEST_METHOD": "GET"}).find("http", "a.org", 80) is None


@pytest.mark.parametrize(
    "url", ["socks5://x:1", "https://x:1", "http://", "http://x:canary", "http://x:99999999", "http://["]
)
def test_other_kinds_of_proxy_are_rejected(url: str) -> None:
    with pytest.raises(UpstreamUnreachable, match="http://host:port") as caught:
        parse_proxy(url)
    assert "canary" not in str(caught.value)


def test_the_repr_of_a_proxy_hides_its_password() -> None:
    assert "secret" not in repr(parse_proxy("http://u:secret@x:1"))


async def test_a_ca_file_is_added_to_the_system_s_authorities(tmp_path) -> None:
    from tollgate.upstream.dial import _tls_context

    alone, beside = _tls_context(True, None), _tls_context(True, Authority(tmp_path).ca_file)
    assert len(beside.get_ca_certs()) == len(alone.get_ca_certs()) + 1
