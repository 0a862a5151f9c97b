"""Files of endpoints: read for `discovery.file` and `discovery.admin_file`, and the latter written.

    endpoints:                             # or the list alone; YAML, of which JSON is a part
      - url: http://10.0.0.7:8000          # all that an entry of `backends` may have
        id: gpu-1
        draining: true
        role: prefill
      - http://10.0.0.8:8000

Unknown keys are errors: a slip in one entry leaves all as they were, rather than one of them in an odd state.
"""

import fcntl
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from backends import BackendError, EndpointConfig, EndpointId
from backends.discovery import Found, ListingInvalid, Traits
from gateway.discovery_sections import ListedEndpoint
from gateway.strict_yaml import complaint_of, load_yaml
from gateway.whole_file import write_whole

MOST_ENTRIES: Final = 10_000
_OF_THE_SOURCE: Final = frozenset({"url", "id", "draining", "model", "gpu_cost_per_hour"})


def read_listing(data: bytes) -> list[Found]:
    """The endpoints that a file lists. Raises `ListingInvalid`."""
    return [found_of(listed) for listed in _entries(data)]


def found_of(listed: ListedEndpoint) -> Found:
    """An entry as discovery has it."""
    settings = listed.model_dump(mode="json", exclude_unset=True, exclude=set(_OF_THE_SOURCE))
    role = listed.role if "role" in listed.model_fields_set else None
    traits = Traits(role, listed.model, listed.gpu_cost_per_hour)
    return Found(listed.url, listed.id, listed.draining, traits, settings)


def entry_of(given: object) -> ListedEndpoint:
    """One entry out of plain data; a text is a URL. Raises `ListingInvalid`."""
    try:
        listed = ListedEndpoint.model_validate({"url": given} if isinstance(given, str) else given)
        EndpointConfig(EndpointId(listed.name), listed.url)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "endpoint"
        raise ListingInvalid(f"{where}: {complaint_of(first)}") from None
    except BackendError as error:
        raise ListingInvalid(str(error)) from None
    return listed


class AdminFile:
    """The endpoints that the admin API was given: the file is what counts, and every worker follows it.

    Changes are made under a lock beside the file, so that two workers that are called at once lose neither's.
    Blocking: a few milliseconds; call it in a thread.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def put(self, entry: ListedEndpoint) -> bool:
        """Add an endpoint, in place of one of the same name; whether there was none. Raises `ListingInvalid` for what
        is in the file, and `OSError`."""
        with self._changing() as entries:
            kept = [one for one in entries if one.name != entry.name]
            is_new = len(kept) == len(entries)
            entries[:] = [*kept, entry]
            if len(entries) > MOST_ENTRIES:
                raise ListingInvalid(f"more than {MOST_ENTRIES} endpoints")
        return is_new

    def remove(self, is_it: Callable[[ListedEndpoint], bool]) -> bool:
        """Take endpoints out; whether any was there. Raises as `put` does."""
        with self._changing() as entries:
            before = len(entries)
            entries[:] = [one for one in entries if not is_it(one)]
            return len(entries) < before

    @contextmanager
    def _changing(self) -> Iterator[list[ListedEndpoint]]:
        """The entries; what the block makes of them is written, whole and durably, if it ends well."""
        with self.path.with_name(f".{self.path.name}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            data = self.path.read_bytes() if self.path.exists() else b"[]"
            entries = _entries(data)
            before = list(entries)
            yield entries
            if entries != before:
                self._write(entries)

    def _write(self, entries: Sequence[ListedEndpoint]) -> None:
        plain = [one.model_dump(mode="json", exclude_unset=True) for one in entries]
        text = json.dumps({"endpoints": plain}, indent=2) + "\n"
        write_whole(self.path, text)


def _entries(data: bytes) -> list[ListedEndpoint]:
    plain = _plain(data)
    listed = plain.get("endpoints") if isinstance(plain, dict) and plain.keys() == {"endpoints"} else plain
    if not isinstance(listed, list):
        raise ListingInvalid("it must hold a list of endpoints, or a mapping with `endpoints` alone")
    if len(listed) > MOST_ENTRIES:
        raise ListingInvalid(f"more than {MOST_ENTRIES} endpoints")
    entries = []
    for number, one in enumerate(listed, 1):
        try:
            entries.append(entry_of(one))
        except ListingInvalid as error:
            raise ListingInvalid(f"endpoint {number}: {error}") from None
    return entries


def _plain(data: bytes) -> Any:
    try:
        text = data.decode()
        if text.lstrip()[:1] in ("[", "{"):
            try:
                return json.loads(text)  # a hundred times as fast
            except ValueError:
                pass
        return load_yaml(text)
    except UnicodeDecodeError:
        raise ListingInvalid("it is no UTF-8") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise ListingInvalid(f"it is not valid YAML: {error}") from None
