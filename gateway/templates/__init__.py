"""Templates that the gateway keeps: named, versioned, called with variables.

TemplateStore    the folder of templates, what is in force, what cannot be read     (store)
TemplateCalls    bodies that call one become bodies of messages                      (calls)
template_router  the admin API over them                                             (pages)
"""

from gateway.templates.calls import Called, TemplateCalls
from gateway.templates.file import TemplateFileInvalid, read_kept
from gateway.templates.pages import template_router
from gateway.templates.store import TemplateStore, watch_templates
from gateway.templates.types import KeptTemplate, Reference, version_key

__all__ = [
    "Called",
    "KeptTemplate",
    "Reference",
    "TemplateCalls",
    "TemplateFileInvalid",
    "TemplateStore",
    "read_kept",
    "template_router",
    "version_key",
    "watch_templates",
]
