"""The addresses out of answers that may be called: by image jobs, and to poll an answer.

A poll or result address from a provider's answer is called with our key in the headers, so it must have a host suffix
that the provider's file declares (`hosts: [bfl.ai]`). Everything else about a call is fixed at start.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Host:
    """One declared suffix: `bfl.ai` admits bfl.ai and all hosts below it, with https on the default port.

    `scheme` and `port` are set if the suffix has them: `http://127.0.0.1:9000` for a server of the operator's own.
    """

    name: str
    scheme: str = "https"
    port: int | None = None

    def admits(self, scheme: str, host: str, port: int | None) -> bool:
        """Whether an address with these parts is under this suffix."""
        if scheme != self.scheme or port != self.port:
            return False
        return host == self.name or (host.endswith("." + self.name) and not _is_address(self.name))

    def __str__(self) -> str:
        name = f"[{self.name}]" if ":" in self.name else self.name
        return f"{self.scheme}://{name}" + (f":{self.port}" if self.port is not None else "")


def read_host(text: str) -> Host:
    """A declared suffix: "bfl.ai", "*.bfl.ai", "http://127.0.0.1:9000". ValueError if it is invalid."""
    address = text.strip()
    parts = urlsplit(address if "://" in address else f"https://{address}")
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"{address} is no http address")
    if parts.path not in ("", "/") or parts.query or parts.fragment or parts.username is not None:
        raise ValueError(f"{address} says more than a host")
    name = (parts.hostname or "").removeprefix("*.").rstrip(".")
    if not name or "*" in name or '"' in name or ("." not in name and name != "localhost" and ":" not in name):
        raise ValueError(f"{address} is no host name, wanted one such as example.com")
    return Host(name, parts.scheme, parts.port)


def is_admitted(url: str, hosts: Iterable[Host]) -> bool:
    """Whether a URL from an answer may be called with our headers."""
    if any(character.isspace() or ord(character) < 32 or character == "\\" for character in url):
        return False
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return False
    if parts.username is not None or parts.password is not None or not host.isascii():
        return False
    if "%" in host:  # a zone may follow: [::1%.bfl.ai] ends like a name under bfl.ai
        return False
    if port == (443 if parts.scheme == "https" else 80):
        port = None
    return any(declared.admits(parts.scheme, host.lower(), port) for declared in hosts)


def origin(url: str) -> str:
    """Scheme, host and port of an address, for a log: the rest may be a secret that gives access."""
    try:
        parts = urlsplit(url)
        return str(Host(ascii(parts.hostname or "")[1:200].rstrip("'"), parts.scheme, parts.port))
    except ValueError:
        return "no address"


def _is_address(name: str) -> bool:
    return ":" in name or name.replace(".", "").isdigit()
