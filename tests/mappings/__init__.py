"""The repository's own mapping files: their examples, their coverage, and tool loops through them."""
