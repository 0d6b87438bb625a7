"""Configurations that ship with corpusmill; load one by its bare name (`--config local`)."""
