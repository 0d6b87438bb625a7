"""ContextRAG: a fuzzy concept graph over residual k-means, without any model call."""
