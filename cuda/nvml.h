/* A GPU's sensors by NVML, the driver's library for that (libnvidia-ml.so.1), opened at run time:
 * it is not there on every machine, and its header even less. */
#ifndef VITTRAIN_CUDA_NVML_H
#define VITTRAIN_CUDA_NVML_H

#include "core/sensors.h"

#ifdef __cplusplus
extern "C" {
#endif

struct nvml;

/* device: a GPU's UUID ("GPU-..." as CUDA has it), or its PCI bus id ("0000:3b:00.0"). library:
 * NULL but in tests. Where there is no library, driver or such device the first reading says why.
 * Takes up to seconds: for a thread beside the training. */
struct nvml *nvml_open(const char *library, const char *device);

/* Fills in the GPU's values, one thread at a time; what the GPU does not have stays as it is. now:
 * seconds of clock_now. A GPU that is lost, and an uncorrected memory error that has come since the
 * reading before, are alarms. From
 * docs.nvidia.com/deploy/nvml-api. */
void nvml_read(struct nvml *nvml, double now, struct sensor_reading *reading);

/* Nothing for NULL; nothing while a reading does not come back, which another thread waits for. */
void nvml_close(struct nvml *nvml);

#ifdef __cplusplus
}
#endif

#endif
