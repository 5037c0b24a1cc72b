-- Every table of hrag, keyed by tenant first. Statements on them bind tenant_id.
--
-- A collection's number is never used twice. An ordinal names one version of one document: it
-- is the tenant's sequence at the commit that stored it, so it is never used twice in a tenant.

CREATE SCHEMA hrag;

-- What made the schema.
CREATE TABLE hrag.migrations (
    version integer PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- What a tenant has, and the number of its last change. Its row is the lock of its writers:
-- every change updates it first. It is never deleted, so that sequences never begin again.
CREATE TABLE hrag.tenants (
    tenant_id text COLLATE "C" PRIMARY KEY,
    sequence bigint NOT NULL DEFAULT 0,
    collections bigint NOT NULL DEFAULT 0,
    documents bigint NOT NULL DEFAULT 0,
    stored_bytes bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- Names and aliases of collections in one table, so that none is used twice.
CREATE TABLE hrag.names (
    tenant_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    collection_id bigint NOT NULL,
    is_alias boolean NOT NULL,
    PRIMARY KEY (tenant_id, name)
);

-- The number of a collection; the next one is that of its summaries.
CREATE SEQUENCE hrag.collection_ids INCREMENT BY 2;
CREATE SEQUENCE hrag.home_ids;

-- Collections and their running totals. `record` is what was fixed at creation. With a `home`,
-- the leaves are in the tables leaves_<home> and tail_<home> of the schema hrag_homes, else in
-- hrag.leaves. `terms` is the number of occurrences of terms in all living leaves.
CREATE TABLE hrag.collections (
    tenant_id text COLLATE "C" NOT NULL,
    collection_id bigint NOT NULL,
    record jsonb NOT NULL,
    home bigint,
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

-- Collections whose rows are still to be deleted.
CREATE TABLE hrag.deleted_collections (
    tenant_id text COLLATE "C" NOT NULL,
    collection_id bigint NOT NULL,
    home bigint,
    PRIMARY KEY (tenant_id, collection_id)
);

-- `record` is JSON with title, source, metadata, sections and pages; `tree` the packed tree,
-- 40 bytes a chunk; `body` the UTF-8 text; `term_count` the document's share of the
-- collection's `terms`. Text may hold what the type text refuses (NUL), and
-- parts of a bytea that is not compressed are read without the rest. In a summary collection,
-- `summarised` says what the document's leaves are summaries of.
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

-- Leaves of collections without a home. `above` has the index of the leaf's ancestor at each
-- level, from the leaf's own up; `embedding` is null in a collection without vectors. Vectors
-- that are stored out of line take six times as long to scan.
CREATE TABLE hrag.leaves (
    tenant_id text COLLATE "C" NOT NULL,
    collection_id bigint NOT NULL,
    ordinal bigint NOT NULL,
    leaf integer NOT NULL,
    above integer[] NOT NULL,
    embedding halfvec,
    PRIMARY KEY (tenant_id, collection_id, ordinal, leaf)
);
ALTER TABLE hrag.leaves ALTER COLUMN above SET STORAGE PLAIN;
ALTER TABLE hrag.leaves ALTER COLUMN embedding SET STORAGE PLAIN;

-- By which filters find documents.
CREATE TABLE hrag.terms (
    tenant_id text COLLATE "C" NOT NULL,
    collection_id bigint NOT NULL,
    term bytea NOT NULL,
    ordinal bigint NOT NULL,
    PRIMARY KEY (tenant_id, collection_id, term, ordinal)
);

-- The lexical index. A document's leaves are in its term vector (which terms each has, how
-- often) until maintenance has built a part of many of them: postings, one row a term and part.
-- A deleted document that a part still holds has a tombstone.
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

-- The tables of homes, leaves_<n> and tail_<n>.
CREATE SCHEMA hrag_homes;

-- Homes that are to be dropped once no transaction that may use them is left, and it is
-- `drop_after`: those that others have replaced, and, until it is in use, each that is being
-- filled.
CREATE TABLE hrag.unused_homes (
    tenant_id text COLLATE "C" NOT NULL,
    home bigint PRIMARY KEY,
    transaction_id xid8 NOT NULL DEFAULT pg_current_xact_id(),
    drop_after timestamptz NOT NULL
);
