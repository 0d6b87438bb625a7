"""Passages by the cosine of their vectors, the best of them put in order by a reranker: the strong baseline."""
