"""The rules of `citus_rules` refuse what a Citus cluster refuses, and nothing that it runs well.

Each refused statement was tried on a cluster with Citus 14.0.1, distributed by deploy/citus.sql.
With `--engine=citus`, a test tries them again.
"""

import re
from collections.abc import Iterator

import psycopg
import pytest

from tests.support.engines.citus_rules import placement, policy_problems, problems
from tests.support.servers.postgres_server import PostgresServer

COMPLEX = (
    "complex joins are only supported when all distributed tables are co-located and joined on"
    " their distribution columns"
)
DIRECT = "direct joins between distributed and local tables are not supported"
REPARTITION = "the query contains a join that requires repartitioning"
LOCKS = "could not run distributed query with FOR UPDATE/SHARE commands"
IMMUTABLE = (
    "functions used in the DO UPDATE SET clause of INSERTs on distributed tables must be marked"
    " IMMUTABLE"
)
VOLATILE = "functions used in UPDATE queries on distributed tables must not be VOLATILE"
NO_SUBQUERY = "subqueries are not supported within INSERT queries"
PUSH_DOWN = "cannot push down this subquery"
MODIFICATION = "cannot perform distributed planning for the given modification"
CARTESIAN = "cannot perform distributed planning on this query"
SECURED = "COPY FROM not supported with row-level security"
IN_POLICIES = "unexpected non-SELECT command in SubLink"

