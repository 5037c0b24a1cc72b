-- Creates the tables of hrag. Their keys begin with the tenant. Statements on them bind tenant_id.
--
-- A collection's number is never used twice. An ordinal identifies one version of one document. It
-- is the tenant's sequence at the commit that stored the version, so no tenant uses it twice.

CREATE SCHEMA hrag;

-- The migrations that have run.
CREATE TABLE hrag.migrations (
    version integer PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- A tenant's usage and the sequence of its last change. The row also serves as the lock of the
-- tenant's writers: every change updates it first. It is never deleted, so sequences never restart.
CREATE TABLE hrag.tenants (
    tenant_id text COLLATE "C" PRIMARY KEY,
    sequence bigint NOT NULL DEFAULT 0,
    collections bigint NOT NULL DEFAULT 0,
    documents bigint NOT NULL DEFAULT 0,
    stored_bytes bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- Names and aliases of collections. They are in one table, so that no name is used twice.
CREATE TABLE hrag.names (
    tenant_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    collection_id bigint NOT NULL,
    is_alias boolean NOT NULL,
    PRIMARY KEY (tenant_id, name)
);

-- Numbers of collections. A collection's summary collection has the next number.
CREATE SEQUENCE hrag.collection_ids INCREMENT BY 2;
CREATE SEQUENCE hrag.home_ids;

-- Collections and their running totals. `record` is JSON that was fixed at creation. With a
-- `home`, the leaves are in the tables leaves_<home> and tail_<home> of the schema hrag_homes,
-- otherwise in hrag.leaves. `terms` is the number of occurrences of terms in all living leaves.
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

-- Deleted collections whose rows still exist.
CREATE TABLE hrag.deleted_collections (
    tenant_id text COLLATE "C" NOT NULL,
    collection_id bigint NOT NULL,
    home bigint,
    PRIMARY KEY (tenant_id, collection_id)
);

-- Documents. `record` is JSON with title, source, metadata, sections and pages. `tree` is the
-- packed tree, 40 bytes a chunk. `term_count` is the document's share of the collection's `terms`.
-- `body` is the UTF-8 text. Its type is bytea because a text may contain NUL, which the type text
-- does not allow; parts of an uncompressed bytea are read without the rest. In a summary
-- collection, `summarised` says which parts of which document the leaves summarise.
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
-- level; the first one is the leaf itself. `embedding` is null in a collection without vectors.
-- The storage is PLAIN because vectors that are stored out of line take six times as long to scan.
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

-- Filter terms: filters use them to find documents.
CREATE TABLE hrag.terms (
    tenant_id text COLLATE "C" NOT NULL,
    collection_id bigint NOT NULL,
    term bytea NOT NULL,
    ordinal bigint NOT NULL,
    PRIMARY KEY (tenant_id, collection_id, term, ordinal)
);

-- The lexical index. At first, a document's leaves are in its term vector, which lists the terms
-- of each leaf with their frequencies. Maintenance later builds a part from the term vectors of
-- many documents. A part consists of postings, one row for each term. A deleted document whose
-- postings are still in a part has a tombstone.
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

-- The schema of the tables of homes, leaves_<n> and tail_<n>.
CREATE SCHEMA hrag_homes;

-- Homes to drop. A home is dropped after the time `drop_after`, once no transaction that may use
-- it is running. The table lists homes that another home has replaced. It also lists each new home
-- until the home is in use, so that a home that was never completed is dropped.
CREATE TABLE hrag.unused_homes (
    tenant_id text COLLATE "C" NOT NULL,
    home bigint PRIMARY KEY,
    transaction_id xid8 NOT NULL DEFAULT pg_current_xact_id(),
    drop_after timestamptz NOT NULL
);
