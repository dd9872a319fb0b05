"""Commands of classic groups, consumer groups and transactions, as the handlers of several APIs need them.

May import `kafka`, contracts and `penstock.runtime`. Start with `group_commands.py` or `transaction_commands.py`.
"""
