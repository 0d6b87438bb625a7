"""configs of corpusmill."""
