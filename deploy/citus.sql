-- Distributes the tables of hrag over the nodes of a Citus cluster, by tenant: a tenant's rows
-- are on one node, and so is each transaction on them. Run it once, on the coordinator, as a
-- superuser, in the database of hrag, after `hrag postgres migrate` and before the first document:
--
--   psql --dbname hrag --set ON_ERROR_STOP=1 --file deploy/citus.sql
--
-- It follows from the design and from measurements of a prototype on Citus 14. It has NOT been
-- run on a cluster as it stands; docs/operations/postgres.md says what to try first.

-- The database exists on each node, with the extensions citus and vector, and the nodes are
-- added: SELECT citus_add_node('worker-1.example', 5432).

-- Workers ignore settings of a transaction otherwise. SET LOCAL is sent to them then; what
-- set_config() sets is not, so that workers have the settings of searches themselves.
ALTER DATABASE :"DBNAME" SET citus.propagate_set_commands = 'local';
SELECT run_command_on_all_nodes(format('ALTER DATABASE %I SET %s', current_database(), setting))
FROM unnest(ARRAY[
    'hnsw.ef_search = 200',
    'hnsw.iterative_scan = ''relaxed_order''',
    'jit = off'
]) AS setting;

-- Shards of each table, and so of each home: two or three for each core that is to come, for
-- their number cannot be changed without moving everything, but each home has two tables and an
-- index of so many shards.
SET citus.shard_count = 32;

-- hrag.tenants first: the others are placed with it.
SELECT create_distributed_table('hrag.tenants', 'tenant_id', colocate_with => 'none');
SELECT create_distributed_table('hrag.names', 'tenant_id', colocate_with => 'hrag.tenants');
SELECT create_distributed_table('hrag.collections', 'tenant_id', colocate_with => 'hrag.tenants');
SELECT create_distributed_table('hrag.documents', 'tenant_id', colocate_with => 'hrag.tenants');
SELECT create_distributed_table('hrag.leaves', 'tenant_id', colocate_with => 'hrag.tenants');
SELECT create_distributed_table('hrag.terms', 'tenant_id', colocate_with => 'hrag.tenants');
SELECT create_distributed_table('hrag.term_vectors', 'tenant_id', colocate_with => 'hrag.tenants');
SELECT create_distributed_table('hrag.postings_parts', 'tenant_id', colocate_with => 'hrag.tenants');
SELECT create_distributed_table('hrag.postings', 'tenant_id', colocate_with => 'hrag.tenants');
SELECT create_distributed_table('hrag.tombstones', 'tenant_id', colocate_with => 'hrag.tenants');

-- Lists of work that any node's tenants may be in, which are read with FOR UPDATE and without a
-- tenant, stay on the coordinator; so do its own tables.
-- Local: deleted_collections, unused_homes, migrations, sql_tenants.

-- Homes are made while hrag runs: two tables in the schema hrag_homes. A trigger distributes each
-- as soon as it is there, still empty, so that its rows lie with the tenant's documents. Its key
-- begins with the tenant then, as Citus wants of every unique key.
CREATE FUNCTION hrag.distribute_home() RETURNS event_trigger LANGUAGE plpgsql AS $$
DECLARE
    home regclass;
    key name;
BEGIN
    FOR home, key IN
        SELECT c.oid, k.conname
        FROM pg_event_trigger_ddl_commands() AS made JOIN pg_class AS c ON c.oid = made.objid
            JOIN pg_constraint AS k ON k.conrelid = c.oid AND k.contype = 'p'
        WHERE made.schema_name = 'hrag_homes'
            AND c.relname ~ '^(leaves|tail)_[0-9]+$' -- Names of shards have one more number.
    LOOP
        EXECUTE format(
            'ALTER TABLE %s DROP CONSTRAINT %I, ADD PRIMARY KEY (tenant_id, ordinal, leaf)',
            home, key);
        PERFORM create_distributed_table(home, 'tenant_id', colocate_with => 'hrag.tenants');
    END LOOP;
END
$$;
REVOKE ALL ON FUNCTION hrag.distribute_home FROM PUBLIC;
CREATE EVENT TRIGGER hrag_homes ON ddl_command_end WHEN TAG IN ('CREATE TABLE')
    EXECUTE FUNCTION hrag.distribute_home();