# Each statement with the message of the cluster. Some are statements of earlier versions of hrag.
REFUSED = {
    "SELECT c.record, (SELECT reltuples FROM pg_class WHERE relname = 'leaves_' || c.home)"
    " FROM hrag.collections c WHERE c.tenant_id = 't'": DIRECT,
    "SELECT FROM hrag.collections c WHERE c.tenant_id = 't' AND EXISTS ("
    "SELECT FROM hrag.home_slots d WHERE d.tenant_id = c.tenant_id)": DIRECT,
    "DELETE FROM hrag.leaves AS stored WHERE NOT EXISTS (SELECT FROM hrag.documents d"
    " WHERE d.tenant_id = 't' AND d.ordinal = stored.ordinal)": COMPLEX,
    "SELECT FROM hrag.documents JOIN hrag.leaves USING (ordinal)": REPARTITION,
    "SELECT FROM hrag.documents d JOIN hrag.leaves l USING (ordinal)"
    " WHERE d.tenant_id = 't'": REPARTITION,
    "SELECT FROM hrag.documents d JOIN hrag.leaves l USING (ordinal)"
    " WHERE d.tenant_id = 't' AND l.tenant_id = 'u'": REPARTITION,
    "SELECT FROM hrag.documents d LEFT JOIN hrag.leaves l USING (ordinal)"
    " WHERE d.tenant_id = 't'": COMPLEX,
    "SELECT (SELECT count(*) FROM hrag.leaves l WHERE l.ordinal = d.ordinal)"
    " FROM hrag.documents d WHERE d.tenant_id = 't'": COMPLEX,
    "SELECT FROM hrag.documents d WHERE EXISTS ("
    "SELECT FROM hrag.leaves l WHERE l.ordinal > d.ordinal)": COMPLEX,
    "SELECT ARRAY(SELECT term FROM hrag.terms t WHERE t.ordinal = d.ordinal)"
    " FROM hrag.documents d": COMPLEX,
    "SELECT FROM hrag.names n FULL JOIN hrag.collections c"
    " ON n.collection_id = c.collection_id": COMPLEX,
    "SELECT FROM hrag.names, hrag.collections": CARTESIAN,
    "SELECT FROM hrag.collections c, LATERAL (SELECT ordinal FROM hrag.documents d"
    " WHERE d.collection_id = c.collection_id ORDER BY ordinal LIMIT 1) AS first": COMPLEX,
    "SELECT FROM unnest('{1}'::bigint[]) AS c (ordinal), LATERAL ("
    "SELECT leaf FROM hrag.leaves l WHERE l.ordinal = c.ordinal OFFSET 0) AS stored": PUSH_DOWN,
    "SELECT FROM hrag.collections c WHERE c.tenant_id = 't' AND EXISTS ("
    "SELECT d.ordinal FROM hrag.documents d WHERE d.collection_id = c.collection_id"
    " EXCEPT SELECT ordinal FROM hrag.leaves)": COMPLEX,
    "SELECT tenant_id FROM hrag.documents d GROUP BY tenant_id HAVING count(*) > ("
    "SELECT count(*) FROM hrag.terms t WHERE t.tenant_id = d.tenant_id)": (
        "Subqueries in HAVING cannot refer to outer query"
    ),
    "SELECT tenant_id, collection_id, count(*) FROM hrag.documents"
    " GROUP BY GROUPING SETS ((tenant_id), (collection_id))": (
        "could not run distributed query with GROUPING SETS, CUBE, or ROLLUP"
    ),
    "WITH RECURSIVE r AS (SELECT ordinal FROM hrag.documents WHERE ordinal = 0 UNION ALL"
    " SELECT d.ordinal FROM hrag.documents d JOIN r ON d.ordinal = r.ordinal + 1)"
    " SELECT * FROM r": (
        "recursive CTEs are only supported when they contain a filter on the distribution column"
    ),
    "SELECT tenant_id FROM hrag.tenants LIMIT 1 FOR UPDATE SKIP LOCKED": LOCKS,
    "SELECT FROM hrag.tenants WHERE tenant_id IN ('t', 'u') FOR UPDATE": LOCKS,
    "DELETE FROM hrag.terms WHERE ctid = ANY(ARRAY(SELECT ctid FROM hrag.terms LIMIT 10))": (
        MODIFICATION
    ),
    "UPDATE hrag.tenants t SET documents = c.documents FROM hrag.collections c"
    " WHERE c.sequence = t.sequence AND t.tenant_id = 't'": COMPLEX,
    "UPDATE hrag.tenants SET tenant_id = 'u' WHERE tenant_id = 't'": (
        "modifying the partition value of rows is not allowed"
    ),
    "UPDATE hrag.collections SET home = nextval('hrag.home_ids') WHERE tenant_id = 't'": VOLATILE,
    "UPDATE hrag.tenants SET sequence = (random() * sequence)::bigint"
    " WHERE tenant_id = 't'": VOLATILE,
    "DELETE FROM hrag.terms WHERE tenant_id = 't' AND random() < 0.5": (
        "functions used in the WHERE/ON/WHEN clause of modification queries on distributed tables"
        " must not be VOLATILE"
    ),
    "DELETE FROM hrag.terms WHERE tenant_id = 't' AND now() - ordinal * interval '1 s' < now()": (
        "STABLE functions used in UPDATE queries cannot be called with column references"
    ),
    "INSERT INTO hrag.terms (collection_id, term, ordinal) VALUES (1, 'a', 1)": (
        "cannot perform an INSERT without a partition column value"
    ),
    "INSERT INTO hrag.terms (tenant_id, collection_id, term, ordinal)"
    " VALUES (NULL, 1, 'a', 1)": "cannot perform an INSERT with NULL in the partition column",
    "INSERT INTO hrag.terms (tenant_id, collection_id, term, ordinal) VALUES ('t', ("
    "SELECT max(collection_id) FROM hrag.collections WHERE tenant_id = 't'), 'a', 1)": NO_SUBQUERY,
    "INSERT INTO hrag.tenants (tenant_id) VALUES ('t') ON CONFLICT (tenant_id)"
    " DO UPDATE SET sequence = extract(epoch FROM now())::bigint": IMMUTABLE,
    "INSERT INTO hrag.tenants (tenant_id) VALUES ('t') ON CONFLICT (tenant_id)"
    " DO UPDATE SET sequence = random()::bigint": IMMUTABLE,
    "INSERT INTO hrag.tenants (tenant_id) VALUES ('t') ON CONFLICT (tenant_id)"
    " DO UPDATE SET sequence = (SELECT max(sequence) FROM hrag.collections)": NO_SUBQUERY,
    "MERGE INTO hrag.tenants t USING (VALUES ('t', 1)) AS n (tenant_id, s)"
    " ON t.tenant_id = n.tenant_id WHEN MATCHED THEN UPDATE SET sequence = s": (
        "To MERGE into a distributed table, source must be Citus table(s)"
    ),
}
_COLUMNS = (
    "INSERT INTO hrag.documents (tenant_id, collection_id, ordinal, document_id, content_hash,"
    " sequence, leaf_count, term_count, is_unsummarised, record, tree, body)"
)
# Statements that the cluster refuses if the role is subject to row-level security.
REFUSED_WITH_POLICIES = {
    f"{_COLUMNS} SELECT 't', 1, 7, 'd7', 'h', 1, 1, 1, false, 'r', 't', 'b'": SECURED,
    f"{_COLUMNS} SELECT 't', number, 7, 'd7', 'h', 1, 1, 1, false, 'r', 't', 'b'"
    " FROM unnest('{1,2}'::bigint[]) AS numbers (number)": SECURED,
}
# Statements that the cluster runs on several nodes, in two phases, or by copying rows. Others give
# another result than on one server.
NOT_ON_ONE_NODE = [
    ("SELECT FROM hrag.collections JOIN hrag.home_slots USING (tenant_id) WHERE tenant_id = 't'"),
    (
        "SELECT FROM hrag.collections JOIN pg_class ON relname = 'leaves_' || home"
        " WHERE tenant_id = 't'"
    ),
    (
        "SELECT FROM hrag.tenants WHERE tenant_id = 't' AND NOT EXISTS ("
        "SELECT FROM pg_stat_activity WHERE application_name = tenants.tenant_id)"
    ),
    "SELECT home FROM hrag.collections UNION ALL SELECT home FROM hrag.home_slots",
    "SELECT count(*) FROM hrag_homes.leaves_1 WHERE true",
    "SELECT FROM hrag.collections WHERE tenant_id = 't' OR tenant_id = 'u'",
    "SELECT FROM hrag.collections WHERE tenant_id IN ('t', 'u')",
    "SELECT FROM hrag.collections WHERE lower(tenant_id) = 't'",
    "SELECT FROM hrag.collections WHERE tenant_id = (SELECT 't')",
    "SELECT FROM hrag.documents WHERE tenant_id <> 't'",
    (
        "SELECT FROM hrag.documents WHERE tenant_id = 't' AND ordinal NOT IN ("
        "SELECT ordinal FROM hrag.leaves)"
    ),
    (
        "SELECT FROM (SELECT tenant_id FROM hrag.terms WHERE tenant_id = 't' UNION"
        " SELECT tenant_id FROM hrag.leaves) AS both"
    ),
    (
        "SELECT FROM hrag.documents d LEFT JOIN hrag.leaves l ON l.tenant_id = d.tenant_id"
        " AND l.tenant_id = 't'"
    ),
    (
        "UPDATE hrag.documents AS d SET term_count = n.term_count"
        " FROM unnest('{1}'::bigint[], '{1}'::bigint[]) AS n (ordinal, term_count)"
        " WHERE d.ordinal = n.ordinal"
    ),
    (
        "INSERT INTO hrag.terms (tenant_id, collection_id, term, ordinal)"
        " SELECT 't', 1, 'a', ordinal FROM unnest('{1}'::bigint[]) AS new (ordinal)"
    ),
    (
        "INSERT INTO hrag.tombstones (tenant_id, collection_id, ordinal, leaf_count)"
        " SELECT 't', collection_id, ordinal, leaf_count FROM hrag.term_vectors"
        " WHERE tenant_id = 't'"
    ),
    (
        "WITH removed AS (DELETE FROM hrag.leaves WHERE tenant_id = 't' RETURNING *)"
        " INSERT INTO hrag_homes.leaves_1 SELECT * FROM removed"
    ),
    (
        "WITH removed AS (DELETE FROM hrag.collections WHERE tenant_id = 't' RETURNING *)"
        " INSERT INTO hrag.home_slots (tenant_id, collection_id)"
        " SELECT tenant_id, collection_id FROM removed"
    ),
    (
        "WITH counted AS (UPDATE hrag.tenants SET documents = 1 WHERE tenant_id = 't' RETURNING 1)"
        " UPDATE hrag.collections SET documents = 1 WHERE tenant_id = 't'"
    ),
    (
        "SELECT ARRAY(SELECT term FROM hrag.terms t WHERE t.tenant_id = d.tenant_id)"
        " FROM hrag.documents d WHERE tenant_id = 't'"
    ),
    (
        "SELECT FROM hrag.documents d WHERE tenant_id = 't' AND leaf_count > ("
        "SELECT count(*) FROM hrag.terms t WHERE t.tenant_id = d.tenant_id)"
    ),
    (
        "SELECT FROM hrag.documents d WHERE tenant_id = 't' AND (leaf_count = 1 OR EXISTS ("
        "SELECT FROM hrag.terms t WHERE t.tenant_id = d.tenant_id))"
    ),
    (
        "SELECT FROM hrag.documents d, LATERAL (SELECT FROM hrag.terms t"
        " WHERE t.tenant_id = d.tenant_id LIMIT 1) AS found WHERE tenant_id = 't'"
    ),
    "COPY hrag.documents (tenant_id) FROM STDIN",
    "COPY hrag.collections (tenant_id) FROM STDIN (FORMAT BINARY)",
    "COPY hrag.terms (collection_id) FROM STDIN",
    "COPY hrag.terms TO STDOUT",
    "SELECT to_regtype('halfvec')::oid FROM hrag.tenants WHERE tenant_id = 't'",
    "SELECT 'hrag.leaves'::regclass FROM hrag.tenants WHERE tenant_id = 't'",
    "SELECT pg_snapshot_xmin(pg_current_snapshot()) FROM hrag.tenants WHERE tenant_id = 't'",
    "BEGIN READ ONLY; SET LOCAL enable_seqscan = off; SET LOCAL jit = off",
    "; SET LOCAL statement_timeout = 10",
]
# Statements that one node runs alone.
ON_ONE_NODE = [
    "SELECT FROM hrag.collections WHERE tenant_id = %s AND collection_id = %s",
    "SELECT FROM hrag.collections WHERE (tenant_id, collection_id) = (%s, %s)",
    "SELECT FROM hrag.collections WHERE (tenant_id, collection_id) IN ((%s, %s))",
    (
        "SELECT FROM hrag.names n JOIN hrag.collections c USING (tenant_id, collection_id)"
        " LEFT JOIN hrag.documents d ON d.tenant_id = n.tenant_id WHERE n.tenant_id = %(tenant)s"
    ),
    (
        "SELECT ARRAY(SELECT term FROM hrag.terms t WHERE t.tenant_id = %(tenant)s)"
        " FROM hrag.documents d WHERE tenant_id = %(tenant)s FOR UPDATE SKIP LOCKED"
    ),
    (
        "SELECT FROM hrag.documents d WHERE tenant_id = %(tenant)s AND NOT EXISTS ("
        "SELECT FROM hrag.terms t WHERE t.tenant_id = d.tenant_id) AND ordinal IN ("
        "SELECT ordinal FROM hrag.leaves l WHERE l.tenant_id = d.tenant_id)"
    ),
    (
        "SELECT FROM hrag.documents d, LATERAL (SELECT FROM hrag.terms t"
        " WHERE t.tenant_id = d.tenant_id) AS found WHERE tenant_id = %(tenant)s"
    ),
    (
        "SELECT FROM (SELECT tenant_id FROM hrag.terms UNION SELECT tenant_id FROM hrag.leaves)"
        " AS both WHERE tenant_id = %(tenant)s"
    ),
    (
        "WITH part AS (SELECT * FROM hrag.leaves WHERE tenant_id = %(tenant)s) SELECT FROM part"
        " JOIN hrag.documents d USING (tenant_id, ordinal)"
    ),
    (
        "SELECT FROM unnest(%(ordinals)b::bigint[]) AS wanted (ordinal), LATERAL ("
        "SELECT leaf FROM hrag_homes.leaves_1 AS stored WHERE tenant_id = %(tenant)s"
        " AND stored.ordinal = wanted.ordinal LIMIT 1) AS found"
    ),
    "INSERT INTO hrag.tenants (tenant_id) VALUES (%s) ON CONFLICT DO NOTHING",
    (
        "INSERT INTO hrag.names (tenant_id, name) VALUES (%s, %s), (%s, %s) ON CONFLICT"
        " (tenant_id, name) DO UPDATE SET collection_id = excluded.collection_id"
    ),
    (
        "INSERT INTO hrag.terms (tenant_id, ordinal) SELECT t.tenant_id, ordinal"
        " FROM hrag.tenants t, unnest(%(ordinals)s) AS new (ordinal) WHERE t.tenant_id = %(tenant)s"
    ),
    (
        "WITH removed AS (DELETE FROM hrag.leaves WHERE tenant_id = %s RETURNING leaf)"
        " SELECT count(*) FROM removed"
    ),
    (
        "DELETE FROM hrag.terms WHERE tenant_id = %(tenant)s AND ctid = ANY(ARRAY("
        "SELECT ctid FROM hrag.terms WHERE tenant_id = %(tenant)s LIMIT 9))"
    ),
    (
        "UPDATE hrag.documents AS d SET term_count = new.term_count"
        " FROM unnest(%(counts)b::bigint[]) AS new (term_count) WHERE d.tenant_id = %(tenant)s"
    ),
    "COPY hrag.terms (tenant_id, term) FROM STDIN (FORMAT BINARY)",
    "SET LOCAL jit = off",
    "LOCK TABLE hrag.home_slots",
    "SELECT FROM hrag.home_slots WHERE NOT EXISTS (SELECT FROM pg_stat_activity) FOR UPDATE",
]
# Statements that Citus accepts on the rows of all tenants.
FOR_ALL_TENANTS = [
    "SELECT tenant_id, count(*) FROM hrag.documents GROUP BY tenant_id",
    "SELECT FROM hrag.tenants LEFT JOIN hrag.collections USING (tenant_id)",
    (
        "SELECT FROM hrag.names n FULL JOIN (SELECT tenant_id FROM hrag.collections) AS c"
        " USING (tenant_id)"
    ),
    "SELECT tenant_id FROM hrag.tombstones UNION SELECT tenant_id FROM hrag.term_vectors",
    (
        "SELECT FROM hrag.collections c WHERE EXISTS (SELECT FROM hrag.documents d"
        " WHERE d.tenant_id = c.tenant_id)"
    ),
]
POLICIES = [
    (
        "CREATE POLICY p ON hrag.documents FOR SELECT TO reader USING (tenant_id = ANY (ARRAY("
        "SELECT own.tenant_id FROM hrag.sql_tenants AS own)));"
    ),
    "CREATE POLICY p ON hrag.documents USING (EXISTS (SELECT FROM hrag.sql_tenants));",
    (
        "CREATE POLICY p ON hrag.documents FOR INSERT"
        " WITH CHECK (tenant_id IN (SELECT tenant_id FROM hrag.sql_tenants));"
    ),
]


