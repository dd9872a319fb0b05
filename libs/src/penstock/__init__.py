"""Libraries that Penstock's services share, and the command line.

Start with `contracts` (the messages between services), then `kafkawire`, `segment`, `objectstore` and `runtime`.
"""
