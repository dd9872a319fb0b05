"""Keeps Python's cycle collector from looking again and again at what a process was made of.

A full collection looks at every container there is. The modules alone are some 65,000, which takes 15 to 30 ms in which
nobody is answered, every few seconds under load. They stay as long as the process does, so they are set aside once it
has started; what comes later is collected as ever.
"""

import gc


def set_aside_what_stays() -> None:
    """Let no later collection look at what there is now, but for cycles that are dead already."""
    gc.collect()
    gc.freeze()