@pytest.mark.parametrize("statement", [*REFUSED, *REFUSED_WITH_POLICIES, *NOT_ON_ONE_NODE], ids=str)
def test_a_statement_that_a_cluster_refuses_or_runs_on_several_nodes_is_reported(
    statement: str,
) -> None:
    assert problems(statement)


@pytest.mark.parametrize("statement", REFUSED)
def test_a_statement_that_a_cluster_refuses_is_reported_for_all_tenants_too(statement: str) -> None:
    assert problems(statement, all_tenants=True)


@pytest.mark.parametrize("statement", ON_ONE_NODE)
def test_a_statement_that_one_node_runs_is_not_reported(statement: str) -> None:
    assert problems(statement) == []


@pytest.mark.parametrize("statement", FOR_ALL_TENANTS)
def test_a_statement_for_all_tenants_may_bind_none(statement: str) -> None:
    assert problems(statement, all_tenants=True) == []
    assert problems(statement)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_with_a_subquery_is_reported_even_inside_a_function(policy: str) -> None:
    function = f"CREATE PROCEDURE grants() LANGUAGE plpgsql AS $$ BEGIN {policy} END $$;"
    for script in (policy, function):
        assert len(policy_problems(script)) == 1


def test_policies_with_constants_or_on_local_tables_are_not_reported() -> None:
    assert not policy_problems(
        "CREATE POLICY p ON hrag.documents FOR SELECT TO reader USING (tenant_id = ANY ('{t}'));"
        "CREATE POLICY p ON hrag.sql_tenants USING (EXISTS (SELECT FROM hrag.migrations));"
    )


def test_the_placement_of_tables_is_read_from_the_scripts() -> None:
    tables = placement()
    assert {"tenants", "documents", "leaves"} <= tables.distributed
    assert {"migrations", "home_slots"} <= tables.local
    assert {"documents", "collections"} <= tables.with_policies


@pytest.fixture(scope="module")
def in_cluster(
    pytestconfig: pytest.Config, postgres: PostgresServer
) -> Iterator[psycopg.Connection[object]]:
    """A connection to a distributed database of a cluster."""
    if pytestconfig.getoption("--engine") != "citus":
        pytest.skip("needs --engine=citus")
    name = postgres.new_database()
    with postgres.connect(name) as connection:
        yield connection
    postgres.drop(name)


@pytest.mark.postgres
@pytest.mark.parametrize(("statement", "message"), REFUSED.items())
def test_the_cluster_refuses_the_statement(
    in_cluster: psycopg.Connection[object], statement: str, message: str
) -> None:
    with pytest.raises(psycopg.Error, match=re.escape(message)), in_cluster.transaction():
        in_cluster.execute(statement)
