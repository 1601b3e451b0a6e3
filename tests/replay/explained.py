"""The exchanges that do not arrive as recorded, and why that is correct. Every other difference is a fault.

Key: (kind, exchange id), or ("kind client", exchange id) if it concerns one client format only.
"""

from __future__ import annotations

EXPLAINED: dict[tuple[str, str], str] = {}
