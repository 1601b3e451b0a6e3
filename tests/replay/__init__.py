"""Recorded provider traffic, replayed through the mappings: every client format against every upstream format."""
