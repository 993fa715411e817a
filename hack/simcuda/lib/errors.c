/* Names and texts of result codes, in CUDA's own words. */
#include "call.h"

#define CODE(name, text) {CUDA_ERROR_##name, "CUDA_ERROR_" #name, text}
static const struct { CUresult code; const char *name, *text; } known[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    CODE(INVALID_VALUE, "invalid argument"),
    CODE(OUT_OF_MEMORY, "out of memory"),
    CODE(NOT_INITIALIZED, "initialization error"),
    CODE(DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable"),
    CODE(NO_DEVICE, "no CUDA-capable device is detected"),
    CODE(INVALID_DEVICE, "invalid device ordinal"),
    CODE(INVALID_IMAGE, "device kernel image is invalid"),
    CODE(INVALID_CONTEXT, "invalid device context"),
    CODE(NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    CODE(ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
    CODE(INVALID_PTX, "a PTX JIT compilation failed"),
    CODE(NVLINK_UNCORRECTABLE, "uncorrectable NVLink error detected during the execution"),
    CODE(UNSUPPORTED_PTX_VERSION,
         "the provided PTX was compiled with an unsupported toolchain."),
    CODE(INVALID_HANDLE, "invalid resource handle"),
    CODE(NOT_FOUND, "named symbol not found"),
    CODE(ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
    {717, "CUDA_ERROR_INVALID_ADDRESS_SPACE",
     "operation not supported on global/shared address space"},
    CODE(LAUNCH_FAILED, "unspecified launch failure"),
    {800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    CODE(NOT_SUPPORTED, "operation not supported"),
    CODE(SYSTEM_NOT_READY, "system not yet initialized"),
    CODE(SYSTEM_DRIVER_MISMATCH,
         "system has unsupported display driver / cuda driver combination"),
    CODE(UNKNOWN, "unknown error"),
};

static CUresult look_up(CUresult code, const char **out, int want_name)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].code == code)
            *out = want_name ? known[i].name : known[i].text;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGetErrorName(CUresult code, const char **out)
{
    return look_up(code, out, 1);
}

EXPORT CUresult cuGetErrorString(CUresult code, const char **out)
{
    return look_up(code, out, 0);
}
