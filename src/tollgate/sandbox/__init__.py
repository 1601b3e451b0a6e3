"""A model provider for tests: it speaks every protocol, echoes its input and fails on request.

Two forms of one thing: a `Sandbox` is an in-process upstream (`await sandbox(method, path, headers, body)` gives
status, headers and an iterator of bytes; `app` is one that is ready), `asgi(sandbox)` is the same as a server. Answers
are deterministic (`hi` gives `You said: hi`); only ids and times differ. Token counts follow `counting.py`; behaviour
on request follows the markers, which docs/sandbox.md shows to users:

    tokens=N            exact length of the answer       pace=20ms delay=2s duration=2s   slowness
    tool tools=N preface think redacted                  what the answer is made of
    error=STATUS error-in-200 stream-error=N html        failures that are reported
    cut=N cut-mid=N stall=N reset bad-utf8               failures that are not
    empty refuse finish=REASON fail=MESSAGE              odd ends
    no-usage late-usage *-tokens=N                       what usage says

`controls.MARKERS` has each with its meaning. Imports: only `tollgate.sse`, `tollgate.remembered`, orjson and the
standard library, so that it starts with nothing else in place.
"""

from tollgate.sandbox.asgi import asgi
from tollgate.sandbox.controls import MARKERS
from tollgate.sandbox.service import MODELS, Sandbox

__all__ = ["MARKERS", "MODELS", "Sandbox", "app", "asgi"]

app = Sandbox()
"""The sandbox of this process: what `app://sandbox/...` reaches."""
