"""A multipart form as parsed by a server."""

from __future__ import annotations

import base64
from email.parser import BytesParser
from email.policy import HTTP

import pytest

from tollgate.multipart import encode_form

PIXEL = b"\x89PNG\r\n\x1a\n--"


def parts(fields: dict) -> list[tuple[str, str | None, str | None, bytes]]:
    """(name, file name, content type, content) of each part of the form."""
    body, content_type = encode_form(fields)
    message = BytesParser(policy=HTTP).parsebytes(b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body)
    return [
        (
            part.get_param("name", header="content-disposition"),
            part.get_filename(),
            part["content-type"],
            part.get_payload(decode=True),
        )
        for part in message.iter_parts()
    ]


@pytest.mark.parametrize(
    ("value", "contents"),
    [
        ("a cat", [b"a cat"]),
        (1.5, [b"1.5"]),
        (True, [b"true"]),
        (["a", "b"], [b"a", b"b"]),
        ({"k": "é"}, ['{"k": "é"}'.encode()]),
        (None, []),
        ([], []),
    ],
    ids=["text", "number", "boolean", "list: a repeated field", "object: JSON", "absent", "empty list"],
)
def test_a_field_is_encoded_as_text(value, contents):
    assert parts({"x": value}) == [("x", None, None, content) for content in contents]


@pytest.mark.parametrize(
    ("part", "name", "mime"),
    [
        ({"file": base64.b64encode(PIXEL).decode()}, "image", "application/octet-stream"),
        ({"file": base64.b64encode(PIXEL).decode(), "name": "cat.png", "type": "image/png"}, "cat.png", "image/png"),
        ({"file": "data:image/png;base64," + base64.b64encode(PIXEL).decode()}, "image", "image/png"),
    ],
    ids=["base64", "named", "data URL"],
)
def test_a_file_keeps_its_bytes_name_and_type(part, name, mime):
    assert parts({"image": part}) == [("image", name, mime, PIXEL)]


def test_a_line_break_cannot_end_a_header_early():
    [(name, file, mime, _)] = parts({'x"\r\ny': {"file": "YQ==", "name": 'a"\r\nb: c', "type": "t/p\r\nd: e"}})
    assert (name, file, mime) == ("x%22  y", "a%22  b: c", "t/p  d: e")


@pytest.mark.parametrize("content", ["no base64!", 7], ids=["text", "number"])
def test_an_invalid_file_is_reported_with_its_field(content):
    with pytest.raises(ValueError, match="^image "):
        encode_form({"image": {"file": content}})
