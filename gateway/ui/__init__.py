"""The dashboard: one page that shows the whole gateway, and the data behind it. It only reads.

dashboard   who may look, and at what           session   cookies         files      the page itself
types       its nouns                           answers, asked      what goes out, what comes in
viewers     open pages, kept up to date         pages, books, traffic, invoices      their data
live        what happens: of this worker, of all       merging, rows, remedies       pure
inside      pages of the admin API, asked from within                   setup        as configured
"""

from gateway.ui.setup import Ui, UiParts, ui_of

__all__ = ["Ui", "UiParts", "ui_of"]
