"""Reads the blocks of `gateway.yaml` into the dataclasses of `model.py`.

Works on a tree whose shape has been checked; checks here what a schema cannot express (ports, legacy addresses,
amounts). Providers and mappings are read by `build.py`.
"""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from tollgate.config.fields import Fields, fields_of
from tollgate.config.load import List, Map, Node, Scalar, items_of, one_or_many, text_in
from tollgate.config.model import Gateway
from tollgate.config.prices import read_decimal
from tollgate.config.reading import Reading
from tollgate.config.secrets import REFERENCE, Secrets, misplaced
from tollgate.config.settings import (
    Credits,
    Dashboard,
    EngineName,
    Fetch,
    Plugin,
    Proxies,
    Retry,
    Server,
    Store,
    Timeouts,
)


def read_settings(reading: Reading, root: Map, folder: Path, secrets: Secrets) -> Gateway:
    """The settings alone, without providers and mappings."""
    top = Fields(root)
    return Gateway(
        root=folder,
        server=_server(reading, Fields(top.get("server"))),
        timeouts=Timeouts(**fields_of(Timeouts, top.get("timeouts"))),
        retry=Retry(**fields_of(Retry, top.get("retry"))),
        credits=_credits(reading, Fields(top.get("credits"))),
        store=_store(reading, root, folder, secrets),
        fetch=Fetch(**fields_of(Fetch, top.get("fetch"))),
        dashboard=Dashboard(**fields_of(Dashboard, top.get("dashboard"))),
        secrets_dir=secrets_dir(root, folder),
        aliases=MappingProxyType(
            {name: str(node.value) for name, node in top.nodes("aliases").items() if isinstance(node, Scalar)}
        ),
        plugins=tuple(
            Plugin(name, node.mark) for node in one_or_many(top.get("plugins")) if (name := text_in(node)) is not None
        ),
    )


def secrets_dir(root: Map, folder: Path) -> Path:
    """The folder of secret files, as the gateway file sets it."""
    return folder / Fields(root).text("secrets_dir", str(Gateway(folder).secrets_dir))


def _store(reading: Reading, root: Map, folder: Path, secrets: Secrets) -> Store:
    """The `store` block, or the address written in its place. That address is the only secret that the gateway file
    may name."""
    written, at = root.get("store"), Fields(root.get("store"))
    store = Store(**fields_of(Store, written))
    _check_days(reading, at, store)
    url = text_in(written) or store.url
    reference = store_reference(root)
    allowed = None
    if reference is not None:
        name, node, allowed = reference
        url = secrets.get(name) or ""
        if name not in secrets.names():
            hint = "an environment variable or a file in secrets_dir"
            reading.report(node, f"secret {name} is not set", allowed, hint=hint)
    reading.problems += [each for each in misplaced(reading.document, root, frozenset()) if each.path != allowed]
    # an absolute path stays as it is
    return replace(store, url=url, directory=folder / store.directory, usage_directory=folder / store.usage_directory)


def _check_days(reading: Reading, at: Fields, store: Store) -> None:
    """Usage files must be kept as long as rows: a deleted file would be written again from its rows."""
    files = at.get("keep_files_days")
    if files is None or not store.keep_files_days or 0 < store.keep_rows_days <= store.keep_files_days:
        return
    wanted = "store.keep_rows_days too, at most as many"
    if store.keep_rows_days:
        wanted = f"{store.keep_rows_days} or more, as store.keep_rows_days"
    reading.report(
        files,
        f"found {store.keep_files_days}, wanted {wanted}",
        "store.keep_files_days",
        hint="a file that is gone is written anew from the store's rows",
    )


def store_reference(root: Map) -> tuple[str, Node, str] | None:
    """`(name, node, path)` when the store's address is a `$secret.NAME`."""
    store = root.get("store")
    node, path = (store.get("url"), "store.url") if isinstance(store, Map) else (store, "store")
    match = REFERENCE.fullmatch(text_in(node) or "")
    return (match[1], node, path) if match and node else None


