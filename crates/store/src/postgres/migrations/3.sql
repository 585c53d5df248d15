-- What the schema is. There is one row.
CREATE TABLE limina.meta (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    version integer NOT NULL,
    shards integer NOT NULL,
    -- The key of the hash that chooses the shard of a namespace.
    sharding_key bytea NOT NULL
);

CREATE TABLE limina.node (
    id bigint PRIMARY KEY,
    -- An address belongs to one node.
    address text NOT NULL UNIQUE,
    -- For operators: the machine's name, and when the process first renewed its tenure.
    host text NOT NULL DEFAULT '',
    started_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    is_leaving boolean NOT NULL,
    -- SHA-256 of the certificate that the node shows to other nodes. NULL if other nodes cannot reach it.
    certificate bytea,
    -- The shards of other nodes that the node has read, so that it can serve them soon after it gets them.
    prepared integer[] NOT NULL DEFAULT '{}',
    -- The session of the last renewal: the process of the server that serves it, and when that server started. The session holds
    -- an advisory lock as long as it lasts. NULL if it does not, because it is not the node's own (see the module `presence`).
    session integer,
    server_started_at timestamptz
);

-- Each append changes a row, so there is room for the next versions on the same page.
CREATE TABLE limina.shard (
    id integer PRIMARY KEY,
    epoch bigint NOT NULL DEFAULT 0,
    seq bigint NOT NULL DEFAULT 0,
    applied bigint NOT NULL DEFAULT 0,
    owner bigint,
    is_handed boolean NOT NULL DEFAULT false,
    -- Shard time in milliseconds when the shard was handed to its owner, and when that was.
    handed_time bigint,
    handed_at timestamptz
) WITH (fillfactor = 20);

CREATE TABLE limina.journal (
    shard integer NOT NULL,
    seq bigint NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (shard, seq)
);
-- Compressing would cost the server more than it saves: rows are short-lived.
ALTER TABLE limina.journal ALTER COLUMN payload SET STORAGE EXTERNAL;

-- A filter of the keys of each shard's records, in parts: see the module `key_filter`. It has all keys of the table up to the append `upto`
-- of its last part.
CREATE TABLE limina.filter (
    shard integer NOT NULL,
    part integer NOT NULL,
    upto bigint NOT NULL,
    bits bytea NOT NULL,
    PRIMARY KEY (shard, part)
);
-- Half of the bits are set, so they cannot be compressed.
ALTER TABLE limina.filter ALTER COLUMN bits SET STORAGE EXTERNAL;

-- A key may be longer than an index takes: the head is its beginning, the rest what follows, the digest stands for the rest.
CREATE TABLE limina.record (
    shard integer NOT NULL,
    head bytea NOT NULL,
    digest bytea NOT NULL,
    rest bytea NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (shard, head, digest)
);
