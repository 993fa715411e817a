"""`make demo`: one node with two simulated H100, three claims, from NVML to the CDI file and back.

Real here: the plugin process, the NVML binding, gRPC over unix sockets, files. Stand-ins: the GPUs,
the API server, the scheduler, the kubelet. Ends with 1 if anything was not as it should be.
"""

from __future__ import annotations

import json
import time

from hack.demo.table import table
from hack.fakeapi.scheduler import Unschedulable
from hack.fakekubelet import Claim
from hack.testbed import DRIVER, Testbed


class Story:
    """The rows of the table; each step is checked, not only told."""

    def __init__(self, bed: Testbed) -> None:
        self.bed = bed
        self.rows: list[tuple[str, str, str]] = []
        self._began = time.monotonic()

    def tell(self, what: str, result: str) -> None:
        now = time.monotonic()
        self.rows.append((f"{(now - self._began) * 1000:6.0f} ms", what, result))
        self._began = now

    def run(self) -> None:
        self.publish()
        for name in ("train", "serve", "batch"):
            self.bed.create_claim(name)
        first, second = self.prepare("train"), self.prepare("serve")
        self.wait_in_vain("batch")
        self.end(first)
        third = self.prepare("batch")
        self.restart(second)
        self.end(second)
        self.end(third)
        left = [*self.bed.cdi.iterdir(), *self.bed.ledger.glob("*.json")]
        check(not left, f"left behind: {left}")
        self.tell("all claims are released", "no CDI file, no ledger entry left")

    def publish(self) -> None:
        self.bed.start_plugin()
        devices = [d["name"] for s in self.bed.slices() for d in s["spec"]["devices"]]
        check(len(devices) == 2, f"expected two devices, got {devices}")
        self.tell("the plugin starts, publishes, registers", ", ".join(devices))

    def prepare(self, name: str) -> Claim:
        claim = self.bed.allocate(name)
        answer = self.bed.kubelet.prepare(DRIVER, [claim])[claim.uid]
        check(not answer.error, answer.error)
        spec = json.loads(self.spec_file(claim))
        node = spec["devices"][0]["containerEdits"]["deviceNodes"][0]
        self.tell(
            f"claim {name} is allocated and prepared",
            f"{answer.devices[0].device} as {node['path']} (c {node['major']}:{node['minor']})",
        )
        return claim

    def wait_in_vain(self, name: str) -> None:
        try:
            self.bed.allocate(name)
        except Unschedulable:
            self.tell(f"claim {name} waits", "both GPUs are taken")
            return
        raise SystemExit(f"demo: claim {name} was allocated although both GPUs are taken")

    def end(self, claim: Claim) -> None:
        self.bed.end_claim(claim)
        self.tell(f"claim {claim.name} ends", "its GPU is free again")

    def restart(self, claim: Claim) -> None:
        before = self.bed.kubelet.prepare(DRIVER, [claim])
        self.bed.stop_plugin()
        self.bed.api.requests.clear()
        self.bed.start_plugin()
        again = self.bed.kubelet.prepare(DRIVER, [claim])
        check(again == before, "the answer changed over a restart")
        writes = self.bed.api.requests.writes()
        check(not writes, f"a restart wrote {writes}")
        self.tell(f"the plugin is restarted while {claim.name} runs", "same answer, 0 API writes")

    def spec_file(self, claim: Claim) -> str:
        (found,) = [f for f in self.bed.cdi.iterdir() if claim.uid in f.name]
        return found.read_text()


def check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise SystemExit(f"demo: {otherwise}")


def main() -> None:
    with Testbed.make("h100x2") as bed:
        story = Story(bed)
        story.run()
        code = bed.stop_plugin()
        check(code == 0, f"the plugin ended with {code}\n{bed.log_end()}")
        story.tell("the plugin is asked to end", "exit code 0")
    print(table(("after", "what happened", "result"), story.rows))


if __name__ == "__main__":
    main()
