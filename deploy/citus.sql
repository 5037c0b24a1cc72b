-- Prepares a Citus cluster for the services of hrag. Run this on the coordinator as a superuser in
-- the database of hrag, after deploy/postgres/roles.sql and `hrag postgres migrate`. It may run again
-- at any time. docs/operations/postgres.md has all steps in order.
--
--   psql --dbname hrag --set secrets=/etc/hrag --file deploy/citus.sql
--
-- A service logs in to the coordinator as hrag and continues as hrag_service. The coordinator logs in
-- to the other nodes as the current role, so hrag_service needs the right to log in. Each node's
-- pg_hba.conf must allow this from the addresses of nodes only. psql reads the password of
-- hrag_service from the file `nodes` in the folder `secrets`, which is /secrets by default. Without
-- that file, the password does not change. At first hrag_service has none, and can log in only with
-- a certificate.
--
-- All statements run in one transaction, which Citus commits on all nodes.
\set ON_ERROR_STOP on
\if :{?secrets}
\else
\set secrets /secrets
\endif
\set nodes_password `test ! -e :'secrets'/nodes || cat :'secrets'/nodes`

BEGIN;
SET LOCAL client_min_messages = warning;
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') THEN
        IF EXISTS (SELECT FROM pg_dist_local_group WHERE groupid <> 0) THEN
            RAISE EXCEPTION 'this server is a node: run the script on the coordinator';
        END IF;
    END IF;
    IF to_regrole('hrag_service') IS NULL THEN
        RAISE EXCEPTION 'the role hrag_service does not exist: run deploy/postgres/roles.sql first';
    END IF;
    IF to_regprocedure('hrag.distribute_tables()') IS NULL THEN
        RAISE EXCEPTION 'the database % has no store of this version of hrag: run hrag postgres migrate first',
            current_database();
    END IF;
END
$$;

SELECT nullif(:'nodes_password', '') IS NOT NULL AS has_password \gset
\if :has_password
ALTER ROLE hrag_service LOGIN PASSWORD :'nodes_password';
\else
\echo hrag_service keeps its password, because there is no file :secrets/nodes.
ALTER ROLE hrag_service LOGIN;
\endif

-- The settings of searches, which the nodes do not get from the coordinator. Without them, a search
-- in an HNSW index on a node would return too few leaves. Citus copies these settings to all nodes,
-- also to nodes that are added later.
ALTER ROLE ALL IN DATABASE :"DBNAME" SET hnsw.ef_search = 200;
ALTER ROLE ALL IN DATABASE :"DBNAME" SET hnsw.iterative_scan = 'relaxed_order';
ALTER ROLE ALL IN DATABASE :"DBNAME" SET jit = off;
ALTER ROLE hrag_service IN DATABASE :"DBNAME" SET enable_seqscan = off;

-- Does nothing if `hrag postgres migrate` has distributed the tables.
CALL hrag.distribute_tables();
COMMIT;
