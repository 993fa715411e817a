import pytest

from driver.rooted import RootedReader


@pytest.fixture
def root(tmp_path):
    """A root beside files of the host that no link may lead to."""
    inside = tmp_path / "root"
    (inside / "usr/lib").mkdir(parents=True)
    (inside / "usr/lib/real.so.1").touch()
    (tmp_path / "outside.so").touch()
    return inside


@pytest.mark.parametrize(
    ("link", "target", "resolved"),
    [
        ("usr/lib/a.so", "real.so.1", "usr/lib/real.so.1"),
        ("usr/lib/a.so", "/usr/lib/real.so.1", "usr/lib/real.so.1"),
        ("usr/lib/a.so", "../lib/./real.so.1", "usr/lib/real.so.1"),
        ("lib64", "usr/lib", "usr/lib"),
        ("usr/lib/a.so", "../../../../usr/lib/real.so.1", "usr/lib/real.so.1"),
        ("usr/lib/a.so", "../../../outside.so", None),
        ("usr/lib/a.so", "missing", None),
        ("usr/lib/a.so", "a.so", None),
    ],
)
def test_links_are_read_as_if_the_root_were_the_file_system(root, link, target, resolved):
    (root / link).symlink_to(target)
    assert RootedReader(root).resolve(link) == resolved


def test_a_chain_through_linked_folders_is_followed_and_every_folder_is_noted(root):
    (root / "lib64").symlink_to("/usr/lib64")
    (root / "usr/lib64").symlink_to("lib")
    (root / "usr/lib/a.so").symlink_to("/lib64/real.so.1")
    reader = RootedReader(root)
    assert reader.resolve("lib64/a.so") == "usr/lib/real.so.1"
    assert set(reader.folders) == {"", "usr", "usr/lib"}
