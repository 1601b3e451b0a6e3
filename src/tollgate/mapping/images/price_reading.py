"""Reads and compiles the `price:` block of an image model."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tollgate.config.fields import Fields
from tollgate.config.load import Map, Node, Scalar, items_of
from tollgate.mapping.http_calls import CallPieces, CallRead
from tollgate.mapping.images.price import Factor, ImagePrice, Line, ReportedCost

if TYPE_CHECKING:
    from tollgate.config.model import Model


def read_price(pieces: CallPieces, image: Map | None, path: str, model: Model) -> ImagePrice | None:
    """The price of an image model. A model without one is a mistake, so that nothing is free by accident."""
    node = image.get("price") if image is not None else None
    if image is None or not isinstance(node, Map):
        hint = 'price: {price: "0.03"}; "0" is free'
        if image is None or not image.incomplete:  # else it may have been removed, and reported
            pieces.mistake(model.mark, "found no price, wanted one", f"{path}.price", hint)
        return None
    path = f"{path}.price"
    at = Fields(node)
    price = pieces.decimal(node.get("price"), f"{path}.price")
    if price is None:
        if node.get("price") is None and not node.incomplete:
            pieces.mistake(node, "found no `price`, wanted what is shown and what a miss costs", path)
        return None
    by = _templates(pieces, node.get("by"))
    table = node.get("table")
    if (table is None) != (node.get("by") is None):
        pieces.mistake(node, "`by` and `table` need each other", path)
    size = _templates(pieces, node.get("size"))
    return ImagePrice(
        price=price,
        currency=at.text("currency", "USD"),
        unit=at.integer("unit", 1),
        per="megapixel" if at.text("per") == "megapixel" else "image",
        pixels=at.integer("pixels", 1_000_000),
        whole=at.boolean("whole", False),
        further=pieces.decimal(node.get("further"), f"{path}.further"),
        cases=_cases(pieces, node.get("cases"), f"{path}.cases"),
        by=by,
        table=_table(pieces, table, f"{path}.table", len(by)) if isinstance(table, Map) and by else None,
        lines=_lines(pieces, node.get("lines"), f"{path}.lines"),
        reported=_reported_cost(pieces, node.get("told"), f"{path}.told"),
        times=_times(pieces, node.get("times"), f"{path}.times"),
        asked=pieces.figure(node.get("asked"), f"{path}.asked"),
        bill=pieces.figure(image.get("bill"), f"{path.removesuffix('.price')}.bill"),
        size=(size[0], size[1]) if len(size) == 2 else None,
        refuse=at.text("miss") == "refuse",
    )


def _cases(pieces: CallPieces, node: Node | None, path: str) -> tuple[tuple[CallRead, Decimal], ...]:
    return tuple(
        (holds, price)
        for item in _maps(node)
        if (holds := pieces.condition(item.get("when")))
        and (price := pieces.decimal(item.get("price"), path)) is not None
    )


def _lines(pieces: CallPieces, node: Node | None, path: str) -> tuple[Line, ...]:
    return tuple(
        Line(count, price, Fields(item).integer("unit", 1))
        for item in _maps(node)
        if (count := pieces.figure(item.get("count"), f"{path}.count"))
        and (price := pieces.decimal(item.get("price"), path)) is not None
    )


def _reported_cost(pieces: CallPieces, node: Node | None, path: str) -> ReportedCost | None:
    at = Fields(node)
    amount = pieces.figure(at.get("amount"), f"{path}.amount")
    return ReportedCost(amount, Decimal(at.integer("unit", 1))) if amount is not None else None


def _times(pieces: CallPieces, node: Node | None, path: str) -> tuple[Factor, ...]:
    return tuple(
        Factor(count, Decimal(Fields(item).integer("unit", 1)))
        for item in _maps(node)
        if (count := pieces.figure(item.get("count"), f"{path}.count"))
    )


def _table(pieces: CallPieces, node: Map, path: str, depth: int) -> dict[str, Any]:
    """Nested prices; each level has the values of one entry of `by` as keys."""
    found: dict[str, Any] = {}
    for key, child in node.entries.items():
        if depth > 1 and isinstance(child, Map):
            found[key] = _table(pieces, child, f"{path}.{key}", depth - 1)
        elif depth == 1 and isinstance(child, Scalar):
            price = pieces.decimal(child, f"{path}.{key}")
            if price is not None:
                found[key] = price
        else:
            pieces.mistake(
                child,
                f"wanted {'a price' if depth == 1 else 'a map'}: the table is nested as `by` says",
                f"{path}.{key}",
            )
    return found


def _templates(pieces: CallPieces, node: Node | None) -> tuple[CallRead, ...]:
    """The templates of a list; a wrong one is noted and left out."""
    return tuple(read for item in items_of(node) if (read := pieces.template(item)))


def _maps(node: Node | None) -> list[Map]:
    return [item for item in items_of(node) if isinstance(item, Map)]
