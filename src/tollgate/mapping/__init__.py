"""The mapping engine: operators describe a wire format in YAML, and it runs as compiled Python.

`__all__` is what requests need of it. A file is compiled by `compiler.py`; whole documents are converted by
`convert.py`, streams by `streams/`. Provider files are compiled by `provider/` and `images/`, which use `edits/` and
`plugins.py`; the commands use `explain.py` and `examples.py`.
"""

from tollgate.mapping.compiler import CompiledMapping, compile_mapping
from tollgate.mapping.context import Context
from tollgate.mapping.convert import (
    convert_error,
    convert_request,
    convert_response,
    holds,
    request_from_hub,
    request_to_hub,
    response_from_hub,
    response_to_hub,
)
from tollgate.mapping.examples import run_examples
from tollgate.mapping.failures import MappingFailure, Refused
from tollgate.mapping.reply_headers import ReplyHeaders
from tollgate.mapping.streams.converter import Out, StreamConverter
from tollgate.mapping.streams.tap import Tap, tap_response, tap_usage
from tollgate.mapping.streams.whole import as_written, event_and_name, stream_from_hub

__all__ = [
    "CompiledMapping",
    "Context",
    "MappingFailure",
    "Out",
    "Refused",
    "ReplyHeaders",
    "StreamConverter",
    "Tap",
    "as_written",
    "compile_mapping",
    "convert_error",
    "convert_request",
    "convert_response",
    "event_and_name",
    "holds",
    "request_from_hub",
    "request_to_hub",
    "response_from_hub",
    "response_to_hub",
    "run_examples",
    "stream_from_hub",
    "tap_response",
    "tap_usage",
]
