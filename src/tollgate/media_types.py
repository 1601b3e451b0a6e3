"""Detects the media type of a file from its first bytes, because declared types are often wrong and upstreams check."""

from __future__ import annotations

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"BM", "image/bmp"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}


def type_by_bytes(data: bytes) -> str | None:
    """The media type for a known signature: `b"%PDF-1.7"` -> `"application/pdf"`. Needs at most twelve bytes."""
    if data[:4] == b"RIFF":
        return _RIFF.get(data[8:12])
    return next((mime for signature, mime in _SIGNATURES if data.startswith(signature)), None)
