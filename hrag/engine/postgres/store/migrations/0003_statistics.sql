-- Tells the planner that a collection id determines the tenant id. If there are many tenants, the
-- planner would otherwise expect one document per collection in a generic plan. Such a plan reads
-- all documents of the collection through an index that does not contain their ordinals.
CREATE STATISTICS hrag.documents_of_collections (dependencies)
  ON tenant_id, collection_id FROM hrag.documents;
