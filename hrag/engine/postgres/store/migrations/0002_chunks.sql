-- Creates the view hrag.chunks for users of SQL, and the rules for which tenants they may read.
--
-- A row of the view is computed, when it is read, from the tree and the text of the document, so
-- chunks are not stored a second time. The functions are STRICT because PostgreSQL does not inline
-- such functions: each one runs once, even if several columns use its result.

-- Returns the little-endian integer of 4 bytes at the offset `start`. The value 0xFFFFFFFF, which
-- stands for "none", is returned as -1.
CREATE FUNCTION hrag.u32(packed bytea, start integer) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN reverse(substring(packed FROM start + 1 FOR 4))::integer;

CREATE FUNCTION hrag.chunk_id(document_id text, level integer, index integer) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN document_id || '#' || level::text || '.' || index::text;

-- Returns the levels of a document's encoded tree. For each level, `chunks` is the count of chunks
-- and `base` is the offset of the first chunk's first byte.
CREATE FUNCTION hrag.tree_levels(tree bytea)
RETURNS TABLE (level integer, chunks integer, base integer)
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE ROWS 4
BEGIN ATOMIC
    SELECT number, count, (4 * (levels + 1) + 40 * (sum(count) OVER (ORDER BY number) - count))::integer
    FROM (SELECT hrag.u32(tree, 0) AS levels) AS header,
        generate_series(0, levels - 1) AS number,
        LATERAL (SELECT hrag.u32(tree, 4 + 4 * number) AS count) AS counted;
END;

-- Returns the encoded chunks of one level, 40 bytes each. All bytes of the level are read at once.
CREATE FUNCTION hrag.level_chunks(tree bytea, base integer, chunks integer)
RETURNS TABLE (index integer, chunk bytea)
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE ROWS 100
BEGIN ATOMIC
    SELECT number, substring(packed FROM 40 * number + 1 FOR 40)
    FROM (SELECT substring(tree FROM base + 1 FOR 40 * chunks) AS packed OFFSET 0) AS level,
        generate_series(0, chunks - 1) AS number;
END;

-- Decodes UTF-8. The type text cannot contain NUL, so U+2400, the symbol for NUL, replaces it.
CREATE FUNCTION hrag.decoded_text(body bytea) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN convert_from(
    CASE position('\x00'::bytea IN body)
        WHEN 0 THEN body
        -- Spaces separate the pairs of digits; `decode` ignores them.
        ELSE decode(
            replace(regexp_replace(encode(body, 'hex'), '(..)', ' \1', 'g'), ' 00', ' e29080'),
            'hex')
    END, 'UTF8');

-- Returns the metadata in a document's record. JSON escapes NUL as \u0000, which jsonb does not
-- allow, so the escape is replaced by U+2400, the symbol for NUL.
CREATE FUNCTION hrag.metadata_of(record bytea) RETURNS jsonb
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN (
    CASE position('\u0000' IN convert_from(record, 'UTF8'))
        WHEN 0 THEN convert_from(record, 'UTF8')
        -- Pairs of backslashes before \u0000 are escaped backslashes and stay as they are.
        ELSE regexp_replace(
            convert_from(record, 'UTF8'), '(?<!\\)((?:\\\\)*)\\u0000', '\1\\u2400', 'g')
    END::json -> 'metadata')::jsonb;

-- The chunks of all documents, except documents of summary collections. `id` is unique in a
-- collection. Columns that a query does not use are not computed. If a query has a condition on
-- `level`, rows of other levels are not computed either. A query with conditions on tenant_id and
-- document_id reads one document.
CREATE VIEW hrag.chunks WITH (security_invoker = true) AS
SELECT
    hrag.chunk_id(d.document_id, l.level, k.index) AS id,
    d.tenant_id,
    d.document_id,
    hrag.decoded_text(substring(
        d.body FROM hrag.u32(k.chunk, 0) + 1 FOR hrag.u32(k.chunk, 4) - hrag.u32(k.chunk, 0)
    )) AS content,
    l.level,
    CASE WHEN hrag.u32(k.chunk, 24) >= 0
        THEN hrag.chunk_id(d.document_id, l.level + 1, hrag.u32(k.chunk, 24))
    END AS parent_id,
    ARRAY(
        SELECT hrag.chunk_id(d.document_id, l.level - 1, hrag.u32(k.chunk, 28) + child)
        FROM generate_series(0, hrag.u32(k.chunk, 32) - 1) AS child
    ) AS child_ids,
    hrag.u32(k.chunk, 20) AS token_count,
    hrag.metadata_of(d.record) AS metadata,
    c.record ->> 'name' AS collection
FROM hrag.documents AS d
    JOIN hrag.collections AS c USING (tenant_id, collection_id),
    LATERAL hrag.tree_levels(d.tree) AS l,
    LATERAL hrag.level_chunks(d.tree, l.base, l.chunks) AS k
WHERE c.record ->> 'summarises' = '0';

