"""The folder on the engine's path: links to our two packages, and the entry point of the plug-in.

Nothing is installed into the engine's environment and nothing in it is edited.
"""

from importlib.util import find_spec
from pathlib import Path

from schemas.errors import ConfigError

_DIST_INFO = "headrace_engine-0.dist-info"
_METADATA = "Metadata-Version: 2.1\nName: headrace-engine\nVersion: 0\n"
_ENTRY_POINTS = "[vllm.general_plugins]\nheadrace = inference.worker.engine.plugin:register\n"


def make_site(folder: Path) -> Path:
    """Make the folder; one that is there is brought up to date."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for package in ("inference", "schemas"):
        spec = find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise ConfigError(f"The package {package} is not installed whole. Install headrace.")
        link = folder / package
        link.unlink(missing_ok=True)
        link.symlink_to(Path(spec.submodule_search_locations[0]).absolute())
    info = folder / _DIST_INFO
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(_METADATA)
    (info / "entry_points.txt").write_text(_ENTRY_POINTS)
    return folder
