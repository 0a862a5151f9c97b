"""A folder of templates: taken over when it changes, never half, and no version changes."""

import os
import threading
from pathlib import Path

import pytest

from gateway.errors import TemplateNotAllowed, TemplateNotFound
from gateway.templates import Reference, TemplateFileInvalid, TemplateStore
from gateway.templates.store import VersionExists
from tests.gateway.templates.files import folder, store, support

NEWEST = Reference("support")


def test_a_name_alone_is_the_newest_version_by_number(tmp_path: Path) -> None:
    kept = store(folder(tmp_path, a=support("'1.9'"), b=support("'1.10'"), c=support("1")))
    assert kept.find(NEWEST, "acme").version == "1.10"
    assert kept.find(Reference("support", "1.9"), "acme").version == "1.9"
    assert [one.version for one in kept.in_force] == ["1", "1.9", "1.10"]


def test_what_is_not_there_is_told_apart_from_what_is_not_allowed(tmp_path: Path) -> None:
    kept = store(folder(tmp_path, a=support() + "tenants: [acme]\n"))
    assert kept.find(NEWEST, "acme").reference == "support@1"
    with pytest.raises(TemplateNotAllowed):
        kept.find(NEWEST, "other")
    with pytest.raises(TemplateNotFound, match="no version 2; the newest is 1"):
        kept.find(Reference("support", "2"), "acme")
    with pytest.raises(TemplateNotFound, match="no template nothing"):
        kept.find(Reference("nothing"), "acme")


def test_a_name_alone_is_the_newest_version_that_is_for_the_tenant(tmp_path: Path) -> None:
    kept = store(folder(tmp_path, a=support("1"), b=support("2") + "tenants: [canary]\n"))
    assert kept.find(NEWEST, "canary").version == "2"
    assert kept.find(NEWEST, "other").version == "1"
    with pytest.raises(TemplateNotAllowed):
        kept.find(Reference("support", "2"), "other")


def test_who_may_not_call_a_template_is_not_told_of_its_versions(tmp_path: Path) -> None:
    kept = store(folder(tmp_path, a=support("1"), b=support("3") + "tenants: [canary]\n"))
    with pytest.raises(TemplateNotFound, match="the newest is 1"):
        kept.find(Reference("support", "4"), "other")
    with pytest.raises(TemplateNotFound, match="the newest is 3"):
        kept.find(Reference("support", "4"), "canary")


def test_a_new_file_is_taken_over_and_a_deleted_one_given_up(tmp_path: Path) -> None:
    kept = store(folder(tmp_path, a=support("1")))
    assert not kept.reload()
    folder(tmp_path, b=support("2"))
    assert kept.reload()
    assert kept.find(NEWEST, "x").version == "2"
    (tmp_path / "b.yaml").unlink()
    assert kept.reload()
    assert kept.find(NEWEST, "x").version == "1"


def test_a_file_that_cannot_be_used_leaves_what_was_in_force(tmp_path: Path) -> None:
    kept = store(folder(tmp_path, a=support()))
    folder(tmp_path, a="name: [", b=support("2"))
    kept.reload()
    assert [one.version for one in kept.in_force] == ["1", "2"]
    assert kept.problems[0].startswith("a.yaml")
    folder(tmp_path, a=support())
    kept.reload()
    assert kept.problems == ()


def test_a_version_in_force_does_not_change_its_text(tmp_path: Path) -> None:
    kept = store(folder(tmp_path, a=support()))
    before = kept.find(NEWEST, "x")
    folder(tmp_path, a=support(tone="rude"))
    kept.reload()
    assert kept.find(NEWEST, "x") is before
    assert "another version" in kept.problems[0]


def test_a_folder_that_is_away_for_a_while_leaves_what_was_in_force(tmp_path: Path) -> None:
    kept = store(folder(tmp_path / "t", a=support()))
    (tmp_path / "t").rename(tmp_path / "away")
    assert not kept.reload()
    assert "No such file" in kept.problems[0]
    assert kept.find(NEWEST, "x").version == "1"
    (tmp_path / "away").rename(tmp_path / "t")
    assert kept.reload()
    assert kept.problems == ()


def test_two_files_of_one_version_must_say_the_same(tmp_path: Path) -> None:
    kept = store(folder(tmp_path, a=support(), b=support()))
    folder(tmp_path, c=support(tone="rude"))
    kept.reload()
    assert "another file" in kept.problems[0]
    assert "kind" in kept.find(NEWEST, "x").layout.before.messages[0].source


def test_a_folder_that_cannot_be_used_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(TemplateFileInvalid, match="no folder"):
        store(tmp_path / "nothing")
    with pytest.raises(TemplateFileInvalid, match=r"a\.yaml"):
        store(folder(tmp_path, a="x"))


