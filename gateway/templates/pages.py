"""Templates under `/admin/templates`: what is kept, in which order each stands, a version put or retired.

A version is immutable: putting it again changes nothing, putting another content under its number is a conflict.
What is shown of a template is its own text; no prompt of a client is kept anywhere.
"""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Body, HTTPException
from fastapi.responses import JSONResponse

from gateway.errors import TemplateNotFound
from gateway.templates.file import MOST_BYTES, TemplateFileInvalid
from gateway.templates.store import TemplateStore, VersionExists
from gateway.templates.types import KeptTemplate, Reference, reference_of
from gateway.templates.view import overview, shown

_NO_FOLDER = "no folder of templates is configured (templates_dir)"


def template_router(store: TemplateStore | None) -> APIRouter:
    """The routes under `/admin/templates`; who uses them asks for a token."""
    router = APIRouter(prefix="/admin/templates")
    _add_pages(router, store)
    _add_edits(router, store)
    return router


def _add_pages(router: APIRouter, store: TemplateStore | None) -> None:
    @router.get("")
    async def everything() -> dict[str, object]:
        """All versions in force, those retired, and files that cannot be used."""
        if store is None:
            return {"folder": None, "templates": [], "retired": [], "problems": []}
        kept = [overview(one) for one in store.in_force]
        problems = list(store.problems)
        return {"folder": str(store.folder), "templates": kept, "retired": store.retired, "problems": problems}

    @router.get("/{reference}", responses={404: {"description": "There is no such template."}})
    async def one(reference: str) -> JSONResponse:
        """A template (`name@version`, or `name` for the newest): its order before and after, what is moved and why,
        and what share of its samples would be cached either way."""
        kept = _known(store, _named(reference))
        return JSONResponse(await asyncio.to_thread(shown, kept))


def _add_edits(router: APIRouter, store: TemplateStore | None) -> None:
    @router.put(
        "/{reference}",
        responses={
            409: {"description": "The version is there with another content."},
            422: {"description": "It cannot be read."},
        },
    )
    async def put(reference: str, text: Annotated[str, Body(media_type="application/yaml")]) -> dict[str, object]:
        """Keep a version (`name@version`), from the text of its file. The folder has it before the answer goes out."""
        folder, named = _writable(store, reference)
        if len(text) > MOST_BYTES:
            raise HTTPException(413, f"a template's file has at most {MOST_BYTES:,} characters")
        try:
            return overview(await asyncio.to_thread(folder.put, text, named))
        except TemplateFileInvalid as error:
            raise HTTPException(422, str(error)) from None
        except VersionExists as error:
            raise HTTPException(409, str(error)) from None
        except OSError as error:
            raise HTTPException(503, f"the folder cannot be written: {error.strerror}") from None

    @router.delete("/{reference}", responses={404: {"description": "There is no such version."}})
    async def retire(reference: str) -> dict[str, object]:
        """Retire a version (`name@version`): it is not called any more, and its number stays taken."""
        folder, named = _writable(store, reference)
        try:
            await asyncio.to_thread(folder.retire, named)
        except TemplateNotFound as error:
            raise HTTPException(404, error.message) from None
        except OSError as error:
            raise HTTPException(503, f"the folder cannot be written: {error.strerror}") from None
        return {"retired": str(named)}


def _named(text: str) -> Reference:
    reference = reference_of(text)
    if reference is None:
        raise HTTPException(422, "a template is named as name@version, or name for the newest")
    return reference


def _known(store: TemplateStore | None, reference: Reference) -> KeptTemplate:
    kept = None if store is None else store.version(reference)
    if kept is None:
        raise HTTPException(404, f"there is no template {reference}" if store is not None else _NO_FOLDER)
    return kept


def _writable(store: TemplateStore | None, text: str) -> tuple[TemplateStore, Reference]:
    reference = _named(text)
    if reference.version is None:
        raise HTTPException(422, "a version is named as name@version")
    if store is None:
        raise HTTPException(404, _NO_FOLDER)
    return store, reference
