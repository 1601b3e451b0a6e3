"""What is measured: the gateway on either server, a bare asyncio proxy, and others where they are installed.

Each target is a started process with a port and a key, pointed at the mock upstream. Configuration goes into a
temporary folder.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import random
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from process import Started, port_of, start, wait_for

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parent / "src"
MODELS = 1000
"""How many models the gateway's catalog has."""


@dataclass
class Target:
    """A running server to load. `converts`: it serves what a plain proxy cannot. `models`: what it calls ours."""

    name: str
    started: Started
    port: int
    key: str = ""
    converts: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)
    start_seconds: float | None = None


def gateway(
    folder: Path,
    upstream: int,
    engine: str,
    *,
    shipped: bool = False,
    secrets: dict[str, str] | None = None,
    python: str = sys.executable,
    measured: bool = True,
) -> Target:
    """Tollgate with the bench's providers, its ledger on; `shipped`: and with all providers it comes with. Run by
    `python`, an interpreter that has what Tollgate needs. Its start can be compared with others' if it is
    `measured`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "providers").mkdir(exist_ok=True)
    files = json.dumps(["providers/*.yaml", *([f"{HERE.parent}/providers/*.yaml"] if shipped else [])])
    (folder / "gateway.yaml").write_text(
        f"server:\n  engine: {engine}\n  base_url: http://127.0.0.1\nstore: {{directory: var, usage_directory: "
        f"usage}}\nproviders: {files}\n"
    )
    price = 'price: {prompt: "0.01", completion: "0.02", unit: 1000000, currency: USD}'
    (folder / "providers" / "bench.yaml").write_text(
        f"provider: bench\nurl: http://127.0.0.1:{upstream}/v1\nspeaks: {{chat: /chat/completions, embeddings: "
        f"/embeddings}}\n"
        f'headers: {{Authorization: "Bearer {{{{ $secret.BENCH_UPSTREAM_KEY }}}}"}}\nmodels:\n'
        f"  bench/chat: {{upstream: bench, context: 131072, max_output: 4096, {price}}}\n"
        f"  bench/paced: {{upstream: paced, context: 131072, max_output: 4096, {price}}}\n"
        f"  bench/paced-slowly: {{upstream: paced-slowly, context: 131072, max_output: 4096, {price}}}\n"
        f"  bench/embed: {{upstream: embed, type: embedding, context: 8192, {price}}}\n"
    )
    (folder / "providers" / "bench-messages.yaml").write_text(
        f"provider: bench-messages\nurl: http://127.0.0.1:{upstream}/v1\nspeaks: {{messages: /messages}}\nheaders: "
        f"{{x-api-key: $secret.BENCH_UPSTREAM_KEY}}\nmodels:\n  bench/messages: {{upstream: bench, context: 131072, "
        f"max_output: 4096, {price}}}\n"
    )
    rows = "".join(
        f"  catalog/model-{i:04}: {{name: Model {i}, description: One of many models., context: 131072, {price}}}\n"
        for i in range(MODELS - 5)
    )
    (folder / "providers" / "catalog.yaml").write_text(
        f"provider: catalog\nurl: http://127.0.0.1:{upstream}/v1\nspeaks: {{chat: /chat/completions}}\n"
        f'headers: {{Authorization: "Bearer {{{{ $secret.BENCH_UPSTREAM_KEY }}}}"}}\nmodels:\n{rows}'
    )
    environment = (bytecode(python) if measured else {}) | (secrets or {})
    started, port, key, seconds = _serve(folder, ["--config", "gateway.yaml"], "bench/chat", environment, python)
    name = f"tollgate {engine}" + ("" if python == sys.executable else f" ({version_of(python)})")
    return Target(name, started, port, key, converts=True, start_seconds=seconds)


def version_of(python: str) -> str:
    """Which Python an interpreter is, such as "3.14.10"."""
    asked = subprocess.run(
        [python, "-c", "import platform; print(platform.python_version())"], capture_output=True, text=True, check=True
    )
    return asked.stdout.strip()


def serve(
    folder: Path, options: list[str], model: str, secrets: dict[str, str] | None = None
) -> tuple[Started, int, str, float]:
    """`tollgate serve` in a folder until it answers a chat request; gives process, port, key and the seconds that
    took."""
    return _serve(folder, options, model, bytecode() | (secrets or {}), sys.executable)


@cache
def bytecode(python: str = sys.executable) -> dict[str, str]:
    """The environment in which a gateway finds its sources compiled, as pip leaves what it installs: a checkout has
    none, and where PYTHONDONTWRITEBYTECODE is set (in many containers) each of its starts would compile them anew. Made
    by starts that are not measured."""
    place = Path(tempfile.mkdtemp(prefix="tollgate-bytecode-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    environment = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(place)}
    for engine in ("hypercorn", "uvicorn"):
        folder = place / engine
        folder.mkdir()
        _serve(folder, ["--engine", engine], "sandbox/echo", environment, python)[0].stop()
    return environment


def _serve(
    folder: Path, options: list[str], model: str, environment: dict[str, str], python: str
) -> tuple[Started, int, str, float]:
    port, log = free_port(), folder / "gateway.log"
    log.unlink(missing_ok=True)
    began = time.perf_counter()
    started = start(
        [python, "-m", "tollgate", "serve", "--bind", f"127.0.0.1:{port}", "--log-level", "warning", *options],
        cwd=folder,
        log=log,
        env={"PYTHONPATH": str(SOURCES), "BENCH_UPSTREAM_KEY": "upstream", **environment},
    )
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}]}).encode()
    failure = ""
    while time.perf_counter() - began < 60 and started.popen.poll() is None:
        found = re.search(r"sk-tg-\S+", log.read_text())
        if found:
            asked = urllib.request.Request(
                f"http://127.0.0.1:{port}/v1/chat/completions",
                body,
                {"authorization": f"Bearer {found[0]}", "content-type": "application/json"},
            )
            try:
                with urllib.request.urlopen(asked, timeout=5) as reply:
                    reply.read()
                    return started, port, found[0], time.perf_counter() - began
            except urllib.error.HTTPError as error:
                failure = f"{error.code}: {error.read()[:500]!r}"
                break
            except OSError as error:  # not listening yet
                failure = str(error)
        time.sleep(0.005)
    started.stop()
    raise RuntimeError(f"the gateway did not answer: {failure}\n{log.read_text()[-3000:]}")


def start_seconds(folder: Path) -> float:
    """How long `tollgate serve` in an empty folder, with the default files, takes to its first answer."""
    folder.mkdir(parents=True)
    started, _, _, seconds = serve(folder, [], "sandbox/echo")
    started.stop()
    return seconds


def bare(folder: Path, upstream: int) -> Target:
    """The bare asyncio proxy beside this file."""
    log = folder / "bare.log"
    started = start([sys.executable, str(HERE / "bare.py"), "--upstream", str(upstream)], log=log)
    return Target("bare asyncio", started, port_of(started, log))


def nginx(folder: Path, upstream: int) -> Target | None:
    """nginx as a plain proxy with kept connections, when it is installed."""
    binary = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if binary is None:
        return None
    port = free_port()
    temporary = " ".join(
        f"{kind}_temp_path {folder}/nginx-{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    conf = folder / "nginx.conf"
    conf.write_text(f"""worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx-error.log;
