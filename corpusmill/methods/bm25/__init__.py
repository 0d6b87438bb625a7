"""Passages by the words that they share with the question: the baseline that embeds nothing."""
