"""gRPC around the services: statuses, admission, calls, serving."""
