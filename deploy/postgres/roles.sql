-- Run this once as a superuser in the empty database of hrag, before `hrag postgres migrate`. The
-- image of deploy/postgres.yml does this when it creates its volume. psql reads the passwords from
-- files in /secrets:
--
--   psql --dbname hrag --file deploy/postgres/roles.sql
--
-- hrag_owner owns the schema; only `hrag postgres migrate` uses it. hrag_service has the rights of
-- indexers and retrievers; hrag is the user that they log in as. Everything that hrag creates
-- belongs to hrag_service, so that another user with that role may replace it.
\set ON_ERROR_STOP on
\set owner_password `cat /secrets/owner`
\set service_password `cat /secrets/service`

CREATE ROLE hrag_owner LOGIN PASSWORD :'owner_password';
CREATE ROLE hrag_service NOLOGIN;
CREATE ROLE hrag_sql_reader NOLOGIN;
CREATE ROLE hrag LOGIN PASSWORD :'service_password' IN ROLE hrag_service;
ALTER ROLE hrag SET role = 'hrag_service';

GRANT CREATE ON DATABASE :"DBNAME" TO hrag_owner;
CREATE EXTENSION IF NOT EXISTS vector;
