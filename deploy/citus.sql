-- Distributes the tables of hrag over the nodes of a Citus cluster, by tenant: a tenant's rows
-- are on one node, and so is each transaction on them. Run it once, on the coordinator, as a
-- superuser, in the database of hrag, after `hrag postgres migrate` and before the first document:
--
--   psql --dbname hrag --set ON_ERROR_STOP=1 --file deploy/citus.sql
--
-- The script is based on the design and on measurements of a prototype on Citus 14. This version
-- has NOT been run on a cluster; docs/operations/postgres.md says what to test first.

-- Requirements: the database exists on each node, with the extensions citus and vector, and the
-- nodes have been added with SELECT citus_add_node('worker-1.example', 5432).

-- Citus sends SET LOCAL to workers only with this setting. It never sends set_config(), so the
-- settings of searches are set in the database of each node.
ALTER DATABASE :"DBNAME" SET citus.propagate_set_commands = 'local';
SELECT run_command_on_all_nodes(format('ALTER DATABASE %I SET %s', current_database(), setting))
FROM unnest(ARRAY[
    'hnsw.ef_search = 200',
    'hnsw.iterative_scan = ''relaxed_order''',
    'jit = off'
]) AS setting;

-- The number of shards of each table, including those of homes. It cannot be changed without
-- moving all data, so choose two or three for each core that you will have later. Each home has
-- two tables and an index with this number of shards, so do not choose more.
SET citus.shard_count = 32;

-- hrag.tenants is distributed first, because the other tables are placed with it.
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

-- These tables stay on the coordinator: the work lists, which contain tenants of all nodes and are
-- read with FOR UPDATE and without a tenant, and the tables of the store itself.
-- Local: deleted_collections, unused_homes, migrations, sql_tenants.

-- hrag creates homes while it runs: two tables in the schema hrag_homes. A trigger distributes each
-- table when it is created and still empty, so that its rows are on the node of the tenant's
-- documents. It also puts the tenant into the key, because Citus requires this of a unique key.
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
            AND c.relname ~ '^(leaves|tail)_[0-9]+$' -- The names of shards have a second number.
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
