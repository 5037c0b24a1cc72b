-- The collection determines the tenant. Without this statistics object and with many tenants, a
-- generic plan expects one document per collection. It then reads all documents of the collection
-- through an index that does not have their ordinals.
CREATE STATISTICS hrag.documents_of_collections (dependencies)
  ON tenant_id, collection_id FROM hrag.documents;
