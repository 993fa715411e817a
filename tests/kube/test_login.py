"""How the API server is found, and what is said when it is not."""

import os
import ssl
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme
import urllib3

from driver.core.errors import ConfigError, KubeForbidden, KubeUnavailable
from driver.kube.client import Client
from driver.kube.login import login
from driver.ports.resources import NODES
from hack.fakeapi import ApiServer
from tests.fakes.apiserver import objects

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def kubeconfig(path: Path, server: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "current-context: c\n"
        f"clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n"
        "users: [{name: c, user: {token: t}}]\n"
        "contexts: [{name: c, context: {cluster: c, user: c}}]\n"
    )
    return path


def test_what_is_asked_for_wins_over_the_environment_and_that_over_the_pod(tmp_path: Path) -> None:
    setting = kubeconfig(tmp_path / "setting", "http://setting")
    named = kubeconfig(tmp_path / "named", "http://named")
    kubeconfig(tmp_path / ".kube" / "config", "http://home")
    both = {"KUBECONFIG": str(named), **POD}

    def host(**options) -> str:
        return str(login(home=tmp_path, service_account=account(tmp_path), **options).host)

    assert host(kubeconfig=str(setting), environ=both) == "http://setting"
    assert host(environ=both) == "http://named"
    assert host(environ=POD) == "https://10.0.0.1:443"
    assert host(environ={}) == "http://home"


def account(folder: Path, token: str = "first", ca: str = "certificate") -> Path:
    place = folder / "account"
    place.mkdir(exist_ok=True)
    (place / "token").write_text(token)
    (place / "ca.crt").write_text(ca)
    return place


def test_a_context_is_not_ignored_where_nothing_has_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="context 'c' is one of a kubeconfig"):
        login(context="c", environ=POD, home=tmp_path, service_account=account(tmp_path))


def test_without_any_way_every_place_that_was_tried_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        login(environ={}, home=tmp_path)
    for place in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", str(tmp_path / ".kube" / "config")):
        assert place in str(caught.value)


def test_a_pod_without_a_service_account_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="automountServiceAccountToken") as caught:
        login(environ=POD, service_account=tmp_path / "nowhere", home=tmp_path)
    assert str(tmp_path / "nowhere") in str(caught.value)


@pytest.mark.parametrize("content", [None, "", "[1, 2", "just text", "current-context: x\n"])
def test_a_kubeconfig_that_cannot_be_used_is_named_with_its_origin(
    content: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match="from KUBECONFIG") as caught:
        login(environ={"KUBECONFIG": str(path)}, home=tmp_path)
    assert str(path) in str(caught.value)


def test_a_context_that_does_not_exist_is_named(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "kubeconfig", "http://x")
    with pytest.raises(ConfigError, match="nowhere"):
        login(kubeconfig=str(path), context="nowhere")


def test_a_token_that_the_kubelet_replaced_is_used_without_a_restart(tmp_path: Path) -> None:
    now = 0.0
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    folder = account(tmp_path, "first", authority.cert_pem.bytes().decode())
    with ApiServer(tls=context, tokens=frozenset({"first"})) as server:
        server.cluster.create("nodes", objects.node("node1"))
        split = urlsplit(server.url)
        environ = {
            "KUBERNETES_SERVICE_HOST": split.hostname or "",
            "KUBERNETES_SERVICE_PORT": str(split.port),
        }
        found = login(environ=environ, service_account=folder, clock=lambda: now)
        api = Client(found, user_agent="tessera-test")
        assert api.get(NODES, "node1")["metadata"]["name"] == "node1"

        account(tmp_path, "second", authority.cert_pem.bytes().decode())
        server.tokens = frozenset({"second"})
        with pytest.raises(KubeForbidden):
            api.get(NODES, "node1")  # the old one is kept for up to a minute
        now += 60
        assert api.get(NODES, "node1")["metadata"]["name"] == "node1"

        (folder / "token").unlink()
        now += 60
        with pytest.raises(KubeUnavailable, match="the credentials cannot be read"):
            api.get(NODES, "node1")
        api.close()


def test_a_plugin_in_a_pod_does_not_load_the_client_library(tmp_path: Path) -> None:
    """It would keep 8 MiB for nothing."""
    script = (
        "import sys, driver.plugin.app\n"
        "from pathlib import Path\n"
        "from driver.kube.login import login\n"
        f"login(service_account=Path({str(account(tmp_path))!r}), home=Path('/nowhere'))\n"
        "sys.exit('kubernetes' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PATH": os.environ["PATH"], **POD},
        cwd=Path(__file__).resolve().parents[2],
        check=False,
    )
    assert done.returncode == 0


def test_a_pod_behind_a_proxy_asks_through_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.delenv("NO_PROXY", raising=False)
    found = login(
        environ={**POD, "HTTPS_PROXY": "http://proxy:3128"},
        service_account=account(tmp_path),
        home=tmp_path,
    )
    assert isinstance(found.connections, urllib3.ProxyManager)
    assert found.host == "https://10.0.0.1:443"


def test_a_server_with_an_unknown_authority_is_an_outage_that_says_so(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    with ApiServer(tls=context) as server:
        path = server.write_kubeconfig(tmp_path / "kubeconfig", ca=str(tmp_path / "other.pem"))
        api = Client(login(kubeconfig=str(path)), user_agent="tessera-test")
        with pytest.raises(KubeUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            api.get(NODES, "node1")
        api.close()
