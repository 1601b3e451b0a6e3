"""The filters that signatures are made of (digests, keyed digests, base64, percent signs, times), and names shortened
by a digest.

Pure like the others: value in, value out, and absent for what they do not work on. Texts are taken as their UTF-8
bytes; a body that is no UTF-8 comes as text with its bytes kept (`surrogateescape`), so that its digest is right.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import math
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote
from uuid import UUID

from tollgate.mapping.values import NUMBERS, List, Number, Text

ALGORITHMS = ("sha256", "sha512", "sha384", "sha1", "md5")
"""Old ones too: a signature must be the one its vendor computes."""
RSA_ALGORITHMS = (*ALGORITHMS, *(f"pss-{name}" for name in ALGORITHMS[:3]))
"""Of signatures by an RSA key: RS256 and its kin, PS256 and its kin."""
NOTATIONS = ("hex", "base64", "base64url")
"""How bytes are written; `base64url` is without padding, as in a JWT."""
ALPHABETS = ("url",)
LEAST_SHORT = 16
"""Characters of a shortened text, nine of which distinguish it from others."""
_32_DIGITS = re.compile(r"[0-9A-Fa-f]{32}\Z")
_LAST_MOMENT = 253_402_300_800
"""Seconds until the year 10000."""
_DATE_CODES = re.compile(r"(?:[^%\ud800-\udfff]|%[YmdHMSjabfyp%])*\Z", re.DOTALL)
"""What a date's format may hold: codes that mean the same everywhere, and text."""
_RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,18})?)?(?:[Zz]|[+-]\d\d:?\d\d)?)?\Z", re.ASCII
)
_HTTP_DATE = re.compile(
    r"(?:[A-Z][a-z]{2,8}, ?)?\d{1,2}[ -][A-Z][a-z]{2}[ -]\d{2,4} \d\d:\d\d:\d\d (?:GMT|UTC|[+-]\d{4})\Z", re.ASCII
)


def digest(value: Text, algorithm: Text, notation: Text = "hex") -> str | None:
    """The digest of a text: sha256, sha512, sha384, sha1, md5; written as hex, base64, base64url."""
    if type(value) is not str or algorithm not in ALGORITHMS:
        return None
    return _written(hashlib.new(algorithm, _bytes(value), usedforsecurity=False).digest(), notation)


def short(value: Text, most: Number) -> str | None:
    """A text of no more than `most` characters (16 or more): a longer one keeps its beginning and ends in a piece of
    its digest."""
    if type(value) is not str or type(most) is not int or most < LEAST_SHORT:
        return None
    if len(value) <= most:
        return value
    return f"{value[: most - 9]}_{hashlib.sha256(_bytes(value)).hexdigest()[:8]}"


def keyed(value: Text, algorithm: Text, key: Text | List, notation: Text = "hex") -> str | None:
    """The keyed digest of a text; a key that is a list is derived: its first text is the key for the second, what comes
    out the key for the third, and so on: `['TC3' ~ $secret.KEY, $day, 'service']`."""
    keys = key if type(key) is list else [key]
    if type(value) is not str or algorithm not in ALGORITHMS or not keys or any(type(one) is not str for one in keys):
        return None
    secret = _bytes(keys[0])
    for text in (*keys[1:], value):
        secret = hmac.new(secret, _bytes(text), algorithm).digest()
    return _written(secret, notation)


def rsa_signature(value: Text, algorithm: Text, key: Text, notation: Text = "base64") -> str | None:
    """The RSA signature of a text (PKCS #1 v1.5, or PSS for pss-sha256 and the like; in base64 unless said otherwise)
    by a private key in PEM; absent where the key is none.

    PSS is as a JWT has it (RFC 7518, 3.5): as much salt as digest.
    """
    if type(value) is not str or type(key) is not str or algorithm not in RSA_ALGORITHMS:
        return None
    from cryptography.hazmat.primitives import hashes  # tens of milliseconds to import, wanted by few
    from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS, PKCS1v15

    private = _private_key(key)
    if private is None:
        return None
    digested = getattr(hashes, algorithm.removeprefix("pss-").upper())()
    padding = PSS(MGF1(digested), digested.digest_size) if algorithm.startswith("pss-") else PKCS1v15()
    try:
        return _written(private.sign(_bytes(value), padding, digested), notation)
    except ValueError:  # a key too short for such a digest
        return None


@functools.lru_cache(maxsize=16)
def _private_key(pem: str) -> Any:
    """Reading one takes longer than signing with it."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(_bytes(pem), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, RSAPrivateKey) else None


def to_base64(value: Text, alphabet: Text = None) -> str | None:
    """A text in base64; with `'url'` in the alphabet of addresses and without padding, as in a JWT."""
    if type(value) is not str or alphabet not in (None, *ALPHABETS):
        return None
    return _written(_bytes(value), "base64url" if alphabet else "base64")


def uuid(value: Text) -> str | None:
    """32 hexadecimal digits, such as `$nonce`, as a UUID (RFC 9562, version 4: six of its bits are fixed)."""
    if type(value) is not str or not _32_DIGITS.match(value):
        return None
    return str(UUID(hex=value, version=4))


def percent(value: Text, safe: Text = "") -> str | None:
    """A text as it stands in an address: every byte but letters, digits, `-._~` and the safe characters is `%XX`."""
    if type(value) is not str or type(safe) is not str:
        return None
    return quote(_bytes(value), safe=safe)


def date(value: Number, format: Text) -> str | None:
    """A number of Unix seconds as a time in UTC: `%Y %m %d %H %M %S`, `%y`, `%j` (day of the year), `%p`, `%f`, English
    `%a` and `%b`."""
    if type(value) not in NUMBERS or not is_date_format(format) or not 0 <= value < _LAST_MOMENT:
        return None
    return datetime.fromtimestamp(value, UTC).strftime(format)


def seconds(value: Text | Number) -> int | None:
    """A time as whole Unix seconds: a text in RFC 3339 (in UTC where it names no zone) or as HTTP headers have it; a
    number loses what is behind its point. Milliseconds are `$.ms // 1000`."""
    if type(value) is str:
        return _moment(value)
    return int(value) if type(value) in NUMBERS and -_LAST_MOMENT < value < _LAST_MOMENT else None


@functools.lru_cache(maxsize=64)
def _moment(text: str) -> int | None:
    """Events of one stream have the same time."""
    text = text.strip()
    try:
        if _RFC_3339.match(text):
            found = datetime.fromisoformat(text.upper().replace(",", "."))
        elif _HTTP_DATE.match(text):
            found = parsedate_to_datetime(text)
        else:
            return None
        return math.floor((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        return None


def is_date_format(form: object) -> bool:
    """Whether `date` takes this format."""
    return type(form) is str and "%" in form and _DATE_CODES.match(form) is not None


def _bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a character out of JSON
        return text.encode("utf-8", "surrogatepass")


def _written(raw: bytes, notation: Any) -> str | None:
    if notation == "hex":
        return raw.hex()
    if notation == "base64":
        return base64.b64encode(raw).decode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode() if notation == "base64url" else None
