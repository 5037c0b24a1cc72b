"""How is hrag reached over HTTP?

The gateway is an HTTP server that calls both services as a gRPC client. It serves the Connect
protocol with JSON, a stream of JSON lines for documents, server-sent events for answers, an
OpenAPI document, Dify's retrieval call, three short paths and static pages. It reads the methods
of the services from their protobuf descriptors. The gateway does not check credentials, tenants or
quotas and writes no audit log; the services do that.
"""
