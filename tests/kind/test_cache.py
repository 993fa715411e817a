"""What decides a cache key, and that a result is complete or absent."""

import os
from pathlib import Path

import pytest

from hack.kind import binaries, cache, nodeimage
from hack.kind.binaries import Binaries, Program
from hack.kind.host import Host


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_key_depends_on_names_and_contents_of_files_and_not_on_their_order(tmp_path: Path):
    a, b = write(tmp_path / "a", "1"), write(tmp_path / "b", "2")
    assert cache.key("v", files=[a, b]) == cache.key("v", files=[b, a])
    before = cache.key("v", files=[a, b])
    write(b, "3")
    assert cache.key("v", files=[a, b]) != before
    # Moving a byte from one file to the next is a change.
    assert cache.key(files=[write(a, "12"), write(b, "3")]) != cache.key(
        files=[write(a, "1"), write(b, "23")]
    )


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"package": "example.com/other"}, False),
        ({"stamp": (("example.com/v.Version", "2"),)}, False),
        ({"module": "etcd"}, False),
    ],
)
def test_a_programs_key_is_its_module_and_its_command(change: dict[str, object], same: bool):
    plain = {"name": "kind", "module": "kind", "package": "sigs.k8s.io/kind"}
    one, two = Program(**plain), Program(**{**plain, **change})  # type: ignore[arg-type]
    assert (one.key("go1.26.8") == two.key("go1.26.8")) is same
    assert one.key("go1.26.8") != one.key("go1.27.0")


def test_every_kubernetes_program_says_the_pinned_version():
    programs = [p for p in binaries.PROGRAMS if p.module == "kubernetes"]
    assert len(programs) == 7
    for program in programs:
        flags = program.command("out")[4]
        assert "k8s.io/component-base/version.gitVersion=v1.37.2" in flags
        assert "version.gitMinor=37" in flags


def test_the_node_image_depends_on_the_machine_and_on_what_is_in_it_but_not_on_helm():
    host = Host(cgroup_v1=True, may_raise_limits=False)

    def key(*entries: str, host: Host = host) -> str:
        made = Binaries(path=Path("bin"), entries=tuple(map(Path, entries)))
        return nodeimage.key(made, host)

    assert key("kubelet-1", "helm-1") == key("kubelet-1", "helm-2")
    assert key("kubelet-1") != key("kubelet-2")
    assert key("kubelet-1") != key("kubelet-1", host=Host(cgroup_v1=False, may_raise_limits=False))


def test_a_result_is_built_once(tmp_path: Path):
    built: list[Path] = []

    def build(out: Path) -> None:
        built.append(out)
        write(out / "program", "x")

    first = cache.ensure("tool", "k1", build, root=tmp_path)
    assert cache.ensure("tool", "k1", build, root=tmp_path) == first
    assert len(built) == 1
    assert (first / "program").read_text() == "x"


def test_a_build_that_failed_is_no_result_and_keeps_its_log(tmp_path: Path):
    def broken(out: Path) -> None:
        write(out / "build.log", "no such package")
        raise RuntimeError("compiler")

    with pytest.raises(RuntimeError):
        cache.ensure("tool", "k1", broken, root=tmp_path)
    assert not cache.entry("tool", "k1", root=tmp_path).exists()
    assert [p.read_text() for p in tmp_path.rglob("build.log")] == ["no such package"]


def test_of_two_builders_of_one_content_the_second_takes_the_firsts_result(tmp_path: Path):
    def slow(out: Path) -> None:
        write(out / "program", "second")
        first = cache.entry("tool", "k1", root=tmp_path)
        first.mkdir()
        write(first / "program", "first")

    result = cache.ensure("tool", "k1", slow, root=tmp_path)
    assert (result / "program").read_text() == "first"
    assert [p.name for p in tmp_path.iterdir()] == ["tool-k1"]


def test_clean_drops_other_keys_and_dead_builds_but_no_build_in_work(tmp_path: Path):
    names = ["tool-new", "tool-old", f".partial-tool-x-{os.getpid()}", ".partial-tool-y-0"]
    for name in names:
        (tmp_path / name).mkdir()
    stale = cache.stale([tmp_path / "tool-new"], root=tmp_path)
    assert {p.name for p in stale} == {"tool-old", ".partial-tool-y-0"}
