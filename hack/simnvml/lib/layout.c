/* Size and offset of every ABI structure under nvidia-ml-py's names, for the test that compares. */
#define _GNU_SOURCE
#include "call.h"

typedef struct { const char *structure, *field; u32 offset, size; } Row;
#define S(python, type) {python, NULL, 0, sizeof(type)}
#define F(python, name, type, member)                                                              \
    {python, name, offsetof(type, member), sizeof(((type *)0)->member)}

static const Row rows[] = {
#include "layout_rows.h"
};

EXPORT int sim_layout(u32 i, Row *out)
{
    if (i >= sizeof rows / sizeof *rows)
        return -1;
    *out = rows[i];
    return 0;
}
