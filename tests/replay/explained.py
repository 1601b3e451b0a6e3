"""The exchanges that do not come out as recorded, and why that is right. Every other miss is a fault.

Key: (kind, exchange id), or ("kind client", exchange id) where it concerns one client format only.
"""

from __future__ import annotations

EXPLAINED: dict[tuple[str, str], str] = {}
