"""The consensus core: a pure, deterministic state machine in etcd/raft's model. No I/O, no clock."""
