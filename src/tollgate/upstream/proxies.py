"""Selects the proxy for a host: the provider's own, or the environment's (read at the start)."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from tollgate.errors import UpstreamUnreachable


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy, used with CONNECT for https and with absolute URLs for http."""

    host: str
    port: int
    authorization: str = field(default="", repr=False)


def parse_proxy(url: str) -> Proxy:
    """Parse `http://user:pass@host:3128`. Raises `UpstreamUnreachable` for any other scheme or form."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or 80
    except ValueError:  # its message quotes the URL, which may contain a password
        raise UpstreamUnreachable(
            "a proxy must be http://host:port, found one without a usable host and port"
        ) from None
    if parts.scheme != "http" or not parts.hostname:
        raise UpstreamUnreachable(f"a proxy must be http://host:port, found one with scheme {parts.scheme!r}")
    authorization = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    return Proxy(parts.hostname, port, authorization)


class ProxyRules:
    """The rules of HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY (names, `.suffix`, networks, `*`). Lower-case names
    of variables take precedence."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        def read(name: str) -> str:
            return environ.get(name, "") or environ.get(name.upper(), "")

        everything = read("all_proxy")
        # under CGI, HTTP_PROXY is set by a request header: only the lower-case name is trusted there
        plain = environ.get("http_proxy", "") if "REQUEST_METHOD" in environ else read("http_proxy")
        self._by_scheme = {"http": plain or everything, "https": read("https_proxy") or everything}
        self._exceptions = [item.strip().lower() for item in read("no_proxy").split(",") if item.strip()]

    def find(self, scheme: str, host: str, port: int) -> Proxy | None:
        """The environment's proxy for this host; None if there is none, and always for loopback addresses."""
        url = self._by_scheme.get(scheme, "")
        if not url or self._excepted(host.lower().rstrip("."), port):
            return None
        return parse_proxy(url)

    def _excepted(self, host: str, port: int) -> bool:
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            address = None
        if host == "localhost" or (address is not None and address.is_loopback):
            return True
        return any(_matches(item, host, port, address) for item in self._exceptions)


def _matches(item: str, host: str, port: int, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> bool:
    if item == "*":
        return True
    if address is not None:
        try:
            if address in ipaddress.ip_network(item.strip("[]"), strict=False):
                return True
        except ValueError:
            pass  # not a network: a name, or a name with a port
    name, _, wanted = item.rpartition(":")
    if name and wanted.isdigit() and not name.endswith(":"):
        if int(wanted) != port:
            return False
        item = name.strip("[]")
    item = item.lstrip("*").lstrip(".")
    return host == item or host.endswith("." + item)