def _server(reading: Reading, at: Fields) -> Server:
    server = Server(**fields_of(Server, at.node))
    _check_ports(reading, at.get("bind"))
    _check_legacy(reading, at.list("legacy_base_urls"))
    bodies = at.get("max_bodies_bytes")
    if bodies is not None and 0 < server.max_bodies_bytes < server.max_body_bytes:
        reading.report(
            bodies,
            f"found {server.max_bodies_bytes}, wanted {server.max_body_bytes} or more, as server.max_body_bytes",
            "server.max_bodies_bytes",
            hint="that bounds one body, this all of them together",
        )
    base = at.get("base_url")
    base_url = server.base_url.rstrip("/")
    if base is not None and base_url.endswith("/v1"):
        reading.report(
            base, f'found "{base_url}", wanted the address without /v1', "server.base_url", hint="clients add it"
        )
    if base is None and at.get("bind") is not None:
        base_url = _address_of(server.bind) or base_url
    return replace(
        server,
        base_url=base_url,
        legacy_base_urls=tuple(url.rstrip("/") for url in server.legacy_base_urls),
        trusted_proxies=_trusted_proxies(reading, at.list("trusted_proxies")),
        cors_origins=tuple(origin.lower().rstrip("/") for origin in server.cors_origins),
    )


def _check_ports(reading: Reading, bind: Node | None) -> None:
    for index, node in enumerate(one_or_many(bind)):
        place = text_in(node) or ""
        port = place.rpartition(":")[2] or "0"
        if not place.startswith("unix:") and int(port) > 65535:
            reading.report(
                node,
                f"found port {port}, wanted 0 to 65535",
                f"server.bind[{index}]" if isinstance(bind, List) else "server.bind",
            )


def _check_legacy(reading: Reading, legacy: List | None) -> None:
    for index, node in enumerate(items_of(legacy)):
        address = (text_in(node) or "").rstrip("/")
        if address and not address.endswith("/v1"):
            path = f"server.legacy_base_urls[{index}]"
            reading.report(node, f'found "{address}", wanted one that ends in /v1', path, hint=f"{address}/v1")


def _trusted_proxies(reading: Reading, listed: List | None) -> Proxies:
    found: list[IPv4Network | IPv6Network | Literal["unix"]] = []
    for index, node in enumerate(items_of(listed)):
        entry = text_in(node)
        if entry == "unix":
            found.append("unix")
        elif entry is not None:
            try:
                found.append(ip_network(entry))
            except ValueError as error:
                hint = f"of that network: {ip_network(entry, strict=False)}" if "host bits" in str(error) else ""
                reading.report(
                    node,
                    f'found "{entry}", wanted an address, a network like 10.0.0.0/8, or unix',
                    f"server.trusted_proxies[{index}]",
                    hint=hint,
                )
    return tuple(found)


def served_at(server: Server, bind: tuple[str, ...] = (), engine: EngineName | None = None) -> Server:
    """These settings with other addresses or another engine; a base URL that was derived from the old addresses is
    derived again."""
    if bind:
        made = server.base_url in (_address_of(server.bind), Server().base_url)
        server = replace(server, bind=bind, base_url=(_address_of(bind) if made else "") or server.base_url)
    return replace(server, engine=engine) if engine else server


def _address_of(bind: tuple[str, ...]) -> str:
    """The address of the first TCP bind, with this machine in place of a wildcard host."""
    for place in bind:
        if not place.startswith("unix:"):
            host, _, port = place.rpartition(":")
            return f"http://{'127.0.0.1' if host in ('', '*', '0.0.0.0', '[::]') else host}:{port}"
    return ""


def _credits(reading: Reading, at: Fields) -> Credits:
    amounts = {
        name: value
        for name in ("minimum", "hold_cap")
        if (node := at.get(name)) is not None and (value := read_decimal(reading, node, f"credits.{name}")) is not None
    }
    rates = dict(Credits().rates)
    for currency, node in at.nodes("rates").items():
        path = f"credits.rates.{currency}"
        value = read_decimal(reading, node, path)
        if value is None:
            continue
        if value == 0:
            reading.report(node, "found a rate of 0, wanted USD for one unit", path)
        elif currency == "USD" and value != 1:
            reading.report(node, f"found {value}, wanted 1: credits are USD", path)
        else:
            rates[currency] = value
    return Credits(**amounts, rates=MappingProxyType(rates))
