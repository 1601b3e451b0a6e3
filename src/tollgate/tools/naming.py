"""Names both sides of the tool server use, apart from the SDK so that they cost nothing to import."""

NAME = "service-images"
VERSION = "1.0.0"
CALLER = "tollgate.caller"
"""Where the HTTP layer leaves the checked caller in the ASGI scope."""
