from pathlib import Path

import pytest

from config.golden import FOLDER, parts, said
from support.yaml_words import in_our_words

CASES = sorted(FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("case", CASES, ids=[case.stem for case in CASES])
def test_a_bad_configuration_is_told_in_these_words(case: Path, folder: Path) -> None:
    files = parts(case.read_text("utf-8"))
    wanted = files.pop("says")
    assert in_our_words(said(files, folder)) == in_our_words(wanted)


def test_there_are_enough_bad_configurations() -> None:
    assert len(CASES) >= 30
