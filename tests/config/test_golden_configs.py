from pathlib import Path

import pytest

from config.golden import FOLDER, messages_of, parts
from support.yaml_words import without_parser_words

CASES = sorted(FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("case", CASES, ids=[case.stem for case in CASES])
def test_an_invalid_configuration_has_these_messages(case: Path, folder: Path) -> None:
    files = parts(case.read_text("utf-8"))
    wanted = files.pop("says")
    assert without_parser_words(messages_of(files, folder)) == without_parser_words(wanted)


def test_there_are_enough_invalid_configurations() -> None:
    assert len(CASES) >= 30
