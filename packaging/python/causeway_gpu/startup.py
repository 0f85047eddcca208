"""What happens when Python starts: nothing, unless a server is configured.

A process takes the first `libcuda.so.1` that it has loaded whenever a library asks for one by that name,
from whatever folder it came. So Causeway's is loaded by its path before anything else can load NVIDIA's.
Other programs that are started from here are told by `LD_LIBRARY_PATH`.

`causeway_gpu.pth` and `causeway_gpu.start` call `start` in every Python process, so this module imports nothing that Python has
not loaded by then, until a server is configured.
"""

import os
import sys

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "causeway")

# Each is found by the name that it says it has (its SONAME), so both names of a library are loaded.
LIBRARIES = ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ml.so")


def start() -> None:
    """Makes this process and those that it starts use Causeway, if a server is configured."""
    try:
        if is_configured():
            activate()
    except Exception as cause:
        # Whatever is wrong here, Python is to start.
        print(f"causeway: this Python does not use Causeway: {cause}", file=sys.stderr)


def is_configured() -> bool:
    """Whether the environment or a configuration file names a server. An empty CAUSEWAY_ON means none."""
    on = os.environ.get("CAUSEWAY_ON")
    if on is not None:
        return bool(on.strip())
    return any(names_a_server(path) for path in configuration_files())


def configuration_files() -> list[str]:
    """The files that Causeway reads, if they are there."""
    named = os.environ.get("CAUSEWAY_CONFIG")
    if named is not None:
        return [named] if os.path.isfile(named) else []
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    files = [os.path.join(home, "causeway", "config.toml")]
    system = "/etc/causeway"
    if os.path.isdir(system):
        files += sorted(os.path.join(system, name) for name in os.listdir(system) if name.endswith(".toml"))
    return [path for path in files if os.path.isfile(path)]


def names_a_server(path: str) -> bool:
    """Whether a configuration file says `on` in its section `[client]`. One that cannot be read names none;
    Causeway says what is wrong with it when it is used."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError):
        return False
    try:
        import tomllib
    except ImportError:
        return names_a_server_by_line(text)
    try:
        return bool(tomllib.loads(text).get("client", {}).get("on"))
    except (tomllib.TOMLDecodeError, AttributeError):
        return False


def names_a_server_by_line(text: str) -> bool:
    """The same for Python 3.9 and 3.10, which cannot read TOML: where a section and a key stand on lines of
    their own."""
    section = ""
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("["):
            section = line.split("#")[0].strip()
        key, equals, value = line.partition("=")
        if section == "[client]" and equals and key.strip() == "on":
            return value.split("#")[0].strip() not in ("", '""', "''", "[]")
    return False


def activate() -> None:
    """Loads the libraries, and sets what the processes need that this one starts."""
    import ctypes

    for name in LIBRARIES:
        ctypes.CDLL(os.path.join(FOLDER, name))
    folders = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    if FOLDER not in folders:
        os.environ["LD_LIBRARY_PATH"] = ":".join([FOLDER, *folders])
    # Triton asks the system's cache of libraries before it looks at LD_LIBRARY_PATH.
    os.environ.setdefault("TRITON_LIBCUDA_PATH", FOLDER)
