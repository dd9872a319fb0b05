"""Functions that read metrics pages."""


def samples(page: str) -> dict[str, float]:
    """Every sample of a metrics page by its name, labels as printed."""
    pairs = (line.rpartition(" ") for line in page.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def total(found: dict[str, float], name: str, **labels: str) -> float:
    """The sum of a metric's samples whose labels include `labels`."""
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    return sum(
        value
        for sample, value in found.items()
        if sample.partition("{")[0] == name and all(part in sample for part in wanted)
    )
