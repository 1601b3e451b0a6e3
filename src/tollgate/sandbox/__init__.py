"""A model provider to aim at: it speaks every protocol, echoes what it is told and fails on request.

Two forms of one thing: `Sandbox()` is an in-process upstream (`await sandbox(method, path, headers, body)` gives status,
headers and an iterator of bytes), `asgi(sandbox)` the same as a server. Answers are deterministic (`hi` gives
`You said: hi`); only ids and times differ. Token counts follow `counting.py`, behaviour follows the markers of
`controls.py`, which docs/sandbox.md lists for users.

Imports: only `tollgate.sse`, orjson and the standard library, so that it starts with nothing else in place.
"""

from tollgate.sandbox.asgi import asgi
from tollgate.sandbox.controls import MARKERS
from tollgate.sandbox.service import MODELS, Sandbox

__all__ = ["MARKERS", "MODELS", "Sandbox", "asgi"]
