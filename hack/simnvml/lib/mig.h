/* What the two halves of MIG share. */
#pragma once
#include "state.h"

/* Does a process run in this instance? `ci` may be NOBODY for any. */
int has_process(const Gpu *g, u32 gi, u32 ci);
