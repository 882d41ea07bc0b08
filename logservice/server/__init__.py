"""The edge of a store: gRPC services, limits, health, and the assembly of the process."""
