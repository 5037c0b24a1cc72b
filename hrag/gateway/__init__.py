"""How is hrag reached over HTTP?

The gateway is an HTTP server that calls both services as a gRPC client. It serves the Connect
protocol with JSON, a stream of JSON lines for documents, server-sent events for answers, an
OpenAPI document, Dify's retrieval call and static pages. Its methods are read from the
descriptors. The services alone check credentials, tenants and limits and write the audit log.
"""
