/* A stand-in for nvidia-smi: lists what the NVML library beside it shows, in the form of `-L`.
 * It exists so that a driver root has an executable of that name and a container can print what it
 * was given. It knows only plain NVML entry points, so it would work with any libnvidia-ml.so.1. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef int (*no_args)(void);
typedef int (*get_count)(unsigned *);
typedef int (*get_handle)(unsigned, void **);
typedef int (*get_mig)(void *, unsigned, void **);
typedef int (*get_string)(void *, char *, unsigned);
typedef const char *(*error_text)(int);

static void *library;

static void *symbol(const char *name)
{
    void *found = dlsym(library, name);
    if (!found)
        fprintf(stderr, "nvidia-smi: %s is missing in libnvidia-ml.so.1\n", name);
    return found;
}

static void list_mig(void *gpu, get_mig mig_handle, get_string name, get_string uuid)
{
    char text[128], id[96];
    for (unsigned i = 0; i < 8; i++) {
        void *mig;
        if (mig_handle(gpu, i, &mig) || name(mig, text, sizeof text) || uuid(mig, id, sizeof id))
            continue;
        const char *profile = strstr(text, "MIG ");
        printf("  %-14s Device %2u: (UUID: %s)\n", profile ? profile : text, i, id);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "-L") != 0) {
        fprintf(stderr, "nvidia-smi: only -L is simulated, not %s\n", argv[1]);
        return 2;
    }
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "nvidia-smi: %s\n", dlerror());
        return 12;
    }
    no_args init = (no_args)symbol("nvmlInit_v2"), shut_down = (no_args)symbol("nvmlShutdown");
    get_count count = (get_count)symbol("nvmlDeviceGetCount_v2");
    get_handle handle = (get_handle)symbol("nvmlDeviceGetHandleByIndex_v2");
    get_mig mig_handle = (get_mig)symbol("nvmlDeviceGetMigDeviceHandleByIndex");
    get_string name = (get_string)symbol("nvmlDeviceGetName");
    get_string uuid = (get_string)symbol("nvmlDeviceGetUUID");
    error_text error = (error_text)symbol("nvmlErrorString");
    if (!init || !shut_down || !count || !handle || !mig_handle || !name || !uuid || !error)
        return 13;
    int ret = init();
    if (ret) {
        printf("Failed to initialize NVML: %s\n", error(ret));
        return ret;
    }
    unsigned n = 0;
    ret = count(&n);
    for (unsigned i = 0; !ret && i < n; i++) {
        void *gpu;
        char text[128], id[96];
        int got = handle(i, &gpu);
        if (!got)
            got = name(gpu, text, sizeof text);
        if (!got)
            got = uuid(gpu, id, sizeof id);
        if (got) {
            printf("Unable to determine the device handle for gpu %u: %s\n", i, error(got));
            continue;
        }
        printf("GPU %u: %s (UUID: %s)\n", i, text, id);
        list_mig(gpu, mig_handle, name, uuid);
    }
    shut_down();
    return ret;
}
