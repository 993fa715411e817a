from pathlib import Path

import pytest
from pydantic import ValidationError

from driver.config.flags import Parser, add_flags, given
from driver.config.load import load
from driver.config.settings import PluginSettings
from driver.core.errors import ConfigError

NODE = {"TESSERA_NODE_NAME": "n1"}


def settings(
    *flags: str, environ: dict[str, str] | None = None, file: Path | None = None
) -> PluginSettings:
    """As the command does it."""
    parser = Parser(prog="tessera plugin")
    add_flags(parser, PluginSettings)
    namespace = parser.parse_args(flags)
    path = Path(namespace.config) if namespace.config else file
    environ = NODE if environ is None else environ
    return load(PluginSettings, flags=given(namespace, PluginSettings), environ=environ, file=path)


def problem(*flags: str, environ: dict[str, str] | None = None, file: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        settings(*flags, environ=environ, file=file)
    return str(caught.value)


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "tessera.yaml"
        path.write_text(text)
        return path

    return write


def test_defaults_need_only_the_node_name():
    s = settings()
    assert (s.driver_name, s.node_name, s.pod_uid) == ("gpu.tessera.dev", "n1", "")
    assert s.plugin_dir == Path("/var/lib/kubelet/plugins/gpu.tessera.dev")
    assert s.kubeconfig is s.nvml_library is None
    assert s.http_endpoint == ("", 8080)
    with pytest.raises(ValidationError, match="frozen"):
        s.node_name = "n2"


def test_a_flag_wins_over_the_environment_that_over_the_file_and_that_over_the_default(file):
    path = file("log_level: debug\nlog_format: text\ncdi_dir: /etc/cdi\n")
    s = settings(
        f"--config={path}",
        "--log-level=error",
        environ={**NODE, "TESSERA_LOG_LEVEL": "warning", "TESSERA_LOG_FORMAT": "json"},
    )
    assert (s.log_level, s.log_format, s.cdi_dir) == ("error", "json", Path("/etc/cdi"))
    assert s.proc_root == Path("/proc")


def test_the_file_may_be_named_by_the_environment(file):
    environ = {**NODE, "TESSERA_CONFIG": str(file("log_level: debug"))}
    assert settings(environ=environ).log_level == "debug"


def test_the_missing_node_name_says_who_should_set_it():
    assert problem(environ={}) == (
        "node name missing: set --node-name or TESSERA_NODE_NAME"
        " (the chart sets it from spec.nodeName)"
    )


def test_the_host_root_is_the_driver_root_unless_set():
    assert settings("--driver-root=/drv").host_driver_root == Path("/drv")
    s = settings("--driver-root=/drv", "--host-driver-root=/run/nvidia/driver")
    assert s.host_driver_root == Path("/run/nvidia/driver")


def test_lists_are_comma_separated_in_texts_and_lists_in_the_file(file):
    flags = ("--container-library-dirs=/a, /b,", "--required-libraries=")
    s = settings(*flags)
    assert (s.container_library_dirs, s.required_libraries) == (("/a", "/b"), ())
    s = settings(file=file("container_library_dirs: [/a, /b]"))
    assert s.container_library_dirs == ("/a", "/b")


def test_an_empty_variable_unsets_an_optional_path():
    assert settings(environ={**NODE, "TESSERA_KUBECONFIG": ""}).kubeconfig is None


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("", None),
        (":8080", ("", 8080)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:9", ("::1", 9)),
        ("localhost:65535", ("localhost", 65535)),
    ],
)
def test_the_http_address_is_read_into_host_and_port(text, endpoint):
    assert settings(f"--http-address={text}").http_endpoint == endpoint


@pytest.mark.parametrize(
    ("flag", "allowed"),
    [
        ("--driver-name=GPU.tessera.dev", "a DNS subdomain"),
        ("--driver-name=gpu..dev", "a DNS subdomain"),
        ("--driver-name=a123456789012345678901234567", "at most 27 characters"),
        ("--node-name=", "a DNS subdomain"),
        ("--pod-uid=../x", "pattern"),
        ("--cdi-dir=run/cdi", "an absolute path"),
        ("--cdi-dir=/run/../etc", "without '..'"),
        ("--http-address=8080", ":PORT, HOST:PORT"),
        ('--gpus={"a": 1}', "a list of rules"),
        ("--gpus=5", "a list of rules"),
        ("--http-address=::1:8080", "[IPV6]:PORT"),
        ("--http-address=:65536", "up to 65535"),
        ("--log-level=trace", "'debug', 'info', 'warning' or 'error'"),
        ("--rescan-seconds=0", "greater than or equal to 1"),
        ("--rescan-seconds=nan", "finite"),
        ("--resync-seconds=soon", "a valid number"),
        ("--container-library-dirs=", "one or more absolute paths"),
        ("--policy=random", "'packed' or 'distributed'"),
        ("--rerank=never", "'dynamic' or 'static'"),
        ("--binding=late", "'scheduler' or 'prepare'"),
        ("--partition-attributes=all", "'lean' or 'full'"),
        ("--min-whole-gpus=-1", "greater than or equal to 0"),
        ("--mig-profiles=", "default, or MIG profiles"),
        ("--mig-profiles=default,1g.10gb", "default, or a list of MIG profiles without it"),
    ],
)
def test_a_wrong_value_is_told_with_its_flag_and_what_is_allowed(flag, allowed):
    name, _, value = flag.partition("=")
    text = problem(flag)
    assert text.startswith(f"{name}: ")
    assert value.rstrip(",") in text
    assert allowed in text
    assert ";" not in text.split(" is wrong: ")[0]


