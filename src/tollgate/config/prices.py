"""Reads a `price:` block: exact decimals with their digits as written, tiers, service tiers, windows.

A price may be quoted or not: the loader keeps its digits in both cases. A problem is reported for what is not an exact
decimal, is below zero, or is written in a form that is hard to check. How prices are applied is `tariff.py`; whether
they look right is `price_warnings.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from types import MappingProxyType

from tollgate.config.fields import Fields, fields_of, read_only
from tollgate.config.load import List, Map, Node, Scalar, plain
from tollgate.config.pricing import PRICES, VOLUME_CONDITIONS, PriceWindow, Pricing, Volume
from tollgate.config.reading import Reading
from tollgate.money import decimal_of, decimal_text

_MAX_WHOLE = 12
_MAX_PLACES = 20
"""Digits before and after the point; more are a mistake or rounding noise of binary fractions."""
_WITH_CURRENCY = re.compile(r"[A-Z]{3}\s*[0-9.]+|[0-9.]+\s*([A-Z]{3}|[$€¥])")
_PLAIN = re.compile(r"\d+(\.\d+)?\Z")


def read_decimal(reading: Reading, node: Node, path: str, *, empty: bool = False) -> Decimal | None:
    """The exact decimal at `node`; None, with a problem reported, if it is not one. `empty`: "" means no price."""
    if not isinstance(node, Scalar):
        return None
    text = node.text.strip()
    if empty and not text:
        return None
    shown = f'"{text[:40]}"' if node.quoted else text[:40]
    wanted = 'wanted an exact decimal such as "0.30"'
    try:
        value = decimal_of(text)
    except ValueError:
        reading.report(node, f"found {shown}, {wanted}", path, hint=_cure(text))
        return None
    if value < 0:
        reading.report(node, f"found {shown}, wanted zero or more", path)
    elif not _PLAIN.match(text):
        reading.report(node, f"found {shown}, {wanted}", path, hint=f'write "{decimal_text(value)}"')
    elif len(text) > 1 and text[0] == "0" and text[1] != ".":
        least = f'"0.{text[1:]}" or ' if "." not in text else ""
        reading.report(
            node, f"found {shown}, wanted no zero in front", path, hint=f'write {least}"{decimal_text(value)}"'
        )
    elif len(text.partition(".")[0]) > _MAX_WHOLE or len(text.partition(".")[2]) > _MAX_PLACES:
        most = f"{_MAX_WHOLE} digits before and {_MAX_PLACES} after the point"
        reading.report(node, f"found {shown}, wanted at most {most}", path)
    else:
        return value
    return None


def read_pricing(reading: Reading, node: Map, path: str) -> Pricing:
    """The whole block."""
    block = Fields(node)
    prices, written = _prices(reading, node, path)
    volumes = tuple(_volume(reading, row, f"{path}.volumes[{i}]") for i, row in _rows(block.list("volumes")))
    tiers: dict[str, Mapping[str, Decimal]] = {
        name: MappingProxyType(_prices(reading, row, f"{path}.service_tiers.{name}")[0])
        for name, row in block.nodes("service_tiers").items()
        if isinstance(row, Map)
    }
    windows = tuple(
        PriceWindow(
            prices=MappingProxyType(_prices(reading, inner, f"{path}.windows[{i}].prices")[0]),
            **fields_of(PriceWindow, row),
        )
        for i, row in _rows(block.list("windows"))
        if (inner := Fields(row).map("prices")) and Fields(row).text("start") and Fields(row).text("end")
    )
    multipliers = {
        name: value
        for name, factor in block.nodes("multipliers").items()
        if (value := read_decimal(reading, factor, f"{path}.multipliers.{name}")) is not None
    }
    return Pricing(
        prices=MappingProxyType(prices),
        written=MappingProxyType(written),
        volumes=volumes,
        service_tiers=read_only(tiers),
        windows=windows,
        multipliers=read_only(multipliers),
        source=MappingProxyType({key: _as_written(value, key) for key, value in node.entries.items() if key != "why"}),
        **fields_of(Pricing, node),
    )


def _prices(reading: Reading, node: Map, path: str) -> tuple[dict[str, Decimal], dict[str, str]]:
    """The prices of a row by name, and their digits as written, also for those that are not decimals."""
    prices: dict[str, Decimal] = {}
    written: dict[str, str] = {}
    for name in PRICES:
        field = node.entries.get(name)
        if not isinstance(field, Scalar) or field.value is None:
            continue
        written[name] = field.text.strip()
        value = read_decimal(reading, field, f"{path}.{name}", empty=True)
        if value is not None:
            prices[name] = value
    return prices, written


def _volume(reading: Reading, node: Map, path: str) -> Volume:
    prices, written = _prices(reading, node, path)
    row = Volume(MappingProxyType(prices), MappingProxyType(written), **fields_of(Volume, node))
    row = replace(row, word=row.word or None)
    if not written and not node.incomplete:
        reading.report(node, "found a tier without a price, wanted at least one", path)
    for side in ("prompt", "completion"):
        low, high = getattr(row, f"min_{side}_tokens"), getattr(row, f"max_{side}_tokens")
        least = "more than" if side == "prompt" else "at least"  # as `tariff.py` reads them: exclusive, inclusive
        if low is not None and high is not None and (low >= high if side == "prompt" else low > high):
            bound = f"max_{side}_tokens"
            message = f"found {high}, wanted {least} min_{side}_tokens ({low})"
            reading.report(node.entries[bound], message, f"{path}.{bound}")
    if not node.incomplete and all(getattr(row, name) is None for name in VOLUME_CONDITIONS):
        reading.report(node, "found a tier without a bound, wanted min_prompt_tokens or another", path)
    return row


def _rows(node: List | None) -> list[tuple[int, Map]]:
    return [(i, item) for i, item in enumerate(node.items) if isinstance(item, Map)] if node else []


def _as_written(node: Node, key: str) -> object:
    if isinstance(node, Map):
        return {name: _as_written(child, name) for name, child in node.entries.items()}
    if isinstance(node, List):
        return [_as_written(child, "") for child in node.items]
    return node.text.strip() if key in PRICES or key == "price" or isinstance(node.value, Decimal) else plain(node)


def _cure(text: str) -> str:
    if "," in text:
        return "use a point, and no separators"
    if any(mark in text for mark in "“”„‘’"):
        return 'type the quotation marks anew: "0.30"'
    if text.startswith(("$", "€", "¥")) or _WITH_CURRENCY.fullmatch(text):
        return "write the number alone; `currency` says the rest"
    if text.endswith("%"):
        return 'write a half as "0.5"'
    if text.lower() in ("free", "none"):
        return 'write "0" for free'
    return ""
