"""ray_actors of corpusmill."""
