-- Version 7: the forms of the dashboard that were sent and must not work again, at any gateway.
CREATE TABLE tollgate.sent_forms (digest bytea PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());
