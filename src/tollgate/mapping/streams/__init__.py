"""Streams between formats: what upstream events mean, the life of one answer, what its client is told."""
