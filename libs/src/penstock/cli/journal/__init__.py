"""`penstock journal` and `penstock rebuild`: programs of the sequencer do the work.

The library imports no service, so `program.py` starts them as processes. The modules here may import the modules of
`penstock.cli` that are no commands.
"""
