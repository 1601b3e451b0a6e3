"""Where things are: the repository, and what is kept beside it."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
TRAFFIC = Path(os.environ.get("TOLLGATE_TRAFFIC") or SHARED / "traffic")
"""Recorded traffic: `index.json` and the exchanges that it names. Tests that need it are skipped without it."""
SANDBOX_IMAGES = (ROOT / "providers" / "sandbox-images.yaml").read_text("utf-8")
"""The shipped provider of image jobs in the sandbox."""
