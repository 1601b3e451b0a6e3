"""requirements.lock pins every installed file."""

import re
import tomllib

from packaging.requirements import Requirement

from support.places import ROOT

ENTRY = re.compile(r"^([\w.-]+)==([^\s;]+)[^\\\n]*((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)


def normalized(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_dependency_is_pinned_with_hashes():
    text = (ROOT / "requirements.lock").read_text("utf-8")
    locked = {normalized(name): version for name, version, _ in ENTRY.findall(text)}
    assert ENTRY.sub("", text).strip() == "", "every line belongs to a pinned package"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    for wanted in map(Requirement, [*project["dependencies"], *extras["uvicorn"], *extras["postgres"]]):
        version = locked.get(normalized(wanted.name))
        assert version is not None, f"{wanted.name} is missing: docs/building.md describes how to update the file"
        assert wanted.specifier.contains(version), f"{wanted} does not allow {version}"
