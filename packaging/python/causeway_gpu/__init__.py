"""Use GPUs that are elsewhere: `causeway_gpu.connect("gpu-box")` before the first CUDA call of a program or
notebook.

Programs need nothing of this where a server is configured (`CAUSEWAY_ON`, or a configuration file):
Causeway's libraries are loaded when Python starts. Importing this package costs nothing; what it offers is
imported when it is asked for.

pytest rewrites the assertions of all that is installed with a plugin, and warns of what is imported already, as this is when
Python starts. There is none in it: PYTEST_DONT_REWRITE."""

__all__ = ["CausewayError", "Device", "connect", "devices", "fork", "stats"]


def __getattr__(name: str):
    if name in __all__:
        from . import session

        return getattr(session, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
