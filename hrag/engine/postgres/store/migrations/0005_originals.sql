-- The original of a document: the bytes of the file from which it was read; null if the collection
-- does not keep originals. It is a column and not a table, so it is deleted, replaced, placed and
-- protected together with its document. PostgreSQL itself cuts a long value into pieces of 2 KB.
-- It is stored uncompressed, so that a part of it can be read without the rest. A change of other
-- columns does not write it again.
ALTER TABLE hrag.documents ADD COLUMN original bytea STORAGE EXTERNAL;
