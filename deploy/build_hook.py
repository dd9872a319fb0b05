"""The step of the build that adds to a wheel or a source archive what is not in the repository.

That is the commit, if it is known. PENSTOCK_BUILD=compiled adds the modules that `deploy/compile` made for this Python.
Such a wheel is for this platform only (ADR 0053).
"""

import importlib.util
import os
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = "libs/src"
FOLDERS = {"wheel": "penstock", "sdist": f"{SOURCES}/penstock"}  # of the package, in each of them


class BuildHook(BuildHookInterface):
    """hatchling makes one of these for each build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add files before the build; `version` is "standard" or "editable"."""
        if version == "editable":  # asks git, and has the compiled modules
            return
        added = build_data["force_include"]
        sources = Path(self.root, SOURCES)
        module = version_module(sources)
        self._work = tempfile.TemporaryDirectory()
        # A source archive has the file already.
        if not (sources / "penstock" / module.COMMIT_FILE).exists() and (commit := module.find_commit()):
            written = Path(self._work.name, module.COMMIT_FILE)
            written.write_text(f"{commit}\n", encoding="ascii")
            added[str(written)] = f"{FOLDERS[self.target_name]}/{module.COMMIT_FILE}"
        if self.target_name == "wheel" and os.environ.get("PENSTOCK_BUILD") == "compiled":
            compiled = sorted(sources.rglob(f"*{sysconfig.get_config_var('EXT_SUFFIX')}"))
            assert compiled, "there are no compiled modules for this Python: run `make env`, with a C compiler"
            added.update({str(path): str(path.relative_to(sources)) for path in compiled})
            build_data.update(pure_python=False, infer_tag=True)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary files after the build."""
        if version != "editable":
            self._work.cleanup()


def version_module(sources: Path) -> Any:
    """`penstock.version`, without the rest of the package, which needs libraries."""
    spec = importlib.util.spec_from_file_location("version", sources / "penstock" / "version.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
