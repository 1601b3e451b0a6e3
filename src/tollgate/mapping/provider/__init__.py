"""The provider layer: a provider file compiled into offers, error rules, image jobs and discovery.

`compile_provider` is the way in; `Offer` and `ErrorRules` are what a request meets. How a file is read into
configuration is `config/provider.py`; nothing here awaits anything.
"""

from tollgate.mapping.provider.compile import CompiledProvider, compile_provider
from tollgate.mapping.provider.discover import Discovery
from tollgate.mapping.provider.errors import ErrorRules, Verdict
from tollgate.mapping.provider.examples import run_provider_examples
from tollgate.mapping.provider.offer import Offer

__all__ = [
    "CompiledProvider",
    "Discovery",
    "ErrorRules",
    "Offer",
    "Verdict",
    "compile_provider",
    "run_provider_examples",
]
