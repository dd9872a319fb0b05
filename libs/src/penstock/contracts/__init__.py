"""The messages between Penstock's services: identifiers, NATS subjects, commands, queries and their encoding.

Pure data and functions. This package imports msgspec, crc32c and the standard library, and nothing else of Penstock.
Start with `commands`, then `queries` and `messages`; `codec` and `entries` turn them into bytes.
`regex` runs patterns.
"""
