"""spark_jobs of corpusmill."""
