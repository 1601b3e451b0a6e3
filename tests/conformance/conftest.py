"""A real gateway in its own process, once on each HTTP engine, with the sandbox over real HTTP as its upstream."""

import pytest

from e2e.conftest import ONLY, OVER_HTTP, PATHS
from support.inprocess import write_config
from support.running import gateway, start_sandbox

ENGINES = ("hypercorn", "uvicorn")


@pytest.fixture(scope="session", params=ENGINES)
def running(tmp_path_factory, request):
    """A gateway on one engine; `.sandbox` is the address of its upstream. Models sandbox/*, remote/echo and only-*/reasoner."""
    if request.param == "uvicorn":
        pytest.importorskip("uvicorn", reason="the second engine is an extra")
    folder = tmp_path_factory.mktemp(request.param)
    base, sandbox = start_sandbox(folder)
    single = {f"only-{name}": ONLY.format(speaks=name, base=base, path=path) for name, path in PATHS.items()}
    write_config(folder, providers={"remote": OVER_HTTP.format(base=base), **single}, settings=f"server: {{engine: {request.param}, drain_seconds: 10}}\n")
    try:
        with gateway(folder) as started:
            started.sandbox = base
            yield started
    finally:
        sandbox.terminate()
        sandbox.wait(10)
