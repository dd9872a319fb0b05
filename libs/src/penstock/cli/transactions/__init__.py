"""`penstock txn` and `penstock producer`: transactions and producers, with those that hang."""
