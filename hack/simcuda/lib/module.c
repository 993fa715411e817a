/* Modules and functions. PTX is not compiled: its header is checked as the driver would, and the
 * names of its entries are kept; kernels.c has what some of them compute. */
#define _GNU_SOURCE
#include "call.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct { Context *owner; char *entries; } Module; /* names, each with a space behind it */
typedef struct { const Module *module; char name[SYMBOL_LEN]; } Function;
static Module modules[MAX_MODULE];
static Function functions[MAX_FUNCTION];

static void unload(Module *m)
{
    for (int i = 0; i < MAX_FUNCTION; i++)
        if (functions[i].module == m)
            functions[i] = (Function){0};
    free(m->entries);
    *m = (Module){0};
}

void unload_modules_of(const Context *context)
{
    for (int i = 0; i < MAX_MODULE; i++)
        if (modules[i].owner && (!context || modules[i].owner == context))
            unload(&modules[i]);
}

void forget_modules(void)
{
    unload_modules_of(NULL);
}

static Module *find_module(const void *handle, const Context *context)
{
    for (int i = 0; i < MAX_MODULE; i++)
        if (handle == &modules[i])
            return modules[i].owner == context ? &modules[i] : NULL;
    return NULL;
}

const char *function_name(const void *function, const Context *context)
{
    for (int i = 0; i < MAX_FUNCTION; i++)
        if (function == &functions[i] && functions[i].module)
            return functions[i].module->owner == context ? functions[i].name : NULL;
    return NULL;
}

/* The newest PTX that a driver of this CUDA version takes: 8.0 came with 12.0, 9.0 with 13.0. */
static u32 newest_ptx(u32 cuda_version)
{
    u32 major = cuda_version / 1000, minor = cuda_version % 1000 / 10;
    return (major >= 12 ? major - 4 : 7) * 10 + minor;
}

static CUresult check(const Call *c, const char *ptx)
{
    unsigned major, minor, target;
    const Gpu *g = &c->s->gpu[c->d->gpu];
    const char *version = strstr(ptx, ".version"), *arch = strstr(ptx, ".target");
    if (!version || !arch)
        return CUDA_ERROR_INVALID_IMAGE;
    if (sscanf(version, ".version %u.%u", &major, &minor) != 2 ||
        sscanf(arch, ".target sm_%u", &target) != 1 || !strstr(ptx, ".address_size 64"))
        return CUDA_ERROR_INVALID_PTX;
    if (major * 10 + minor > newest_ptx(c->s->cuda))
        return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    return target > g->cc_major * 10 + g->cc_minor ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_SUCCESS;
}

static char *entries_of(const char *ptx)
{
    char *found = calloc(1, strlen(ptx) + 2);
    for (const char *at = ptx; found && (at = strstr(at, ".entry")); ) {
        at += strlen(".entry");
        while (isspace((unsigned char)*at))
            at++;
        size_t n = strcspn(at, " \t\r\n({");
        strncat(found, at, n);
        strcat(found, " ");
    }
    return found;
}

static CUresult load(Call *c, void **out, const char *image)
{
    if (!out || !image)
        return leave(c, CUDA_ERROR_INVALID_VALUE);
    CUresult ret = check(c, image);
    for (int i = 0; !ret && i < MAX_MODULE; i++)
        if (!modules[i].owner) {
            char *entries = entries_of(image);
            if (!entries)
                break;
            modules[i] = (Module){c->context, entries};
            *out = &modules[i];
            return leave(c, CUDA_SUCCESS);
        }
    return leave(c, ret ? ret : CUDA_ERROR_OUT_OF_MEMORY);
}

EXPORT CUresult cuModuleLoadData(void **out, const void *image)
{
    ENTER(ON_CURRENT, 0);
    return load(&c, out, image);
}

EXPORT CUresult cuModuleLoadDataEx(void **out, const void *image, unsigned count, int *options,
                                   void **values)
{
    ENTER(ON_CURRENT, 0);
    (void)count, (void)options, (void)values;
    return load(&c, out, image);
}

EXPORT CUresult cuModuleUnload(void *module)
{
    ENTER(ON_CURRENT, 0);
    Module *m = find_module(module, c.context);
    REFUSE_IF(!m, CUDA_ERROR_INVALID_HANDLE);
    unload(m);
    LEAVE(CUDA_SUCCESS);
}

EXPORT CUresult cuModuleGetFunction(void **out, void *module, const char *name)
{
    ENTER(ON_CURRENT, 0);
    REFUSE_IF(!out || !name, CUDA_ERROR_INVALID_VALUE);
    const Module *m = find_module(module, c.context);
    REFUSE_IF(!m, CUDA_ERROR_INVALID_HANDLE);
    char wanted[SYMBOL_LEN + 1];
    int n = snprintf(wanted, sizeof wanted, "%s ", name);
    REFUSE_IF(n < 2 || (size_t)n >= sizeof wanted, CUDA_ERROR_NOT_FOUND);
    const char *at = m->entries;
    while ((at = strstr(at, wanted)) && at != m->entries && at[-1] != ' ')
        at++;
    REFUSE_IF(!at, CUDA_ERROR_NOT_FOUND);
    for (int i = 0; i < MAX_FUNCTION; i++)
        if (!functions[i].module) {
            functions[i].module = m;
            memcpy(functions[i].name, name, strlen(name) + 1);
            *out = &functions[i];
            LEAVE(CUDA_SUCCESS);
        }
    LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
}
