-- Version 2: rows before `rows_from` may have been removed because of their age; embedded stores that were moved into this one.
ALTER TABLE tollgate.instances ADD COLUMN rows_from timestamptz;

CREATE TABLE tollgate.moved (
    store text PRIMARY KEY, instance text NOT NULL, row_count bigint NOT NULL, at timestamptz NOT NULL DEFAULT now());
