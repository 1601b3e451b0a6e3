"""What is remembered of answers for later requests of the same conversation: ids of provider state and encrypted texts
with their providers, signed reasoning that clients leave out, items that clients refer to."""
