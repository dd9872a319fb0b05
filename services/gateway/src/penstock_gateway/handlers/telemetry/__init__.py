"""APIs by which clients report their own metrics (KIP-714)."""
