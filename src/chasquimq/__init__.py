"""ChasquiMQ: a job queue and message broker on Redis Streams with MessagePack payloads.

The names are those of `names.py`. They are loaded together when the first of them is used, so that
importing the package, which the command line does to show its help, costs next to nothing.
"""

import importlib.util
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chasquimq.names import *  # noqa: F403
    from chasquimq.names import __all__ as __all__
    from chasquimq.names import __version__ as __version__
else:

    def __getattr__(name: str) -> Any:  # noqa: ANN401 -- whatever the name stands for
        # Modules first: they import one another by these names while `names` is being loaded.
        if importlib.util.find_spec(f"chasquimq.{name}") is not None:
            return importlib.import_module(f"chasquimq.{name}")
        names = importlib.import_module("chasquimq.names")
        # With the names come the modules they live in, so `chasquimq.errors` is found here too.
        globals().update({each: getattr(names, each) for each in names.__all__})
        globals().update(__all__=names.__all__, __version__=names.__version__)
        if name in globals():
            return globals()[name]
        msg = f"module 'chasquimq' has no attribute {name!r}"
        raise AttributeError(msg, name=name, obj=names)

    def __dir__() -> list[str]:
        __getattr__("__all__")
        return sorted(globals())


logging.getLogger("chasquimq").addHandler(logging.NullHandler())
