"""The provider layer: compiles a provider file into offers, error rules, image jobs and discovery.

The entry point is `compile_provider`; requests use `Offer` and `ErrorRules`. Reading the file is `config/provider.py`.
Nothing here awaits anything.
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
