"""requirements.lock: what an installation takes is known file by file."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
ENTRY = re.compile(r"^([\w.-]+)==([^\s;]+)[^\\\n]*((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_whatever_is_installed_is_pinned_to_files_by_their_hashes():
    text = (ROOT / "requirements.lock").read_text("utf-8")
    locked = {plain(name): version for name, version, _ in ENTRY.findall(text)}
    assert ENTRY.sub("", text).strip() == "", "every line belongs to a pinned package"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    for wanted in map(Requirement, [*project["dependencies"], *extras["uvicorn"], *extras["postgres"]]):
        version = locked.get(plain(wanted.name))
        assert version is not None, f"{wanted.name} is not in it: docs/building.md says how it is renewed"
        assert wanted.specifier.contains(version), f"{wanted} does not allow {version}"
