"""If this process has no sockets left, no provider is blamed for it."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource
from collections.abc import Iterator

import pytest
from scripted import ok, upstream

from conformance.upstreams import ASKS, PATHS, provider
from support.inprocess import inprocess
from tollgate.config.settings import Timeouts
from tollgate.errors import OutOfSockets, UpstreamUnreachable
from tollgate.process import descriptors
from tollgate.upstream import Call, Client

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no /proc")


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """Makes opening files impossible for a block."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(int(name) for name in os.listdir("/proc/self/fd")) + 5, before[1]))
    taken: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def call(url: str) -> Call:
    return Call("POST", url, body=b"{}", timeouts=Timeouts(connect=2, first_byte=2, idle=2, total=4))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"], ids=["an address", "a name to look up"])
async def test_without_descriptors_no_provider_is_at_fault(client: Client, host: str) -> None:
    async with upstream(ok(b"a")) as server:
        url = server.url().replace("127.0.0.1", host)
        "name".encode("idna")  # loads the codec from its file, as a gateway does at its first call at the latest
        with no_descriptors():
            assert descriptors.none_left()
            with pytest.raises(OutOfSockets, match="no file descriptor is left") as caught:
                await client.open(call(url))
        assert (caught.value.status, caught.value.retry_after) == (503, 5)
        assert not descriptors.none_left()
        async with await client.open(call(url)) as answer:
            assert await answer.read() == b"a"


@pytest.mark.parametrize(
    ("codes", "kind"),
    [
        ([errno.EADDRNOTAVAIL], OutOfSockets),
        ([errno.ENFILE], OutOfSockets),
        ([errno.ENOBUFS, errno.EADDRNOTAVAIL], OutOfSockets),
        ([errno.EADDRNOTAVAIL, errno.ECONNREFUSED], UpstreamUnreachable),
        ([errno.ECONNREFUSED], UpstreamUnreachable),
    ],
    ids=["no local port", "no file in the system", "no memory and no port", "another address refuses", "refused"],
)
async def test_a_local_failure_is_distinguished_from_the_provider_s(
    monkeypatch, make_client, codes: list[int], kind: type
) -> None:
    """One address may be of a family that this machine lacks; the others are more informative."""
    left = list(codes)

    async def connect(address: object) -> None:
        raise OSError(left.pop(0), "told by the kernel")

    async def several(host: str, port: int) -> list:
        return [(2, "192.0.2.1", port)] * len(codes)

    monkeypatch.setattr("tollgate.upstream.dial._connect", connect)
    monkeypatch.setattr("tollgate.upstream.dial.STAGGER", 0.01)
    with pytest.raises(UpstreamUnreachable) as caught:
        await make_client(resolver=several).open(call("http://many.example/"))
    assert type(caught.value) is kind


async def test_without_descriptors_no_route_cools_down_and_the_caller_gets_retry_after(tmp_path, caplog) -> None:
    caplog.set_level(logging.WARNING, "tollgate")
    async with (
        upstream(ok(b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}}]}')) as server,
        inprocess(tmp_path, providers={"acme": provider(server.url(), "chat")}) as app,
    ):
        with no_descriptors():
            for _ in range(5):
                reply = await app.post(PATHS["chat"], ASKS["chat"])
                assert (reply.status_code, reply.json()) == (503, {"message": "Service temporarily unavailable"})
                assert (reply.headers["retry-after"], reply.headers["x-tollgate-error"]) == ("5", "out_of_sockets")
        assert (app.services.health.cooling(), [route.failures for route in app.services.health.routes()]) == ({}, [])
        assert (await app.post(PATHS["chat"], ASKS["chat"])).status_code == 200
    logged = [record.getMessage() for record in caplog.records if "no sockets are left" in record.getMessage()]
    assert len(logged) == 1 and logged[0].endswith("no file descriptor is left")
