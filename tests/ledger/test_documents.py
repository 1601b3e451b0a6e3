"""Jobs with inline images, in files beside the store."""

import os
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tollgate.errors import TollgateError
from tollgate.ledger import records
from tollgate.ledger.documents import Documents
from tollgate.ledger.records import Generation, encode
from tollgate.ledger.segments import Entry
from tollgate.ledger.store import FILE_NAME, Store

IMAGE = "A" * 2_000_000
NOW = datetime(2026, 11, 21, tzinfo=UTC)
JOB = Generation(
    id="",
    account_id="alice",
    key_id="k1",
    request_id="r",
    model="acme/draw",
    provider="acme",
    input={"prompt": "a"},
    created_at=NOW,
    updated_at=NOW,
    deadline_at=NOW,
    status="succeeded",
)


def job(seq, image=IMAGE):
    return replace(JOB, id=f"job-{seq:03}", images=({"data": image},), answer={"data": [{"b64_json": image}]})


def event(seq, generation):
    return Entry(seq, "generation", b'{"row":{"generation":%b,"usage":null}}' % encode(generation))


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / FILE_NAME)
    store.open()
    yield store
    store.close()


def test_many_jobs_with_inline_images_are_stored_and_read(store, monkeypatch):
    monkeypatch.setattr(records, "LISTED_BYTES", 60 * len(IMAGE))
    for first in (1, 31):
        store.apply([event(seq, job(seq)) for seq in range(first, first + 30)])
    assert store.generation("alice", "job-060") == job(60)
    assert store.generation("bob", "job-060") is None
    listed = store.succeeded("alice", 100)
    assert (len(listed), {len(each.images[0]["data"]) for each in listed}, {each.answer for each in listed}) == (
        60,
        {2_000_000},
        {None},
    )


def test_a_job_may_be_larger_than_the_memory_of_the_store(store):
    large = job(1, "A" * 90_000_000)
    store.apply([event(1, large)])
    assert store.generation("alice", "job-001") == large


def test_small_jobs_are_in_the_table_and_running_ones_are_found_at_start(store, tmp_path):
    running = replace(job(2), status="processing")
    store.apply([event(1, job(1, "A")), event(2, running)])
    assert [path.name for path in (tmp_path / "generations").iterdir()] == ["job-002.json"]
    assert store.generation("alice", "job-001") == job(1, "A")
    assert store.snapshot().pending == [running]


def test_a_large_job_is_synced_before_it_is_renamed_and_its_folder_is_private(tmp_path, monkeypatch):
    synced = []
    sync = os.fsync

    def fsync_recorded(descriptor):
        folder = tmp_path / "jobs"
        synced.append({path.name: path.stat().st_size for path in folder.iterdir()})
        sync(descriptor)

    monkeypatch.setattr("tollgate.ledger.durable_files.os.fsync", fsync_recorded)
    Documents(tmp_path / "jobs").keep("job-1", b'{"a":1}', b"null")
    size = len(b'{"document":{"a":1},"answer":null}')
    assert synced == [{"job-1.json.new": size}, {"job-1.json": size}]
    assert Documents(tmp_path / "jobs").read("job-1") == ({"a": 1}, None)
    assert (tmp_path / "jobs").stat().st_mode & 0o777 == 0o700


def test_a_job_file_that_is_missing_or_cannot_be_written_is_reported(tmp_path):
    with pytest.raises(TollgateError, match=r"job-1\.json: the job cannot be read"):
        Documents(tmp_path / "none").read("job-1")
    (tmp_path / "file").write_text("")
    with pytest.raises(TollgateError, match=r"job-1\.json: the job cannot be written"):
        Documents(tmp_path / "file").keep("job-1", b"{}", b"null")


@pytest.mark.parametrize("content", [None, b"", b'{"document":'], ids=["gone", "empty", "torn"])
def test_jobs_whose_files_cannot_be_read_stop_neither_a_start_nor_the_list(tmp_path, content, caplog):
    store = Store(tmp_path / FILE_NAME)
    store.open()
    large = "A" * 100_000
    running = [replace(job(seq, large), status="processing") for seq in (3, 4)]
    store.apply([event(seq, each) for seq, each in enumerate((job(1, large), job(2, large), *running), start=1)])
    for lost in ("job-001", "job-003"):
        path = tmp_path / "generations" / f"{lost}.json"
        path.unlink() if content is None else path.write_bytes(content)
    assert [each.id for each in store.snapshot().pending] == ["job-004"]
    assert [each.id for each in store.succeeded("alice", 100)] == ["job-002"]
    assert [f"{lost}.json: the job cannot be read" in caplog.text for lost in ("job-001", "job-003")] == [True, True]
    store.close()
