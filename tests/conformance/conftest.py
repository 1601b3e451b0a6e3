"""A gateway in its own process, once on each HTTP engine, with the sandbox over real HTTP as its upstream."""

import pytest

from e2e.conftest import gateway_with_sandbox

ENGINES = ("hypercorn", "uvicorn")


@pytest.fixture(scope="session", params=ENGINES)
def running(tmp_path_factory, request):
    """A gateway on one engine; `.sandbox` is the URL of its upstream. Models sandbox/*, remote/echo and
    only-*/reasoner."""
    folder = tmp_path_factory.mktemp(request.param)
    with gateway_with_sandbox(
        folder,
        settings=f"server: {{engine: {request.param}, drain_seconds: 10}}\n",
        store="publish_seconds: 1, apply_seconds: 0.2",
    ) as started:
        yield started
