-- The ledger in SQL: each call is one function, so one round trip and one transaction, with its plans kept.
-- A refusal is an exception, which undoes the transaction.

CREATE TABLE limits (
    name text PRIMARY KEY,
    ceiling bigint NOT NULL,
    committed bigint NOT NULL DEFAULT 0,
    held bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50); -- Room on the page, so that an update need not touch the index.

CREATE TABLE operations (
    id text,
    limit_name text,
    value bigint NOT NULL,
    is_open boolean NOT NULL,
    PRIMARY KEY (id, limit_name)
) WITH (fillfactor = 50);

CREATE FUNCTION hold(operation text, names text[], amount bigint)
RETURNS TABLE (limit_name text, commit_value bigint, hold_value bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    known bigint;
    passed bigint;
BEGIN
    -- Always in the same order, so that nobody waits in a circle.
    SELECT count(*), count(*) FILTER (WHERE committed + held + amount > ceiling) INTO known, passed
    FROM (SELECT * FROM limits WHERE name = ANY (names) ORDER BY name FOR UPDATE) AS locked;
    IF known < cardinality(names) THEN RAISE 'LimitNotFound'; END IF;
    IF passed > 0 THEN RAISE 'LimitExceeded'; END IF;
    INSERT INTO operations SELECT operation, one, amount, true FROM unnest(names) AS one;
    RETURN QUERY UPDATE limits SET held = held + amount WHERE name = ANY (names)
    RETURNING name, committed, held;
END $$;

CREATE FUNCTION commit_hold(operation text)
RETURNS TABLE (limit_name text, commit_value bigint, hold_value bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM FROM limits
    WHERE name IN (SELECT o.limit_name FROM operations o WHERE o.id = operation) ORDER BY name FOR UPDATE;
    UPDATE operations SET is_open = false WHERE id = operation AND is_open;
    IF NOT FOUND THEN RAISE 'OperationNotFound'; END IF;
    RETURN QUERY UPDATE limits l SET held = l.held - o.value, committed = l.committed + o.value
    FROM operations o WHERE o.id = operation AND l.name = o.limit_name
    RETURNING l.name, l.committed, l.held;
END $$;

-- The same for many operations at once, given as pairs of operation and limit. It is done whole or not at all.
-- Two such share some limit almost always. Waiting for each other at once, in one place, serves them better than
-- waiting row by row: with eight connections by a factor of five.
CREATE FUNCTION hold_many(ids text[], names text[], amount bigint)
RETURNS TABLE (limit_name text, commit_value bigint, hold_value bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM pg_advisory_xact_lock(1);
    PERFORM FROM limits WHERE name = ANY (names) ORDER BY name FOR UPDATE;
    PERFORM FROM (SELECT one AS name, count(*) * amount AS total FROM unnest(names) AS one GROUP BY one) AS wanted
    LEFT JOIN limits l USING (name)
    WHERE l.name IS NULL OR l.committed + l.held + wanted.total > l.ceiling;
    IF FOUND THEN RAISE 'LimitNotFound or LimitExceeded'; END IF;
    INSERT INTO operations SELECT id, name, amount, true FROM unnest(ids, names) AS pairs (id, name);
    RETURN QUERY UPDATE limits l SET held = l.held + wanted.total
    FROM (SELECT one AS name, count(*) * amount AS total FROM unnest(names) AS one GROUP BY one) AS wanted
    WHERE l.name = wanted.name RETURNING l.name, l.committed, l.held;
END $$;

CREATE FUNCTION commit_many(ids text[])
RETURNS TABLE (limit_name text, commit_value bigint, hold_value bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM pg_advisory_xact_lock(1);
    PERFORM FROM limits
    WHERE name IN (SELECT o.limit_name FROM operations o WHERE o.id = ANY (ids)) ORDER BY name FOR UPDATE;
    IF (SELECT count(DISTINCT id) FROM operations WHERE id = ANY (ids) AND is_open) < cardinality(ids) THEN
        RAISE 'OperationNotFound';
    END IF;
    RETURN QUERY
    WITH finished AS (
        UPDATE operations SET is_open = false WHERE id = ANY (ids) AND is_open RETURNING limit_name, value
    ), sums AS (
        SELECT f.limit_name AS name, sum(f.value)::bigint AS total FROM finished f GROUP BY f.limit_name
    )
    UPDATE limits l SET held = l.held - sums.total, committed = l.committed + sums.total
    FROM sums WHERE l.name = sums.name RETURNING l.name, l.committed, l.held;
END $$;
