"""Loads the tokenizer's two encodings from rank files in the package; nothing is downloaded.

Loading takes 0.2 to 1.2 s and 20 to 45 MB per encoding, so only `tokens.py` does it, in a thread, at the first count.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiktoken import Encoding

NAMES = ("o200k_base", "cl100k_base")


def load(name: str) -> Encoding:
    """Build an encoding. Raises `ValueError` if its rank file is not the published one."""
    from importlib.resources import files

    from tiktoken import Encoding

    folder = files(__name__)
    about = json.loads(folder.joinpath("encodings.json").read_text("utf-8"))[name]
    data = folder.joinpath(about["file"]).read_bytes()
    if hashlib.sha256(data).hexdigest() != about["sha256"]:
        raise ValueError(f"{about['file']} is not the published rank file")
    ranks = {base64.b64decode(piece): int(rank) for piece, rank in (line.split() for line in data.splitlines())}
    made = Encoding(name, pat_str=about["pattern"], mergeable_ranks=ranks, special_tokens=about["special_tokens"])
    ranks.clear()  # the encoding keeps a reference to this dict but uses its own copy: frees 13 to 29 MB
    return made
