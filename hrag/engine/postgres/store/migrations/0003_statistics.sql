-- Which tenant a collection is of follows from the collection. Without that, plans for any
-- parameters expect one document of a collection where there are many tenants, and read all of them
-- by another index than that of their ordinals.
CREATE STATISTICS hrag.documents_of_collections (dependencies)
  ON tenant_id, collection_id FROM hrag.documents;
