"""One driver for each client."""
