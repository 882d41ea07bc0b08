"""What client and server share: generated protobuf code, the block codec, the table of errors."""
