"""LoRA adapters: how they are named, where they are loaded already, and what loading them costs."""

from gateway.adapters.advice import unserved_adapters
from gateway.adapters.book import AdapterBook, Residency
from gateway.adapters.desk import Adapters
from gateway.adapters.forms import UNLISTING, AdapterForm, form_at, forms_of
from gateway.adapters.naming import adapter_of, named

__all__ = [
    "UNLISTING",
    "AdapterBook",
    "AdapterForm",
    "Adapters",
    "Residency",
    "adapter_of",
    "form_at",
    "forms_of",
    "named",
    "unserved_adapters",
]
