"""What is remembered of answers for the requests that go on from them: ids and sealed texts with their minters, signed
thoughts that clients leave out, items that they refer to."""
