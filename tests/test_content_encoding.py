"""Decompressing, piece by piece: the result does not depend on the pieces, and no call returns much at once."""

from __future__ import annotations

import gzip
import random
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tollgate.content_encoding import CorruptBody, UnknownCoding, Unpacker

MIB = 1 << 20


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


FORMS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "deflate without a header": raw_deflate,
}


def unpacked(coding: str, *pieces: bytes) -> list[bytes]:
    """What each call returned, for pieces of a complete body."""
    unpacker, returned = Unpacker(coding.split()[0]), []
    for piece in pieces:
        returned.append(unpacker.unpack(piece))
        while unpacker.more:
            returned.append(unpacker.unpack(b""))
    unpacker.check_complete()
    return returned


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=50)
@given(data=st.binary(max_size=300), size=st.integers(1, 50))
def test_the_pieces_of_a_body_do_not_matter(form: str, data: bytes, size: int) -> None:
    body = FORMS[form](data)
    assert b"".join(unpacked(form, *(body[at : at + size] for at in range(0, len(body), size)))) == data


@pytest.mark.parametrize("form", FORMS)
def test_a_call_returns_a_mebibyte_at_most(form: str) -> None:
    """A body of 10 kB may expand to 10 MB, also behind bytes that do not expand."""
    data = random.Random(7).randbytes(2 * MIB + 1000) + bytes(10 * MIB)
    returned = unpacked(form, FORMS[form](data))
    assert b"".join(returned) == data and max(map(len, returned)) == MIB


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB, MIB + 1, MIB + 100, MIB + 200])
def test_a_body_around_the_size_of_a_call_is_complete(form: str, size: int) -> None:
    """The last bytes may be inside the decoder when all of the body was given to it."""
    assert b"".join(unpacked(form, FORMS[form](bytes(size)))) == bytes(size)


def test_deflate_that_only_has_the_checksum_of_a_zlib_header_has_none() -> None:
    body = next(body for n in range(1000) if int.from_bytes((body := raw_deflate(b"%d" % n))[:2]) % 31 == 0)
    assert b"".join(unpacked("deflate", body)).isdigit()


@pytest.mark.parametrize("form", FORMS)
def test_a_body_cut_off_anywhere_is_incomplete(form: str) -> None:
    body = FORMS[form](b"hello, hello, hello")
    for end in range(1, len(body)):
        with pytest.raises(CorruptBody, match="^ended early$"):
            unpacked(form, body[:end])


def test_no_body_at_all_is_complete() -> None:
    assert unpacked("gzip") == []


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_the_members_of_a_gzip_body_are_joined(size: int) -> None:
    body = b"".join(gzip.compress(text) for text in (b"one, ", b"", b"two, ", b"three"))
    pieces = (body[at : at + size] for at in range(0, len(body), size))
    assert b"".join(unpacked("gzip", *pieces)) == b"one, two, three"


def test_a_member_may_follow_one_of_a_mebibyte() -> None:
    assert b"".join(unpacked("gzip", gzip.compress(bytes(MIB)) + gzip.compress(b"x"))) == bytes(MIB) + b"x"


def test_a_gzip_body_has_4096_members_at_most() -> None:
    member = gzip.compress(b"x")
    assert b"".join(unpacked("gzip", member * 4096)) == b"x" * 4096
    with pytest.raises(CorruptBody, match="^has more than 4096 members$"):
        unpacked("gzip", member * 4097)


def test_bytes_after_a_gzip_body_are_an_error_and_after_a_deflate_body_ignored() -> None:
    with pytest.raises(CorruptBody, match="^is broken: "):
        unpacked("gzip", gzip.compress(b"hi") + b"rest")
    assert b"".join(unpacked("deflate", zlib.compress(b"hi") + b"rest", b"more")) == b"hi"


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_bytes_in_no_coding_are_broken(coding: str) -> None:
    with pytest.raises(CorruptBody, match="^is broken: "):
        unpacked(coding, b'{"a": 1}')


@pytest.mark.parametrize("coding", ["br", "identity", "", "GZIP", "gzip, gzip"])
def test_any_other_coding_is_unknown(coding: str) -> None:
    with pytest.raises(UnknownCoding):
        Unpacker(coding)
