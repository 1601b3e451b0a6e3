"""Media types detected from the first bytes."""

import pytest

from tollgate.media_types import type_by_bytes

BEGINNINGS = {
    b"\x89PNG\r\n\x1a\n\0": "image/png",
    b"GIF89a": "image/gif",
    b"GIF8": None,
    b"%PDF-1.7": "application/pdf",
    b"II*\0": "image/tiff",
    b"RIFF\0\0\0\0WEBPVP8": "image/webp",
    b"RIFF\0\0\0\0WAVE": "audio/wav",
    b"RIFF\0\0\0\0AVI ": None,
    b"<svg": None,
    b"": None,
}


@pytest.mark.parametrize("data", BEGINNINGS)
def test_a_media_type_is_detected_from_the_first_bytes(data: bytes) -> None:
    assert type_by_bytes(data) == BEGINNINGS[data]
