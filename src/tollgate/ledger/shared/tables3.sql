-- Version 3: what else a key may be held to. No defaults and no NOT NULL: gateways of the version before still add keys beside this one.
ALTER TABLE tollgate.keys
    ADD COLUMN max_concurrent bigint, ADD COLUMN endpoints text[], ADD COLUMN allowed_addresses text[];
