"""Published usage files with made-up rows, for measuring and for looking at pages: `python bench/usage_files.py DIR
--rows 10000000 --days 30`.

Days have a rhythm, models a price, keys an owner, answers a length; one in forty requests fails. Same arguments, same
rows (but for the hour they end at).
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from tollgate.ledger.usage_row import create_table

MODELS = (
    ("acme/large", "acme", 3.0, 15.0),
    ("acme/small", "acme", 0.25, 1.25),
    ("globex/pro-2", "globex", 2.0, 8.0),
    ("globex/flash-2", "globex", 0.1, 0.4),
    ("initech/reason-1", "initech", 1.1, 4.4),
    ("umbra/open-70b", "umbra", 0.59, 0.79),
    ("umbra/open-8b", "umbra", 0.05, 0.08),
    ("acme/embed-3", "acme", 0.02, 0.0),
)
_WEIGHTS = (18, 30, 10, 24, 6, 5, 4, 3)


def write(
    directory: Path, rows: int, days: int, accounts: list[str], keys: dict[str, list[str]], now: datetime | None = None
) -> int:
    """Write `rows` rows over the last `days` days; gives how many there are. `keys` are the key ids of each account."""
    end = (now or datetime.now(UTC)).replace(minute=0, second=0, microsecond=0, tzinfo=None)
    hours = [end - timedelta(hours=back) for back in range(days * 24, 0, -1)]
    rhythm = [
        (1.3 - math.cos((hour.hour - 3) / 24 * 2 * math.pi))
        * (0.45 if hour.weekday() > 4 else 1)
        * (0.8 + 0.4 * ((hour.toordinal() * 37) % 10) / 10)
        for hour in hours
    ]
    seq = 0
    for hour, weight in zip(hours, rhythm, strict=True):
        count = max(1, round(rows * weight / sum(rhythm)))
        _hour(directory, hour, count, seq, accounts, keys)
        seq += count
    return seq


def _hour(
    directory: Path, hour: datetime, count: int, seq: int, accounts: list[str], keys: dict[str, list[str]]
) -> None:
    path = directory / f"{hour:%Y-%m-%d}" / f"{hour:%H}.duckdb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    connection = duckdb.connect(config={"threads": 2})
    connection.execute(f"ATTACH '{path}' AS published (STORAGE_VERSION 'v1.2.0')")
    connection.execute(create_table("published.usage"))
    owned = ", ".join(f"[{', '.join(repr(key) for key in keys[account])}]" for account in accounts)
    spread = [place for place, weight in enumerate(_WEIGHTS) for _ in range(weight)]
    connection.execute(f"""INSERT INTO published.usage BY NAME
WITH raw AS (SELECT i + {seq} + 1 AS seq, hash(i + {seq}, 1) AS h1, hash(i + {seq}, 2) AS h2, hash(i + {seq}, 3) AS h3, hash(i + {seq}, 4) AS h4, i FROM range({count}) t(i)),
made AS (SELECT *, {spread}[1 + (h1 % {len(spread)})::INT] AS m, 1 + (h2 % {len(accounts)})::INT AS a, h3 % 40 = 0 AS failed FROM raw),
named AS (SELECT *, {[each[0] for each in MODELS]}[m + 1] AS model, {[each[1] for each in MODELS]}[m + 1] AS provider, [{owned}][a] AS mine,
    (150 + (h2 // 7) % 2200)::BIGINT AS input_tokens, CASE WHEN h4 % 3 = 0 THEN ((h4 // 11) % 6000)::BIGINT ELSE 0 END AS cache_read_tokens,
    CASE WHEN m = 7 THEN 0 ELSE (20 + (h3 // 13) % 900)::BIGINT END AS output_tokens, CASE WHEN m = 4 THEN (h1 // 17 % 1500)::BIGINT ELSE 0 END AS reasoning_tokens FROM made)
SELECT 'req_' || substr(md5(seq::VARCHAR), 1, 24) AS request_id, {accounts}[a] AS account_id, mine[1 + (h4 % len(mine))::INT] AS key_id,
    CASE WHEN m = 7 THEN 'embeddings' ELSE ['chat', 'chat', 'chat', 'responses', 'messages'][1 + (h2 % 5)::INT] END AS endpoint,
    TIMESTAMP '{hour}' + to_microseconds((i * 3600000000 // {count})::BIGINT) AS time, model AS asked_model, model, provider, split_part(model, '/', 2) AS upstream_model,
    CASE WHEN m = 7 THEN 'embeddings' ELSE ['chat', 'chat', 'chat', 'responses', 'messages'][1 + (h2 % 5)::INT] END AS client_protocol,
    CASE WHEN m = 7 THEN 'embeddings' WHEN m < 2 THEN 'messages' ELSE 'chat' END AS upstream_protocol, CASE WHEN h3 % 50 = 1 THEN 2 ELSE 1 END AS attempts,
    CASE WHEN failed THEN [500, 400, 502][1 + (h4 % 3)::INT] ELSE 200 END AS status,
    CASE WHEN failed THEN ['upstream_error', 'rejected', 'client_gone'][1 + (h4 % 3)::INT] ELSE 'ok' END AS outcome,
    input_tokens, cache_read_tokens, 0 AS cache_write_tokens, output_tokens, reasoning_tokens, 0 AS searches, 0 AS images,
    CAST((input_tokens * {[each[2] for each in MODELS]}[m + 1] + cache_read_tokens * {[each[2] for each in MODELS]}[m + 1] * 0.1
        + (output_tokens + reasoning_tokens) * {[each[3] for each in MODELS]}[m + 1]) / 1000000 AS DECIMAL(38,12)) AS cost,
    CAST(0 AS DECIMAL(38,12)) AS native_cost, 'USD' AS currency, 1 AS rate,
    '{{"prompt":"' || {[str(each[2]) for each in MODELS]}[m + 1] || '","completion":"'
        || {[str(each[3]) for each in MODELS]}[m + 1] || '","unit":1000000,"currency":"USD"}}' AS prices,
    CASE WHEN failed THEN NULL ELSE 90 + exp(4 + (h1 % 1000) / 400.0) * (0.6 + m / 10.0) END AS ttfb_ms,
    150 + exp(4 + (h1 % 1000) / 400.0) + output_tokens * (4 + m) AS total_ms, h2 % 2 = 0 AND m <> 7 AS stream, h3 % 90 = 3 AS estimated,
    'user-' || (h4 % 500) AS end_user, CASE WHEN failed THEN ['upstream_failed', 'invalid_request', NULL][1 + (h4 % 3)::INT] END AS error_code,
    CASE WHEN m < 2 AND h2 % 9 = 0 THEN 'frequency_penalty; logit_bias' END AS lost, NULL AS provider_cost, seq FROM named""")  # noqa: E501
    connection.close()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--accounts", type=int, default=20)
    options = parser.parse_args()
    accounts = [f"account-{number}" for number in range(options.accounts)]
    began = time.monotonic()
    count = write(
        options.directory,
        options.rows,
        options.days,
        accounts,
        {account: [f"key_{account}_{number}" for number in range(3)] for account in accounts},
    )
    print(f"{count:,} rows in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
