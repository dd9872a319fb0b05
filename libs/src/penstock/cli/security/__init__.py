"""`penstock user`, `penstock acl`, `penstock token` and `penstock quota`, one module each.

`user` and `acl` speak NATS or Kafka (`connecting`), the rest NATS only (`client`).

They may import the modules of `penstock.cli` that are no commands. Start with `user.py`.
"""
