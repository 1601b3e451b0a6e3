"""Which HTTP server the settings ask for; how both serve: test_serving.py and conformance/."""

import sys

import pytest

from tollgate.config.model import Server
from tollgate.engines import engine_of
from tollgate.errors import TollgateError


def test_an_engine_that_is_not_installed_is_told_before_anything_is_made(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "tollgate.engines.uvicorn", raising=False)
    with pytest.raises(TollgateError, match=r"server\.engine is uvicorn, and uvicorn is not installed: install tollgate\[uvicorn\]"):
        engine_of(Server(engine="uvicorn"))
