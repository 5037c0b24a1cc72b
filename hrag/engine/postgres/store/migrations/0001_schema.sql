-- Creates the tables of hrag. The keys of tables with tenants' data begin with tenant_id, and
-- statements on these tables bind tenant_id.
--
-- A collection id is never used twice. An ordinal identifies one version of one document. It is the
-- sequence number of the change that stored the version. The changes of a tenant have different
-- sequence numbers, so a tenant uses each ordinal only once.

CREATE SCHEMA hrag;

-- One row for each migration that has run. The highest version is the schema version.
CREATE TABLE hrag.migrations (
    version integer PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- A tenant's usage and the sequence number of its last change. The row is also the lock of the
-- tenant's writers: every change updates the row first. The row is never deleted, so the tenant's
-- sequence numbers never start again at 0.
CREATE TABLE hrag.tenants (
    tenant_id text COLLATE "C" PRIMARY KEY,
    sequence bigint NOT NULL DEFAULT 0,
    collections bigint NOT NULL DEFAULT 0,
    documents bigint NOT NULL DEFAULT 0,
    stored_bytes bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- Names and aliases of collections. Both are in one table, so that a tenant uses no name twice.
CREATE TABLE hrag.names (
    tenant_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    collection_id bigint NOT NULL,
    is_alias boolean NOT NULL,
    PRIMARY KEY (tenant_id, name)
);

-- The ids of collections and of homes. If a collection has the id n, its summary collection has the
-- id n + 1.
CREATE SEQUENCE hrag.collection_ids INCREMENT BY 2;
CREATE SEQUENCE hrag.home_ids;

-- Collections and their running totals. `record` is JSON that is written when the collection is
-- created and does not change. If `home` is not null, leaves are in the table leaves_<home> of the
-- schema hrag_homes, except the newest ones, which are in hrag.leaves; otherwise all leaves are in
-- hrag.leaves. `graph_leaves` is the count of leaves in the HNSW index of the home, with deleted ones
-- that VACUUM may not have removed. `terms` is the count of occurrences of terms in all living
-- leaves.
CREATE TABLE hrag.collections (
    tenant_id text COLLATE "C" NOT NULL,
    collection_id bigint NOT NULL,
    record jsonb NOT NULL,
    home bigint,
    graph_leaves bigint NOT NULL DEFAULT 0,
    sequence bigint NOT NULL,
    documents bigint NOT NULL DEFAULT 0,
    chunks bigint NOT NULL DEFAULT 0,
    leaves bigint NOT NULL DEFAULT 0,
    tokens bigint NOT NULL DEFAULT 0,
    text_bytes bigint NOT NULL DEFAULT 0,
    vector_bytes bigint NOT NULL DEFAULT 0,
    stored_bytes bigint NOT NULL DEFAULT 0,
    terms bigint NOT NULL DEFAULT 0,
    unsummarised bigint NOT NULL DEFAULT 0,
    summary_tokens bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, collection_id)
) WITH (fillfactor = 50);

-- Deleted collections some of whose rows still exist in the other tables. Maintenance deletes the
-- rows later.
CREATE TABLE hrag.deleted_collections (
    tenant_id text COLLATE "C" NOT NULL,
    collection_id bigint NOT NULL,
    home bigint,
    PRIMARY KEY (tenant_id, collection_id)
);

-- Documents. `record` is JSON with title, source, metadata, sections and pages. `tree` is the chunk
-- tree, encoded with 40 bytes for each chunk. `term_count` is the document's share of the
-- collection's `terms`. `body` is the UTF-8 text. Its type is bytea because a text may contain NUL,
-- which the type text does not allow. `tree` and `body` are stored uncompressed, so that PostgreSQL
-- reads a range of bytes without the rest. In a summary collection, `summarised` says which
-- document, and which of its sections, the leaves summarise.
CREATE TABLE hrag.documents (
    tenant_id text COLLATE "C" NOT NULL,
    collection_id bigint NOT NULL,
    ordinal bigint NOT NULL,
    document_id text COLLATE "C" NOT NULL,
    content_hash text NOT NULL,
    sequence bigint NOT NULL,
    leaf_count integer NOT NULL,
    term_count bigint NOT NULL,
    is_unsummarised boolean NOT NULL,
    record bytea NOT NULL,
    tree bytea NOT NULL,
    body bytea NOT NULL,
    summarised bytea,
    PRIMARY KEY (tenant_id, collection_id, ordinal),
    UNIQUE (tenant_id, collection_id, document_id)
);
ALTER TABLE hrag.documents ALTER COLUMN tree SET STORAGE EXTERNAL;
ALTER TABLE hrag.documents ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX unsummarised ON hrag.documents (tenant_id, collection_id, ordinal)
    WHERE is_unsummarised;

-- Leaves of collections without a home, and the newest leaves of the others. `above` has the index of the leaf's ancestor at each
-- level; its first element is the index of the leaf itself. `embedding` is null in a collection
-- without vectors. The storage is PLAIN because scanning vectors that are stored out of line takes
-- six times as long.
CREATE TABLE hrag.leaves (
    tenant_id text COLLATE "C" NOT NULL,
    collection_id bigint NOT NULL,
    ordinal bigint NOT NULL,
    leaf integer NOT NULL,
    above integer[] NOT NULL,
    embedding halfvec,
    PRIMARY KEY (tenant_id, collection_id, ordinal, leaf)
);
-- Without a column that may be stored out of line, the table has no TOAST table.
ALTER TABLE hrag.leaves ALTER COLUMN tenant_id SET STORAGE PLAIN;
ALTER TABLE hrag.leaves ALTER COLUMN above SET STORAGE PLAIN;
ALTER TABLE hrag.leaves ALTER COLUMN embedding SET STORAGE PLAIN;

-- Filter terms. A filter term encodes a metadata field and one of its values; filters find the
-- ordinals of documents by their filter terms.
CREATE TABLE hrag.terms (
    tenant_id text COLLATE "C" NOT NULL,
    collection_id bigint NOT NULL,
    term bytea NOT NULL,
    ordinal bigint NOT NULL,
    PRIMARY KEY (tenant_id, collection_id, term, ordinal)
);

-- The lexical index. A commit writes a term vector for each document, which lists the terms of each
-- leaf with their frequencies. Maintenance later builds a part of the index from the term vectors
-- of many documents, and deletes these term vectors. A part has one row of postings for each term.
-- A deleted document whose postings are still in a part has a tombstone.
CREATE TABLE hrag.term_vectors (
    tenant_id text COLLATE "C" NOT NULL,
    collection_id bigint NOT NULL,
    ordinal bigint NOT NULL,
    leaf_count integer NOT NULL,
    vector bytea NOT NULL,
    PRIMARY KEY (tenant_id, collection_id, ordinal)
);
CREATE TABLE hrag.postings_parts (
    tenant_id text COLLATE "C" NOT NULL,
    collection_id bigint NOT NULL,
    part bigint NOT NULL,
    first_ordinal bigint NOT NULL,
    last_ordinal bigint NOT NULL,
    leaf_count bigint NOT NULL,
    PRIMARY KEY (tenant_id, collection_id, part)
);
CREATE TABLE hrag.postings (
    tenant_id text COLLATE "C" NOT NULL,
    collection_id bigint NOT NULL,
    term bigint NOT NULL,
    part bigint NOT NULL,
    postings bytea NOT NULL,
    PRIMARY KEY (tenant_id, collection_id, term, part)
);
CREATE TABLE hrag.tombstones (
    tenant_id text COLLATE "C" NOT NULL,
    collection_id bigint NOT NULL,
    ordinal bigint NOT NULL,
    leaf_count integer NOT NULL,
    PRIMARY KEY (tenant_id, collection_id, ordinal)
);

-- Keeps a tenant's rows where they are until the transaction ends. A transaction that writes rows of a
-- tenant calls it first. On one server, there is nothing to do; on Citus, hrag.distribute_tables gives
-- the function another body.
CREATE FUNCTION hrag.hold_placement(tenant text) RETURNS void LANGUAGE sql
SET search_path = pg_catalog
AS 'SELECT';
REVOKE ALL ON FUNCTION hrag.hold_placement FROM PUBLIC;

-- The schema for the tables of homes, leaves_<n>. A home has leaves of large collections and an HNSW
-- index.
CREATE SCHEMA hrag_homes;

-- The places of collections in homes. On one server, a home has one place. On Citus, a home is one
-- distributed table, and has at most one place in each of its shards. At the time `drop_after`,
-- maintenance clears the place, unless the collection uses it. The time is null if the collection
-- is known to use it. A place is cleared only when no transaction is running any more that began
-- before `transaction_id`, so that no running transaction may use it. On Citus, this table is on
-- the coordinator.
CREATE TABLE hrag.home_slots (
    home bigint NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    collection_id bigint NOT NULL,
    dimension integer NOT NULL,
    transaction_id xid8,
    drop_after timestamptz,
    PRIMARY KEY (home, tenant_id, collection_id)
);
