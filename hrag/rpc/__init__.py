"""gRPC around the services: statuses, interceptor, server, process."""