@pytest.mark.parametrize(
    ("flag", "place", "allowed"),
    [
        ("--no-execute-faults=XID 95", "--no-execute-faults[0]", "names of faults as"),
        ("--mig-profiles=1g.10gb,foo", "--mig-profiles[1]", "default, or MIG profiles as"),
        ("--container-library-dirs=lib", "--container-library-dirs[0]", "an absolute path"),
    ],
)
def test_a_wrong_value_in_a_list_is_one_problem_and_told_with_its_place(flag, place, allowed):
    text = problem(flag)
    assert text.startswith(f"{place}: ")
    assert f"is wrong: allowed: {allowed}" in text
    assert text.count("is wrong") == 1


def test_a_value_that_is_long_or_nested_too_deeply_is_told_in_short():
    text = problem(f"--gpus={'[' * 100_000}")
    assert "nested too deeply" in text
    assert len(text) < 1000


def test_gpus_are_kept_whole_only_where_claims_tell_which_are_idle(file):
    text = problem("--min-whole-gpus=1", file=file("rerank: static\n"))
    assert text.startswith("--min-whole-gpus: ")
    assert "rerank is static" in text
    assert "set rerank to dynamic, or min_whole_gpus to 0" in text
    assert settings("--min-whole-gpus=0", "--rerank=static").min_whole_gpus == 0


def test_each_source_is_named_as_its_reader_knows_it(file):
    path = file("log_level: loud\n")
    assert problem(file=path).startswith(f"{path}: log_level: 'loud' is wrong: ")
    text = problem(environ={**NODE, "TESSERA_LOG_LEVEL": "loud"})
    assert text.startswith("TESSERA_LOG_LEVEL: 'loud' is wrong: ")


def test_every_problem_of_every_source_is_told_at_once(file):
    path = file("drivername: x\nrescan_seconds: [1]\n")
    text = problem(
        "--cdi-dir=x",
        file=path,
        environ={"TESSERA_NODENAME": "n1", "TESSERA_LOG_FORMAT": "xml", "HOME": "/"},
    )
    for part in (
        f"{path}: drivername is not a setting; did you mean {path}: driver_name?",
        f"{path}: rescan_seconds: [1] is wrong",
        "TESSERA_NODENAME is not a setting; did you mean TESSERA_NODE_NAME?",
        "TESSERA_LOG_FORMAT: 'xml' is wrong",
        "--cdi-dir: ",
        "node name missing",
    ):
        assert part in text


def test_a_wrong_driver_root_is_told_once_and_not_for_what_follows_from_it():
    assert problem("--driver-root=x") == (
        "--driver-root: 'x' is wrong: allowed: an absolute path without '..'"
    )


def test_what_the_kubelet_adds_for_a_service_of_that_name_is_no_setting():
    links = {
        "TESSERA_SERVICE_HOST": "10.0.0.1",
        "TESSERA_SERVICE_PORT": "443",
        "TESSERA_WEBHOOK_SERVICE_PORT_HTTPS": "443",
        "TESSERA_PORT": "tcp://10.0.0.1:443",
        "TESSERA_WEBHOOK_PORT_443_TCP_ADDR": "10.0.0.1",
    }
    assert settings(environ={**NODE, **links}).node_name == "n1"


def test_an_unknown_variable_without_a_near_name_lists_what_there_is():
    text = problem(environ={**NODE, "TESSERA_ZZZ": "1"})
    assert text.startswith("TESSERA_ZZZ is not a setting; known: driver_name, node_name, ")


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("--nodename=x", "tessera plugin: --nodename=x is not a flag; did you mean --node-name?"),
        ("--zzz", "tessera plugin: --zzz is not a flag; `tessera plugin --help` lists all flags"),
        ("--log-lev=info", "did you mean --log-level?"),
        ("--node-name", "argument --node-name: expected one argument"),
    ],
)
def test_a_wrong_flag_is_a_configuration_error(flag, text):
    assert text in problem(flag)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("log_level: info\nnode_name: a\nlog_level: debug\n", "line 3: not valid YAML: key"),
        ("log_level: [", "line 1: not valid YAML: "),
        ("- log_level\n", "must be a mapping of settings"),
        ("1: x\n", "must be a mapping of settings"),
        ("a: !!python/object/apply:os.getcwd []\n", "not valid YAML: could not determine"),
        ("log_level: \x00\n", "not valid YAML"),
    ],
)
def test_a_file_that_is_no_plain_mapping_is_refused_by_name(file, content, text):
    path = file(content)
    told = problem(file=path)
    assert told.startswith(f"{path}")
    assert text in told


def test_an_empty_file_sets_nothing(file):
    assert settings(file=file("# nothing\n")) == settings()


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "No such file or directory"), (b"\xff", "not UTF-8")]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, content, reason):
    path = tmp_path / "x.yaml"
    if content is not None:
        path.write_bytes(content)
    assert problem(f"--config={path}") == f"cannot read the configuration file {path}: {reason}"