-- The tenants that a role may read through the view. The owner of the schema writes this table. In
-- a cluster of Citus, every node has a copy, and a change is committed on all nodes at once.
CREATE TABLE hrag.sql_tenants (
    role_name name NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (role_name, tenant_id)
);

-- Returns the tenants that the current role may read; NULL if there are none. Policies call this
-- function because Citus refuses a policy that contains a query. Its rows come through the policy of
-- hrag.sql_tenants. The high cost makes the planner look up the tenants in an index, where the
-- function runs once; as a filter, it would run for each row. The body is text, so that Citus copies
-- the function to nodes that do not have the table yet. It names the schema of array_agg, because it
-- is parsed with the search_path of the user of SQL, who could otherwise replace array_agg.
CREATE FUNCTION hrag.readable_tenants() RETURNS text[]
LANGUAGE sql STABLE PARALLEL SAFE COST 10000
AS 'SELECT pg_catalog.array_agg(own.tenant_id) FROM hrag.sql_tenants AS own';

-- Only the owner of the schema has rights, and the roles to which rights are granted by name.
REVOKE ALL ON SCHEMA hrag, hrag_homes FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA hrag FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA hrag FROM PUBLIC;

-- Only the tables that the role hrag_sql_reader may read have row-level security. PostgreSQL does
-- not allow a service that is not the owner to COPY into a table with row-level security.
ALTER TABLE hrag.collections ENABLE ROW LEVEL SECURITY;
ALTER TABLE hrag.documents ENABLE ROW LEVEL SECURITY;
ALTER TABLE hrag.sql_tenants ENABLE ROW LEVEL SECURITY;

-- Grants the roles hrag_service and hrag_sql_reader their rights; skips a role that does not exist.
-- The owner may call the procedure again at any time, and must call it after creating one of the
-- roles. A migration that adds tables or functions calls it at its end.
CREATE PROCEDURE hrag.grant_roles() LANGUAGE plpgsql AS $$
BEGIN
    IF to_regrole('hrag_service') IS NOT NULL THEN
        GRANT USAGE ON SCHEMA hrag TO hrag_service;
        GRANT USAGE, CREATE ON SCHEMA hrag_homes TO hrag_service;
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA hrag TO hrag_service;
        GRANT USAGE ON ALL SEQUENCES IN SCHEMA hrag TO hrag_service;
        GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA hrag TO hrag_service;
        REVOKE INSERT, UPDATE, DELETE ON hrag.migrations FROM hrag_service;
        REVOKE ALL ON hrag.sql_tenants FROM hrag_service;
        DROP POLICY IF EXISTS services ON hrag.collections;
        DROP POLICY IF EXISTS services ON hrag.documents;
        CREATE POLICY services ON hrag.collections TO hrag_service USING (true);
        CREATE POLICY services ON hrag.documents TO hrag_service USING (true);
    END IF;
    IF to_regrole('hrag_sql_reader') IS NOT NULL THEN
        GRANT USAGE ON SCHEMA hrag TO hrag_sql_reader;
        GRANT SELECT ON hrag.chunks, hrag.sql_tenants TO hrag_sql_reader;
        GRANT SELECT (tenant_id, collection_id, record) ON hrag.collections TO hrag_sql_reader;
        GRANT SELECT (tenant_id, collection_id, document_id, record, tree, body)
            ON hrag.documents TO hrag_sql_reader;
        GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA hrag TO hrag_sql_reader;
        REVOKE ALL ON FUNCTION hrag.hold_placement FROM hrag_sql_reader;
        DROP POLICY IF EXISTS own_tenants ON hrag.collections;
        DROP POLICY IF EXISTS own_tenants ON hrag.documents;
        DROP POLICY IF EXISTS own_rows ON hrag.sql_tenants;
        CREATE POLICY own_tenants ON hrag.collections FOR SELECT TO hrag_sql_reader
            USING (tenant_id = ANY (hrag.readable_tenants()));
        CREATE POLICY own_tenants ON hrag.documents FOR SELECT TO hrag_sql_reader
            USING (tenant_id = ANY (hrag.readable_tenants()));
        CREATE POLICY own_rows ON hrag.sql_tenants FOR SELECT TO hrag_sql_reader
            USING (role_name = current_user);
    END IF;
END
$$;
REVOKE ALL ON PROCEDURE hrag.grant_roles FROM PUBLIC;

-- Creates the two roles. Roles are shared by all databases of a server, so they may exist already
-- because of a store in another database. If the current role may not create roles, an
-- administrator has to create the two roles.
DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['hrag_service', 'hrag_sql_reader'] LOOP
        BEGIN
            IF to_regrole(wanted) IS NULL THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
            END IF;
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN NULL;
            WHEN insufficient_privilege THEN
                RAISE NOTICE 'the role % does not exist and may not be created', wanted;
        END;
    END LOOP;
END
$$;
CALL hrag.grant_roles();
