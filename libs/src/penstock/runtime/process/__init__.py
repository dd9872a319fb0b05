"""The process around a service: its life, settings, logs, health, memory use and address.

May import the other packages of `penstock.runtime`. Start with `life` (`run_app`), then `host` (`ServiceHost`).
"""

import sys


def import_structlog_alone() -> None:
    """Import structlog without rich, which it would import for tracebacks that Penstock does not use.

    Measured: rich and its imports take a fifth of the CPU time of a start.
    """
    if "structlog" in sys.modules or "rich" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # the documented way to make an import fail
    try:
        import structlog  # noqa: F401  the first import of it in this process
    finally:
        del sys.modules["rich"]


import_structlog_alone()
