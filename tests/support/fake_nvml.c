/* Stands for libnvidia-ml.so: two GPUs, whose events and states are files of the folder in FAKE_NVML.
 *
 *   events   lines "GPU XID": each is told once
 *   action, failed, ecc: a number for GPU 1 (absent: 0)
 *   hang     while it is there, the start does not come back
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { void *device; unsigned long long type, data; unsigned gi, ci; } event_t;
typedef struct { unsigned id, scope; long long at, took; unsigned kind, result; unsigned long long value; } field_t;

static int gpus[2] = {0, 1};
static long told = 0;

static void place(char *path, const char *name) {
    const char *folder = getenv("FAKE_NVML");
    snprintf(path, 4096, "%s/%s", folder ? folder : "/nowhere", name);
}

static unsigned number(void *device, const char *name) {
    char path[4096];
    unsigned value = 0;
    place(path, name);
    FILE *file = device == &gpus[1] ? fopen(path, "r") : NULL;
    if (file) {
        if (fscanf(file, "%u", &value) != 1) value = 0;
        fclose(file);
    }
    return value;
}

int nvmlInit_v2(void) {
    char path[4096];
    place(path, "hang");
    while (access(path, F_OK) == 0) usleep(10000);
    return 0;
}
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = &gpus[index]; return 0; }
int nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
    snprintf(text, size, "GPU-0000000%d-aaaa", *(int *)device);
    return 0;
}
int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    *corrected = *uncorrected = *pending = 0;
    *failed = number(device, "failed");
    return 0;
}
int nvmlDeviceGetFieldValues(void *device, int count, field_t *fields) {
    fields[0].result = count == 1 && fields[0].id == 230 ? 0 : 3;
    fields[0].value = number(device, "action");
    return 0;
}
int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *count) {
    (void)type, (void)counter;
    *count = number(device, "ecc");
    return 0;
}
int nvmlEventSetCreate(void **set) { *set = &told; return 0; }
int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set) {
    (void)device;
    return set == &told && types == 8 ? 0 : 2;
}
int nvmlEventSetWait_v2(void *set, event_t *event, unsigned timeout_ms) {
    char path[4096];
    (void)set;
    place(path, "events");
    for (unsigned waited = 0;; waited += 10) {
        int gpu, xid;
        FILE *file = fopen(path, "r");
        if (file) {
            fseek(file, told, SEEK_SET);
            if (fscanf(file, "%d %d\n", &gpu, &xid) == 2) {
                told = ftell(file);
                fclose(file);
                event->device = &gpus[gpu & 1];
                event->type = 8;
                event->data = (unsigned long long)xid;
                return 0;
            }
            fclose(file);
        }
        if (waited >= timeout_ms) return 10;
        usleep(10000);
    }
}
