-- Distributes the tables of hrag over the nodes of a Citus cluster, by tenant: all rows of a tenant
-- are on one node, and so is each transaction on them. hrag.sql_tenants is copied to each node. Two
-- tables stay on the coordinator: hrag.migrations, and hrag.home_slots, which is about all tenants.
--
-- The owner or a superuser calls the procedure on the coordinator; `hrag postgres migrate` does so in
-- a database with nodes of Citus. It skips tables that are distributed already. Tables may have rows:
-- Citus moves them to the nodes. The number of shards is the setting citus.shard_count.
--
-- The homes of a store on one server are distributed too, but only if the caller has the rights of
-- their owner, the role of the services. A superuser has these rights.
CREATE PROCEDURE hrag.distribute_tables() LANGUAGE plpgsql AS $$
DECLARE
    name text;
    home regclass;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') THEN
        RAISE EXCEPTION 'the database % does not have the extension citus', current_database();
    END IF;
    IF NOT EXISTS (
        SELECT FROM pg_dist_node WHERE shouldhaveshards AND isactive AND noderole = 'primary'
    ) THEN
        RAISE EXCEPTION 'the cluster has no node for tables: add one with citus_add_node';
    END IF;
    IF NOT EXISTS (
        SELECT FROM pg_dist_partition WHERE logicalrelid = 'hrag.sql_tenants'::regclass
    ) THEN
        PERFORM create_reference_table('hrag.sql_tenants');
    END IF;
    -- Policies call this function within statements on shards. Citus forbids such a function to read
    -- a table of the cluster, because the table might be on other nodes. This table is on each node.
    ALTER FUNCTION hrag.readable_tenants() SET citus.allow_nested_distributed_execution = on;
    -- Citus 14 loses what a statement writes that waited for a split: if it is the first of its
    -- transaction that writes, it writes into the old shard, because it knows the new ones only when
    -- it is planned. So a transaction first takes the lock that statements wait for (5 is SHARE), and
    -- looks whether the shard still exists. Only the owner of the tables may take it.
    CREATE OR REPLACE FUNCTION hrag.hold_placement(tenant text) RETURNS void LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog
    AS $hold$
    DECLARE
        shard bigint;
    BEGIN
        LOOP
            shard := get_shard_id_for_distribution_column('hrag.tenants', tenant);
            PERFORM lock_shard_metadata(5, ARRAY[shard]);
            EXIT WHEN EXISTS (SELECT FROM pg_dist_shard WHERE shardid = shard);
        END LOOP;
    END
    $hold$;
    -- hrag.tenants is the first table, because the others are placed with it.
    FOREACH name IN ARRAY ARRAY[
        'tenants', 'names', 'collections', 'documents', 'leaves', 'terms', 'term_vectors',
        'postings_parts', 'postings', 'tombstones', 'deleted_collections'
    ] LOOP
        IF NOT EXISTS (
            SELECT FROM pg_dist_partition WHERE logicalrelid = format('hrag.%I', name)::regclass
        ) THEN
            PERFORM create_distributed_table(
                format('hrag.%I', name), 'tenant_id',
                colocate_with => CASE name WHEN 'tenants' THEN 'none' ELSE 'hrag.tenants' END);
        END IF;
    END LOOP;
    -- The names of shards have a second number.
    FOR home IN
        SELECT oid FROM pg_class
        WHERE relnamespace = 'hrag_homes'::regnamespace AND relname ~ '^leaves_[0-9]+$'
            AND relkind = 'r' AND pg_has_role(relowner, 'USAGE')
            AND oid NOT IN (SELECT logicalrelid FROM pg_dist_partition)
    LOOP
        PERFORM create_distributed_table(home, 'tenant_id', colocate_with => 'hrag.tenants');
    END LOOP;
    -- Citus copies the view to the nodes with the tables, but not its rights.
    IF to_regrole('hrag_sql_reader') IS NOT NULL THEN
        GRANT SELECT ON hrag.chunks TO hrag_sql_reader;
    END IF;
END
$$;
REVOKE ALL ON PROCEDURE hrag.distribute_tables FROM PUBLIC;