events {{ worker_connections 4096; }}
http {{ access_log off; {temporary}
  upstream provider {{ server 127.0.0.1:{upstream}; keepalive 600; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:{port}; client_max_body_size 64m; client_body_buffer_size 1m; keepalive_requests 100000000;
    location / {{ proxy_pass http://provider; proxy_http_version 1.1; proxy_buffering off;
      proxy_set_header Connection ""; proxy_set_header Authorization "Bearer upstream"; }} }} }}
""")
    log = folder / "nginx.log"
    started = start([binary, "-c", str(conf), "-e", str(folder / "nginx-error.log")], log=log)
    _wait_for_port(port, started, log)
    return Target("nginx", started, port)


def litellm(folder: Path, upstream: int, command: str | None) -> Target | None:
    """LiteLLM's proxy, when it is importable or a command is given."""
    if command is None and shutil.which("litellm"):
        command = "litellm"
    if command is None and importlib.util.find_spec("litellm") is None:
        return None
    base = f"http://127.0.0.1:{upstream}"
    rows = [
        ("bench/chat", "openai/bench", f"{base}/v1"),
        ("bench/paced", "openai/paced", f"{base}/v1"),
        ("bench/paced-slowly", "openai/paced-slowly", f"{base}/v1"),
        ("bench/embed", "openai/embed", f"{base}/v1"),
        ("bench/messages", "anthropic/bench", base),
    ]
    listed = [
        {"model_name": name, "litellm_params": {"model": model, "api_base": where, "api_key": "upstream"}}
        for name, model, where in rows
    ]
    conf = folder / "litellm.yaml"
    conf.write_text(
        json.dumps(
            {
                "model_list": listed,
                "general_settings": {"master_key": "sk-bench"},
                "router_settings": {"disable_cooldowns": True},
            }
        )
    )
    port, log = free_port(), folder / "litellm.log"
    launch = shlex.split(command) if command else [sys.executable, "-c", "from litellm import run_server; run_server()"]
    began = time.perf_counter()
    started = start(
        [*launch, "--config", str(conf), "--port", str(port), "--host", "127.0.0.1", "--num_workers", "1"],
        cwd=folder,
        log=log,
        env={"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"},
    )
    wait_for(f"http://127.0.0.1:{port}/health/liveliness", started, log, 120)
    return Target("LiteLLM", started, port, "sk-bench", converts=True, start_seconds=time.perf_counter() - began)


