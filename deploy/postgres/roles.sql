-- Creates the roles of hrag. Run this as a superuser in the database of hrag, before
-- `hrag postgres migrate`; in a cluster of Citus, on the coordinator, after its nodes were added. It
-- may run again at any time, for example to set new passwords. The image of deploy/postgres.yml runs
-- it when it creates its volume.
--
--   psql --dbname hrag --set secrets=/etc/hrag --file deploy/postgres/roles.sql
--
-- psql reads the passwords from the files `owner` and `service` in the folder `secrets`, which is
-- /secrets by default. All statements run in one transaction.
--
-- hrag_owner owns the schema; only `hrag postgres migrate` and `hrag check` use it. hrag_service has
-- the rights of indexers and retrievers; hrag is the user that they log in as. Everything that hrag
-- creates belongs to hrag_service, so that another user with that role may replace it.
\set ON_ERROR_STOP on
\if :{?secrets}
\else
\set secrets /secrets
\endif
\set owner_password `cat :'secrets'/owner`
\set service_password `cat :'secrets'/service`

BEGIN;
SET LOCAL client_min_messages = warning;
SELECT :'owner_password' = '' OR :'service_password' = '' AS is_incomplete \gset
\if :is_incomplete
SELECT set_config('hrag.secrets', :'secrets', true) \gset
DO $$
BEGIN
    RAISE EXCEPTION 'the folder % needs the files owner and service, each with a password; --set secrets=FOLDER names another folder',
        current_setting('hrag.secrets');
END
$$;
\endif

SELECT format('CREATE ROLE %I', name) FROM unnest(ARRAY[
    'hrag_owner', 'hrag_service', 'hrag_sql_reader', 'hrag'
]) AS name WHERE to_regrole(name) IS NULL \gexec

-- Citus copies a role to the other nodes when the role is created, and then all changes of the role.
-- A role that existed before the nodes were added is copied with a table of the nodes that it owns.
SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') AS has_citus \gset
\if :has_citus
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['hrag_owner', 'hrag_service', 'hrag_sql_reader', 'hrag'] LOOP
        CONTINUE WHEN EXISTS (
            SELECT FROM pg_dist_object
            WHERE classid = 'pg_authid'::regclass AND objid = to_regrole(name)
        );
        CREATE SCHEMA hrag_copied_role;
        CREATE TABLE hrag_copied_role.owned ();
        EXECUTE format('ALTER TABLE hrag_copied_role.owned OWNER TO %I', name);
        PERFORM create_reference_table('hrag_copied_role.owned');
        DROP SCHEMA hrag_copied_role CASCADE;
    END LOOP;
END
$$;
\endif

ALTER ROLE hrag_owner LOGIN PASSWORD :'owner_password';
ALTER ROLE hrag LOGIN PASSWORD :'service_password';
GRANT hrag_service TO hrag;
ALTER ROLE hrag SET role = 'hrag_service';

GRANT CREATE ON DATABASE :"DBNAME" TO hrag_owner;
CREATE EXTENSION IF NOT EXISTS vector;
COMMIT;
