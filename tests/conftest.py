"""The whole run: the collector does not walk over thousands of collected tests again and again."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    """What was collected stays until the end; without this a tenth of the run is spent on looking at it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)  # as the gateway itself runs


def pytest_unconfigure() -> None:
    """What is frozen would be told of as leaked when the process ends."""
    gc.unfreeze()
