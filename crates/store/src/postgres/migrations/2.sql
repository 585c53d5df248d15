-- What a node says of itself, for operators, and when its process began.
ALTER TABLE limina.node
    ADD COLUMN host text NOT NULL DEFAULT '',
    ADD COLUMN started_at timestamptz NOT NULL DEFAULT now();

-- An address is one node's. Of several rows with the same one the last that was renewed stays.
DELETE FROM limina.node AS old USING limina.node AS new
WHERE old.address = new.address AND (old.expires_at, old.id) < (new.expires_at, new.id);
ALTER TABLE limina.node ADD CONSTRAINT node_address UNIQUE (address);

-- The shard's time when it was given to its owner, in milliseconds, and when that was.
ALTER TABLE limina.shard
    ADD COLUMN handed_time bigint,
    ADD COLUMN handed_at timestamptz;
