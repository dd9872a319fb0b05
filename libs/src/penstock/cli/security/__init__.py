"""`penstock user`, `penstock acl`, `penstock token` and `penstock quota`, one module each.

They speak NATS or Kafka (`connecting`). `token create` and `token renew` speak Kafka only.

They may import the modules of `penstock.cli` that are no commands. Start with `user.py`.
"""
