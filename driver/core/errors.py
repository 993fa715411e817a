"""Every error that Tessera raises on purpose, in one tree.

Why it exists: callers decide by type what to do (ask again, tell the pod, exit), and the libraries
underneath may change without that decision changing. Adapters translate at their border and keep
the original as `__cause__`.

    TesseraError
    |- ConfigError           a key, flag or environment value is wrong: exit code 2
    |- NvmlError             an NVML call failed; says call, code and GPU
    |  |- LibraryMissing     libnvidia-ml.so.1 cannot be loaded
    |  |- DriverNotLoaded    the kernel driver is not there
    |  |  `- DriverMismatch  it is there, with another version than the library
    |  |- GpuLost            fell off the bus, or needs a reset before it answers
    |  |- NotSupported       this board or driver does not have the call or the field
    |  |- NotFound           no such GPU or instance
    |  |- ResetRequired      what was asked takes effect after a reset only
    |  |- InUse              somebody holds what should change
    |  |  `- Released        we let go of NVML ourselves, for a reset by somebody else
    |  |- CallHangs          a call has not returned for so long that nobody waits for it any more
    |  |- NoResources        no room for another instance
    |  `- InstanceLeft       a call failed, and what it had made by then could not be taken away
    |- KubeError             an API request failed; says verb, object and status
    |  |- KubeNotFound       404
    |  |- KubeConflict       409: read again, decide again
    |  |- KubeGone           410: list again
    |  |- KubeForbidden      401, 403: RBAC or an admission policy says no
    |  |- KubeInvalid        400, 422: the same object will be refused again
    |  `- KubeUnavailable    no answer, a time-out, 429 or 5xx: ask again later
    |- ClaimError            one claim cannot be served; the text reaches the pod's events
    |- ContractError         a limit of resource.k8s.io would be broken; nothing is written
    `- StateError            a file of ours cannot be read or written; says path and next step
       |- StateDamaged       content does not match its checksum or its schema
       `- StateTooNew        written by a later version; never overwritten
"""

from __future__ import annotations


class TesseraError(Exception):
    """The root. `str()` is one line that names the thing and the next step."""


class ConfigError(TesseraError):
    """Names the key, the value and what is allowed."""


class NvmlError(TesseraError):
    """`call`: the NVML function; `code`: its return value; `gpu`: what it was asked about."""

    def __init__(self, message: str, *, call: str, code: int, gpu: str = "") -> None:
        where = f" for {gpu}" if gpu else ""
        super().__init__(f"{call}{where}: {message} (NVML code {code})")
        self.call = call
        self.code = code
        self.gpu = gpu


class LibraryMissing(NvmlError):
    pass


class DriverNotLoaded(NvmlError):
    pass


class DriverMismatch(DriverNotLoaded):
    pass


class GpuLost(NvmlError):
    pass


class NotSupported(NvmlError):
    pass


class NotFound(NvmlError):
    pass


class ResetRequired(NvmlError):
    pass


class InUse(NvmlError):
    pass


class Released(InUse):
    pass


class CallHangs(NvmlError):
    pass


class NoResources(NvmlError):
    pass


class InstanceLeft(NvmlError):
    pass


class KubeError(TesseraError):
    """`status`: HTTP, 0 where no answer came. `retry_after`: seconds, where the server said so."""

    def __init__(
        self, message: str, *, what: str, status: int = 0, retry_after: float | None = None
    ) -> None:
        code = f" (HTTP {status})" if status else ""
        super().__init__(f"{what}: {message}{code}")
        self.what = what
        self.status = status
        self.retry_after = retry_after


class KubeNotFound(KubeError):
    pass


class KubeConflict(KubeError):
    pass


class KubeGone(KubeError):
    pass


class KubeForbidden(KubeError):
    pass


class KubeInvalid(KubeError):
    pass


class KubeUnavailable(KubeError):
    pass


class ClaimError(TesseraError):
    """Concerns one claim. `retryable` is False where the same claim can never succeed."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class ContractError(TesseraError):
    """What we were about to publish breaks a limit of the API."""


class StateError(TesseraError):
    """A file operation of ours failed."""


class StateDamaged(StateError):
    pass


class StateTooNew(StateError):
    pass
