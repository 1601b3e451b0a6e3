-- Version 1 of the tables that several gateways share. `usage` is made in tables.py, from the columns of a usage row.

CREATE TABLE tollgate.accounts (
    id text PRIMARY KEY, name text NOT NULL, role text NOT NULL, password_hash text NOT NULL, created_at timestamptz NOT NULL);

CREATE TABLE tollgate.keys (
    id text PRIMARY KEY, account_id text NOT NULL REFERENCES tollgate.accounts, digest text NOT NULL UNIQUE, name text NOT NULL,
    last_four text NOT NULL, allowed_models text[], expires_at timestamptz, revoked boolean NOT NULL, spend_cap numeric,
    cap_window text NOT NULL, rpm bigint, tpm bigint, strict boolean NOT NULL, created_at timestamptz NOT NULL);
CREATE INDEX ON tollgate.keys (account_id);

CREATE TABLE tollgate.grants (
    id text PRIMARY KEY, account_id text NOT NULL REFERENCES tollgate.accounts, amount numeric NOT NULL, note text NOT NULL,
    created_at timestamptz NOT NULL);
CREATE INDEX ON tollgate.grants (account_id);

CREATE TABLE tollgate.generations (
    id text PRIMARY KEY, account_id text NOT NULL, status text NOT NULL, model text NOT NULL, created_at timestamptz NOT NULL,
    cost numeric, document text NOT NULL, answer text NOT NULL);
CREATE INDEX ON tollgate.generations (account_id, created_at DESC) WHERE status = 'succeeded';
CREATE INDEX ON tollgate.generations (created_at) WHERE status IN ('starting', 'processing');

-- Sums, so that nothing is added up while a request waits. Whoever changes an account's money locks its balance first.
CREATE TABLE tollgate.balances (
    account_id text PRIMARY KEY, granted numeric NOT NULL DEFAULT 0, spent numeric NOT NULL DEFAULT 0, held numeric NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE TABLE tollgate.key_sums (
    key_id text PRIMARY KEY, spent numeric NOT NULL DEFAULT 0, held numeric NOT NULL DEFAULT 0, last_used timestamptz
) WITH (fillfactor = 50);
CREATE TABLE tollgate.key_days (
    key_id text, day date, spent numeric NOT NULL, PRIMARY KEY (key_id, day)) WITH (fillfactor = 50);

-- What each gateway's running requests hold: part of the sums above, and taken out of them when the gateway is gone.
CREATE TABLE tollgate.holds (
    instance text, key_id text, account_id text NOT NULL, amount numeric NOT NULL, PRIMARY KEY (instance, key_id)) WITH (fillfactor = 50);

-- Token buckets of the rate limits. After a crash of the database all are full, which a limit a minute can bear.
CREATE UNLOGGED TABLE tollgate.buckets (
    key_id text, kind text, allowed double precision NOT NULL, level double precision NOT NULL, stamp timestamptz NOT NULL,
    PRIMARY KEY (key_id, kind)) WITH (fillfactor = 50);

CREATE TABLE tollgate.instances (
    name text PRIMARY KEY, published bigint NOT NULL DEFAULT 0, dashboard text NOT NULL DEFAULT '');
CREATE TABLE tollgate.links (digest bytea PRIMARY KEY, account_id text NOT NULL, expires_at timestamptz NOT NULL);
CREATE TABLE tollgate.minted (digest bytea PRIMARY KEY, provider text NOT NULL, at timestamptz NOT NULL DEFAULT now());
CREATE INDEX ON tollgate.minted (at);
CREATE TABLE tollgate.secrets (name text PRIMARY KEY, value bytea NOT NULL);
CREATE TABLE tollgate.ended_sessions (id text PRIMARY KEY, expires_at timestamptz NOT NULL);
