// SPDX-License-Identifier: BSD-3-Clause
/* A GPU's sensors by NVML, the driver's management library (libnvidia-ml.so.1). It is opened at run
 * time, because not every machine has it, and even fewer have its header. */
#ifndef VITTRAIN_CUDA_NVML_H
#define VITTRAIN_CUDA_NVML_H

#include "base/sensors.h"

#ifdef __cplusplus
extern "C" {
#endif

struct nvml;

/* device: a GPU's UUID ("GPU-..." as in CUDA) or its PCI bus id ("0000:3b:00.0"). library: NULL
 * except in tests. If the library, the driver or the device is missing, the first reading reports
 * why. May take seconds: intended for a background thread. */
struct nvml *nvml_open(const char *library, const char *device);

/* Fill in the GPU's values; one thread at a time. Values that the GPU does not provide are left
 * unchanged. A lost GPU is an alarm. From docs.nvidia.com/deploy/nvml-api. */
void nvml_read(struct nvml *nvml, struct sensor_reading *reading);

/* No effect for NULL, nor while a reading in another thread does not return. */
void nvml_close(struct nvml *nvml);

#ifdef __cplusplus
}
#endif

#endif
