"""MIG boards as NVML reports them, as a compact table for tests of the core.

Where a figure of a large profile has not been seen in print it follows the pattern of its class.
"""

from driver.core.geometry import Geometry, MigProfile, Placement

_EIGHT = {
    "1g": ((0, 1, 2, 3, 4, 5, 6), 1),
    "1g+me": ((0, 1, 2, 3, 4, 5, 6), 1),
    "1g2": ((0, 2, 4, 6), 2),
    "2g": ((0, 2, 4), 2),
    "3g": ((0, 4), 4),
    "4g": ((0,), 4),
    "7g": ((0,), 8),
}
_KINDS = {"1g": (0, 19), "1g+me": (7, 20), "1g2": (9, 15), "2g": (1, 14), "3g": (2, 9)}
_KINDS |= {"4g": (3, 5), "7g": (4, 0)}


def _profile(index, number, name, most, mib, engines, starts, size):
    multiprocessors, copy, decoders, encoders, jpeg, ofa = engines
    return MigProfile(
        index=index,
        id=number,
        name=name,
        compute_slices=int(name.partition("g")[0]),
        memory_mib=mib,
        max_instances=most,
        placements=tuple(Placement(start=s, size=size) for s in starts),
        multiprocessors=multiprocessors,
        copy_engines=copy,
        decoders=decoders,
        encoders=encoders,
        jpeg=jpeg,
        ofa=ofa,
    )


def _eight(names, mib, engines):
    """A board of the class with 8 slots and 7 compute slices; in the order of `_EIGHT`."""
    profiles = []
    for kind, name, size, of in zip(_EIGHT, names.split(), mib, engines, strict=True):
        starts, slots = _EIGHT[kind]
        most = 1 if kind == "1g+me" else len(starts)
        profiles.append(_profile(*_KINDS[kind], name, most, size, of, starts, slots))
    return Geometry(slots=8, profiles=tuple(sorted(profiles, key=lambda p: p.index)))


def _ampere(names, mib):
    # multiprocessors, copy engines, decoders, encoders, JPEG, optical flow
    return _eight(
        names,
        mib,
        [
            (14, 1, 0, 0, 0, 0),
            (14, 1, 1, 0, 1, 1),
            (14, 1, 1, 0, 0, 0),
            (28, 2, 1, 0, 0, 0),
            (42, 3, 2, 0, 0, 0),
            (56, 4, 2, 0, 0, 0),
            (98, 7, 5, 0, 1, 1),
        ],
    )


def _hopper(names, mib, copy=1, copy_whole=8):
    multiprocessors = (16, 16, 26, 32, 60, 64, 132)
    engines = [1, 1, 1, 2, 3, 4, 7]
    optical = [0, 1, 0, 0, 0, 0, 1]
    return _eight(
        names,
        mib,
        [
            (m, copy_whole if e == 7 else copy * e, e, 0, e, o)
            for m, e, o in zip(multiprocessors, engines, optical, strict=True)
        ],
    )


A100_40 = _ampere(
    "1g.5gb 1g.5gb+me 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb",
    (4864, 4864, 9856, 9856, 19968, 19968, 40192),
)
A100_80 = _ampere(
    "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
    (9728, 9728, 19968, 19968, 40192, 40192, 80896),
)
H100 = _hopper(
    "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
    (9984, 9984, 20091, 20091, 40448, 40448, 81152),
)
H200 = _hopper(
    "1g.18gb 1g.18gb+me 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb",
    (16384, 16384, 33024, 33024, 71168, 71168, 143104),
)
B200 = _hopper(
    "1g.23gb 1g.23gb+me 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb",
    (22528, 22528, 45312, 45312, 90624, 90624, 182272),
    copy=2,
    copy_whole=16,
)
A30 = Geometry(
    slots=4,
    profiles=(
        _profile(0, 14, "1g.6gb", 4, 5949, (14, 1, 0, 0, 0, 0), (0, 1, 2, 3), 1),
        _profile(1, 5, "2g.12gb", 2, 11971, (28, 2, 2, 0, 0, 0), (0, 2), 2),
        _profile(3, 0, "4g.24gb", 1, 24003, (56, 4, 4, 0, 1, 1), (0,), 4),
        _profile(7, 21, "1g.6gb+me", 1, 5949, (14, 1, 1, 0, 1, 1), (0, 1, 2, 3), 1),
        _profile(8, 6, "2g.12gb+me", 1, 11971, (28, 2, 2, 0, 1, 1), (0, 2), 2),
    ),
)
_QUARTERS, _HALVES = (0, 3, 6, 9), (0, 6)
RTX_PRO_6000 = Geometry(
    slots=12,
    profiles=(
        _profile(0, 14, "1g.24gb", 4, 24187, (46, 1, 1, 1, 1, 0), _QUARTERS, 3),
        _profile(1, 5, "2g.48gb", 2, 48517, (94, 2, 2, 2, 2, 0), _HALVES, 6),
        _profile(3, 0, "4g.96gb", 1, 97403, (188, 4, 4, 4, 4, 1), (0,), 12),
        _profile(7, 21, "1g.24gb+me", 1, 24187, (46, 1, 1, 1, 1, 1), _QUARTERS, 3),
        _profile(10, 47, "1g.24gb+gfx", 4, 24187, (46, 1, 1, 1, 1, 0), _QUARTERS, 3),
        _profile(11, 35, "2g.48gb+gfx", 2, 48517, (94, 2, 2, 2, 2, 0), _HALVES, 6),
        _profile(12, 32, "4g.96gb+gfx", 1, 97403, (188, 4, 4, 4, 4, 1), (0,), 12),
        _profile(13, 67, "1g.24gb-me", 4, 24187, (46, 1, 0, 0, 0, 0), _QUARTERS, 3),
        _profile(14, 66, "2g.48gb-me", 2, 48517, (94, 2, 0, 0, 0, 0), _HALVES, 6),
        _profile(15, 65, "1g.24gb+me.all", 1, 24187, (46, 1, 4, 4, 4, 1), _QUARTERS, 3),
        _profile(16, 64, "2g.48gb+me.all", 1, 48517, (94, 2, 4, 4, 4, 1), _HALVES, 6),
    ),
)

BOARDS = {
    "A100-40": A100_40,
    "A100-80": A100_80,
    "A30": A30,
    "H100": H100,
    "H200": H200,
    "B200": B200,
    "RTX-PRO-6000": RTX_PRO_6000,
}
EIGHT_SLOTS = {name: board for name, board in BOARDS.items() if board.slots == 8}


def every_profile(board):
    return tuple(p.name for p in board.profiles)
