-- Adds the filter terms by which filters find documents of a format. Documents that are stored from
-- now on have such a term; this adds the terms of the documents that are stored already.
--
-- A term is the length of the field's name (9), the name, the byte 3 for a text, and the text. A
-- record is JSON in which mime_type precedes the metadata. It is a text, or an array whose first
-- element is this text. A quotation mark inside a text of JSON has a backslash before it, so the
-- pattern does not match inside a text. A document without a MIME type, such as a summary, has no
-- term. `stored_bytes` never includes this term.
INSERT INTO hrag.terms (tenant_id, collection_id, term, ordinal)
SELECT tenant_id, collection_id,
    '\x09'::bytea || 'mime_type'::bytea || '\x03'::bytea || convert_to(mime_type, 'UTF8'), ordinal
FROM hrag.documents CROSS JOIN LATERAL (
    SELECT substring(convert_from(record, 'UTF8') FROM '"mime_type":\[?"([^"\\]+)"') AS mime_type
) AS described
WHERE mime_type IS NOT NULL;
