"""The repository's own mapping files: their examples, what they cover, and loops through them."""
