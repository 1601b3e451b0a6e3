"""Uploads: an object of fields as multipart/form-data, for providers that accept nothing else, or one file as a body.

Text, numbers and booleans become fields, a list becomes the field several times, and an object `{file, name, type}`
becomes a file part; `file` is base64 or a data URL.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Mapping

from tollgate.forms import field_text, form_fields

_DATA_URL = re.compile(r"data:([^;,]*)(?:;[^,]*)?,", re.IGNORECASE)


def new_boundary() -> str:
    """A separator of the fields of an upload that no field contains."""
    return "tollgate-" + secrets.token_hex(16)


def multipart_type(boundary: str) -> str:
    """The content type of an upload with this boundary."""
    return f"multipart/form-data; boundary={boundary}"


def encode_form(fields: Mapping[str, object], boundary: str = "") -> tuple[bytes, str]:
    """The body and its content type; with a new boundary, if none is given. ValueError when a file part's content is
    not base64."""
    boundary = boundary or new_boundary()
    out = bytearray()
    for name, item in form_fields(fields):
        out += f'--{boundary}\r\nContent-Disposition: form-data; name="{_quoted(name)}"'.encode()
        if isinstance(item, Mapping) and "file" in item:
            data, mime = _content(name, item)
            filename = str(item.get("name") or name)
            out += f'; filename="{_quoted(filename)}"\r\nContent-Type: {_line(mime)}\r\n\r\n'.encode()
            out += data
        else:
            out += b"\r\n\r\n" + field_text(item).encode()
        out += b"\r\n"
    out += f"--{boundary}--\r\n".encode()
    return bytes(out), multipart_type(boundary)


def encode_file(content: object) -> tuple[bytes, str]:
    """The bytes of a file that is the whole body, and its type. It is given as base64, as a data URL, or as
    `{file, type}` like in a form. ValueError when it is none of these."""
    return _content("the file", content if isinstance(content, Mapping) and "file" in content else {"file": content})


def _content(name: str, part: Mapping[str, object]) -> tuple[bytes, str]:
    content = part["file"]
    if not isinstance(content, str):
        raise ValueError(f"{name} holds no file content")
    match = _DATA_URL.match(content)
    mime = str(part.get("type") or (match[1] if match else "") or "application/octet-stream")
    try:
        return base64.b64decode(content[match.end() :] if match else content, validate=True), mime
    except binascii.Error:
        raise ValueError(f"{name} is neither base64 nor a data URL") from None


def _quoted(text: str) -> str:
    """A name inside a header's quotes: line ends and quotes would end it early."""
    return _line(text).replace('"', "%22")


def _line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ")
