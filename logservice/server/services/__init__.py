"""The three gRPC services."""
