"""Measuring methods: question sets, ranking and answer metrics, a judge, and bootstrap intervals."""
