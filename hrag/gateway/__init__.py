"""How is hrag reached over HTTP?

A gRPC client of both services with an HTTP server in front: the Connect protocol with JSON, a
stream of JSON lines for documents, server-sent events for answers, an OpenAPI document, Dify's
retrieval call and static pages. Methods come from the descriptors. It decides nothing that the
services decide: credentials, tenants, limits and audit are theirs.
"""