def portkey(folder: Path, upstream: int, command: str | None) -> Target | None:
    """Portkey's gateway, when a command that starts it is given (`{port}` in it is replaced)."""
    if command is None:
        return None
    port, log = free_port(), folder / "portkey.log"
    started = start(
        shlex.split(command.format(port=port)),
        cwd=folder,
        log=log,
        env={"NODE_ENV": "production", "TRUSTED_CUSTOM_HOSTS": "127.0.0.1"},
    )
    _wait_for_port(port, started, log)
    headers = {"x-portkey-provider": "openai", "x-portkey-custom-host": f"http://127.0.0.1:{upstream}/v1"}
    return Target(
        "Portkey",
        started,
        port,
        "upstream",
        headers=headers,
        models={
            "bench/chat": "bench",
            "bench/paced": "paced",
            "bench/paced-slowly": "paced-slowly",
            "bench/embed": "embed",
        },
    )


def mock(folder: Path, pace: float) -> tuple[Started, int]:
    """The mock upstream."""
    log = folder / "upstream.log"
    started = start([sys.executable, str(HERE / "upstream.py"), "--pace", str(pace)], log=log)
    return started, port_of(started, log)


def free_port() -> int:
    """A port nobody listens on now; below those that the kernel gives to whoever asks for any."""
    while True:
        port = random.randrange(20_000, 32_000)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def describe_machine() -> str:
    """One line about where this ran."""
    model = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    return (
        f"{os.cpu_count()} x {model[1] if model else 'unknown CPU'}, Python {sys.version.split()[0]}, load "
        f"{os.getloadavg()[0]:.1f}"
    )


def _wait_for_port(port: int, started: Started, log: Path, seconds: float = 20.0) -> None:
    stop = time.monotonic() + seconds
    while time.monotonic() < stop and started.popen.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 0.5).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"nothing listens on {port}: {log.read_text()[-2000:]}")
