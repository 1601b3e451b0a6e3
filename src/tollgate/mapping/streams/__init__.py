"""Streams between formats: what upstream events mean, the state of one answer, the client's events."""
