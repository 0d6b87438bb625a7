"""The index store: object stores, the commit protocol, segments, snapshots and their reader."""
