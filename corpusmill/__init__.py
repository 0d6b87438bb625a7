"""corpusmill: structured retrieval indices from large document corpora, on Spark and Ray."""

__version__ = "0.1.0"
