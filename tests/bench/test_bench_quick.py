"""The benchmarks run: a short run of all of them fails on any response that is missing or incomplete."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.places import ROOT


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the bench reads Linux's /proc")
def test_a_short_run_of_all_benchmarks_succeeds():
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench" / "run.py"), "--quick", "--engines", "hypercorn,uvicorn"],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| chat, 1 KB answer | ")]
    assert "tollgate hypercorn" in done.stdout and "tollgate uvicorn" in done.stdout
    assert len(rows) == 2 and "–" not in rows[0]


def test_every_benchmark_script_can_be_imported():
    bench = ROOT / "bench"
    names = sorted(script.stem for script in bench.glob("*.py"))
    done = subprocess.run(
        [sys.executable, "-c", f"import {', '.join(names)}"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": f"{bench}{os.pathsep}{ROOT / 'src'}"},
    )
    assert (done.returncode, done.stderr) == (0, "") and "mapping" in names
