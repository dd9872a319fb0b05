"""The simulator: the real services on virtual time, over a bus, a journal and a store that fail as seeds tell them."""
