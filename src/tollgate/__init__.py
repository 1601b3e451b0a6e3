"""Tollgate: one address, one key and one credit balance in front of every model provider."""

__version__ = "0.1.0"
