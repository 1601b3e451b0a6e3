"""Parses the text fields of account and key forms: expiry, models, endpoints, addresses, amounts and rates.

Every parser raises `BadRequest` with the text, what is expected, and the name of the field.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from ipaddress import ip_network

from tollgate.errors import BadRequest
from tollgate.ledger import KEY_ENDPOINTS
from tollgate.money import PLACES, decimal_of, decimal_text, round_cost

_SPAN = re.compile(r"([1-9][0-9]{0,4})([mhdwy])\Z")
_UNITS = {
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
    "y": timedelta(days=365),
}
_MOST_GLOBS, _LONGEST_GLOB = 500, 200
"""Every request is matched against its key's list: 140,000 entries, which fit into a form, would block the event loop
for five seconds."""
_MOST_PER_MINUTE = 1_000_000_000
_LONGEST_NUMBER = 20
"""Digits of a rate, zeros in front included: Python refuses to read thousands."""
_MOST_ADDRESSES = 500
QUOTED = 100
"""Characters of a text that an error quotes: a browser takes seconds to break a quarter of a million into lines."""
_MAPPED_BITS = 96
"""Length of the prefix of an IPv4-mapped IPv6 address (RFC 4291, 2.5.5.2)."""


def read_expiry(text: str, now: datetime | None = None) -> datetime | None:
    """When a key expires; None for never. Accepts "30d" (m, h, d, w, y from now), "2027-01-31" (the last valid day, in
    UTC), an ISO time, and "never"."""
    now = now or datetime.now(UTC)
    entered = text.strip().lower()
    if entered in ("", "never"):
        return None
    try:
        if (span := read_span(entered)) is not None:
            return (now + span).replace(microsecond=0)
        moment = datetime.fromisoformat(text.strip())
        if _is_day(text.strip()):
            moment += timedelta(days=1)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        raise BadRequest(
            f'expiry is "{text[:QUOTED]}", which is after the year 9999; wanted an earlier one, or never', "expires"
        ) from None
    except ValueError:
        raise BadRequest(
            f'expiry is "{text[:QUOTED]}", wanted a span such as 30d, a date such as 2027-01-31, or never', "expires"
        ) from None
    if moment <= now:
        raise BadRequest(f'expiry is "{text[:QUOTED]}", which is over already', "expires")
    return moment


def _is_day(text: str) -> bool:
    """Whether an ISO time is only a day: 2027-01-31, 20270131 or 2027-W04-7."""
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def read_span(text: str) -> timedelta | None:
    """A duration such as "30d" (m, h, d, w, y); None for any other text."""
    span = _SPAN.match(text.strip().lower())
    return int(span[1]) * _UNITS[span[2]] if span else None


def read_models(text: str) -> tuple[str, ...] | None:
    """The models that a key may use, as globs: "acme/*, !acme/old*" ("!" excludes). None is every model ("" or "all"),
    () is no model ("none")."""
    entered = text.strip()
    if entered.lower() in ("", "all", "*"):
        return None
    if entered.lower() == "none":
        return ()
    parts = tuple(_words(entered))
    if len(parts) > _MOST_GLOBS or any(len(part) > _LONGEST_GLOB for part in parts):
        raise BadRequest(
            f"models has {len(parts)} entries, wanted at most {_MOST_GLOBS} of at most {_LONGEST_GLOB} characters",
            "models",
        )
    if "!" in parts:
        raise BadRequest(
            f'models is "{entered[:QUOTED]}", wanted the excluded model directly after its !, such as !acme/old',
            "models",
        )
    return parts


def read_endpoints(text: str) -> tuple[str, ...] | None:
    """The endpoints that a key may be used for, such as "chat, embeddings". None is every endpoint ("" or "all")."""
    entered = _listed(text, "endpoints")
    if unknown := [each for each in entered if each not in KEY_ENDPOINTS]:
        raise BadRequest(
            f'endpoints has "{unknown[0][:QUOTED]}", wanted all, or some of {", ".join(KEY_ENDPOINTS)}', "endpoints"
        )
    return tuple(name for name in KEY_ENDPOINTS if name in entered) or None


def read_addresses(text: str) -> tuple[str, ...] | None:
    """The addresses that a key may be used from: "203.0.113.7, 10.0.0.0/8, 2001:db8::/32". None is any address ("" or
    "all"). IPv4-mapped IPv6 addresses and networks become IPv4 ones."""
    entered = _listed(text, "addresses")
    if len(entered) > _MOST_ADDRESSES:
        raise BadRequest(f"addresses has {len(entered)} entries, wanted at most {_MOST_ADDRESSES}", "addresses")
    return tuple(dict.fromkeys(_network(each) for each in entered)) or None


def _network(entered: str) -> str:
    """An address or network in canonical form: "::ffff:10.0.0.0/104" -> "10.0.0.0/8", "192.0.2.1/32" -> "192.0.2.1"."""
    try:
        network = ip_network(entered)
    except ValueError as error:
        of = f"; that network is {ip_network(entered, strict=False)}" if "host bits" in str(error) else ""
        raise BadRequest(
            f'addresses has "{entered[:QUOTED]}", wanted addresses and networks like 192.0.2.1 or 10.0.0.0/8{of}',
            "addresses",
        ) from None
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is not None and network.prefixlen >= _MAPPED_BITS:
        network = ip_network((mapped, network.prefixlen - _MAPPED_BITS))
    return str(network.network_address if network.prefixlen == network.max_prefixlen else network)


def _listed(text: str, what: str) -> list[str]:
    """The lower-case words of a list separated by commas or blanks; [] for "all" and for an empty text, which mean no
    restriction. A text of commas only is an error, because it was probably not meant as no restriction."""
    entered = text.strip().lower()
    if entered in ("", "all", "*"):
        return []
    listed = _words(entered)
    if not listed:
        raise BadRequest(f'{what} is "{entered[:QUOTED]}", wanted a list, or all', what)
    return listed


def _words(entered: str) -> list[str]:
    return [word for word in re.split(r"[,\s]+", entered) if word]


def read_amount(text: str, what: str = "amount") -> Decimal:
    """An exact amount of credits, with or without a leading $. More decimal places than are stored are an error,
    because they would be rounded away."""
    try:
        amount = decimal_of(text.strip().removeprefix("$").replace("_", ""))
    except ValueError as error:
        raise BadRequest(f"{what}: {error}", what) from None
    if round_cost(amount) != amount:
        given = decimal_text(amount)
        places = len(given.partition(".")[2])
        raise BadRequest(
            f"{what} is {given}, which has {places} decimal places, wanted at most the {PLACES} that are kept", what
        )
    return amount


def read_rate(text: str, what: str) -> int | None:
    """A limit per minute or of concurrent requests; None (no limit) for an empty text."""
    entered = text.strip().replace("_", "")
    if not entered:
        return None
    fits = entered.isascii() and entered.isdigit() and len(entered) <= _LONGEST_NUMBER
    if not fits or not 0 < int(entered) <= _MOST_PER_MINUTE:
        raise BadRequest(f'{what} is "{text[:QUOTED]}", wanted a whole number from 1 to {_MOST_PER_MINUTE:,}', what)
    return int(entered)