def test_what_is_put_is_in_the_folder_and_in_force(tmp_path: Path) -> None:
    kept = store(folder(tmp_path))
    kept.put(support(), Reference("support", "1"))
    kept.put(support(), Reference("support", "1"))
    kept.put("text: '{{ x }}'\n", Reference("short", "2.0"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["short@2.0.yaml", "support@1.yaml"]
    again = store(tmp_path)
    assert [one.reference for one in again.in_force] == ["short@2.0", "support@1"]


FORMS = ["---\ntext: x\n", '{"text": "x"}', "{text: x}", '"name": a\ntext: x', "# only\ntext: x"]


@pytest.mark.parametrize("text", FORMS)
def test_a_text_without_a_name_is_written_with_one_whatever_its_form(tmp_path: Path, text: str) -> None:
    store(folder(tmp_path)).put(text, Reference("a", "1"))
    assert [one.reference for one in store(tmp_path).in_force] == ["a@1"]


def test_who_may_call_a_version_may_change_and_putting_the_same_writes_nothing(tmp_path: Path) -> None:
    kept = store(folder(tmp_path))
    reference = Reference("support", "1")
    kept.put(support(), reference)
    stamp = (tmp_path / "support@1.yaml").stat()
    kept.put(support(), reference)
    assert (tmp_path / "support@1.yaml").stat() == stamp
    kept.put(support() + "tenants: [acme]\n", reference)
    with pytest.raises(TemplateNotAllowed):
        kept.find(reference, "other")


def test_a_change_within_the_resolution_of_a_files_time_is_seen(tmp_path: Path) -> None:
    kept = store(folder(tmp_path, a=support()))
    path = tmp_path / "a.yaml"
    before = path.stat()
    folder(tmp_path, a=support().replace("10:01", "10:09"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    kept.reload()
    assert kept.find(NEWEST, "x").samples[1]["now"] == "10:09"


def test_another_content_under_a_number_is_a_conflict_also_once_it_is_retired(tmp_path: Path) -> None:
    kept = store(folder(tmp_path, a=support()))
    with pytest.raises(VersionExists):
        kept.put(support(tone="rude"), Reference("support", "1"))
    kept.retire(Reference("support", "1"))
    kept.retire(Reference("support", "1"))
    with pytest.raises(TemplateNotFound, match="retired"):
        kept.find(Reference("support", "1"), "x")
    with pytest.raises(VersionExists):
        kept.put(support(tone="rude"), Reference("support", "1"))
    assert store(tmp_path).retired == ["support@1"]


def test_a_text_that_names_another_version_is_refused(tmp_path: Path) -> None:
    kept = store(folder(tmp_path))
    with pytest.raises(TemplateFileInvalid, match="names support@1"):
        kept.put(support(), Reference("support", "2"))
    with pytest.raises(TemplateNotFound):
        kept.retire(Reference("support", "2"))


def test_of_two_contents_that_two_replicas_put_at_once_one_is_refused(tmp_path: Path) -> None:
    one, other = store(folder(tmp_path)), store(tmp_path)
    both, refused = threading.Barrier(2), []

    def put(kept: TemplateStore, tone: str) -> None:
        both.wait()
        try:
            kept.put(support("7", tone), Reference("support", "7"))
        except VersionExists:
            refused.append(tone)

    threads = [threading.Thread(target=put, args=who) for who in ((one, "kind"), (other, "rude"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 1
    for kept in (one, other):
        kept.reload()
    assert one.find(NEWEST, "x").digest == other.find(NEWEST, "x").digest
    assert [path.name for path in tmp_path.iterdir()] == ["support@7.yaml"]


def test_a_version_that_is_put_does_not_write_over_another_template_of_its_file_s_name(tmp_path: Path) -> None:
    kept = store(folder(tmp_path, **{"support@9": support("8")}))
    with pytest.raises(VersionExists):
        kept.put(support("9"), Reference("support", "9"))
    assert [one.version for one in kept.in_force] == ["8"]


def test_a_pipe_or_half_a_character_in_the_folder_stops_nothing(tmp_path: Path) -> None:
    kept = store(folder(tmp_path, a=support()))
    os.mkfifo(tmp_path / "pipe.yaml")
    folder(
        tmp_path,
        half='name: x\nversion: 1\ntext: "\\ud83d"\n',
        raw="name: y\nversion: 1\ntext: '{{ a }}'\nslots: {a: {default: !!binary /w==}}\n",
    )
    kept.reload()
    assert kept.find(NEWEST, "x").version == "1"
    assert [one.partition(":")[0] for one in kept.problems] == ["half.yaml", "pipe.yaml", "raw.yaml"]
