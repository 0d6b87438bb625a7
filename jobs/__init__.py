"""jobs of corpusmill."""
