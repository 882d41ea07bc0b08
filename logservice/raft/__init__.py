"""The consensus core: a pure, deterministic state machine in etcd's model. No I/O, no clock."""
