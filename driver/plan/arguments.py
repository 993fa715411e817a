"""The flags of `tessera plan`. Nothing heavy is imported here."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Final

from driver.config.settings import PluginSettings

_DRIVER: Final[str] = PluginSettings.model_fields["driver_name"].default


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="how to reach the cluster (default: KUBECONFIG, the pod's service account,"
        " ~/.kube/config)",
    )
    parser.add_argument("--context", metavar="NAME", help="of the kubeconfig")
    parser.add_argument(
        "--dump",
        metavar="FILE",
        help="in place of a cluster: output of"
        " `kubectl get resourceslices,resourceclaims -A -o json`; - is standard input",
    )
    parser.add_argument(
        "--slices",
        metavar="FILE",
        help="the same in two files, with --claims: output of `kubectl get resourceslices -o json`",
    )
    parser.add_argument(
        "--claims", metavar="FILE", help="output of `kubectl get resourceclaims -A -o json`"
    )
    parser.add_argument(
        "--driver-name",
        metavar="NAME",
        default=_DRIVER,
        help=f"whose devices to look at (default: {_DRIVER})",
    )
    parser.add_argument("--node", metavar="NAME", help="this node alone")
    parser.add_argument(
        "--want",
        metavar="PROFILE",
        help="a MIG profile, or gpu: name the fewest claims whose end would make room for it",
    )
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
