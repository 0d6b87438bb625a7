"""Passages by the cosine of their vectors with the question's: the baseline that embeds and does nothing more."""
