"""The rules of the embedded back-end: pure and deterministic functions that do a task's work without a model."""
