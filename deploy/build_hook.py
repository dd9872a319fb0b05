"""The step of the build that writes the commit into a wheel and into a source archive."""

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDERS = {"wheel": "penstock", "sdist": "libs/src/penstock"}  # of the package, in each of them


class BuildHook(BuildHookInterface):
    """Adds the file with the commit, if the commit is known. An editable install asks git instead."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """hatchling calls this before it builds; `version` is "standard" or "editable"."""
        source = Path(self.root, FOLDERS["sdist"])
        spec = importlib.util.spec_from_file_location("version", source / "version.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        # The source archive has the file, and it is like all others there.
        if (
            version == "editable"
            or (source / module.COMMIT_FILE).exists()
            or not (commit := module.find_commit(source))
        ):
            return
        self._work = tempfile.TemporaryDirectory()
        written = Path(self._work.name, module.COMMIT_FILE)
        written.write_text(f"{commit}\n", encoding="ascii")
        build_data["force_include"][str(written)] = f"{FOLDERS[self.target_name]}/{module.COMMIT_FILE}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """hatchling calls this after it has built."""
        if hasattr(self, "_work"):
            self._work.cleanup()
