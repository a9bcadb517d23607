// SPDX-License-Identifier: BSD-3-Clause
/* The table of operations (operations.h) and what else a program needs of the hardware. A backend
 * is one `const struct device_backend`. Only *_allocate and device_open allocate memory. */
#ifndef VITTRAIN_DEVICE_DEVICE_H
#define VITTRAIN_DEVICE_DEVICE_H

#include "base/error.h"
#include "base/sensors.h"
#include "device/operations.h"

struct device;
struct event;
struct graph;
struct comm;

struct device_settings {
    bool tf32; /* matrix products and convolutions may round fp32 to TF32's 10 bits */
    bool
        dependent_launch; /* launch kernels before the preceding ones end (cuda.dependent_launch) */
    const char *cache;    /* folder of the fastest algorithms (algorithm_choices.h); "" for none */
};

struct device_limits {
    int threads;           /* CPU: size of the thread pool */
    char name[128];        /* "AMD EPYC 9354, AVX2, 2 threads" */
    char instructions[32]; /* "avx2": devices with equal names give identical bits */
    char library[32];      /* of matrix products: "oneDNN 2.6.3", or "" */
    size_t library_bytes;  /* host memory that it takes in the first step */
    char identity[48];     /* globally unique name of the device, or "" (CPU) */
    size_t memory_bytes;   /* dedicated memory; 0: the device uses the host's */
    bool multiplies_bf16, multiplies_fp16; /* supported in hardware */
    double peak_flops[3];                  /* indexed by data_type, of the data sheet; 0: unknown */
};

/* Installed software, and how the devices of a node are connected. */
struct device_survey {
    char software[128]; /* "driver for CUDA 13.0, CUDA 12.8, NCCL 2.28.9" */
    int visible;        /* devices of the node that are visible to this process */
    int unreached;      /* those of them that this device cannot access directly */
};

struct device_backend {
    const char *name; /* "cpu" */
    /* `number`: index of the device in the node. threads: CPU only, 0 = all processors available to
     * this process. */
    struct device *(*open)(int number, int threads, struct error *error);
    void (*close)(struct device *device);
    void (*limits)(struct device *device, struct device_limits *limits);
    /* Measure the operations per second of one thread in matrix products of this type, in 0.05 s of
     * CPU time and at most 0.5 s. NULL: limits has the peak. */
    double (*measure_peak)(struct device *device, enum data_type type);
    /* NULL if the backend has nothing to report. */
    void (*survey)(struct device *device, struct device_survey *survey);
    /* Fill in what the device itself can measure (base/sensors.h). May be slow; called by one
     * thread at a time, concurrently with operations. NULL: no device sensors (the host's are read
     * in any case). */
    void (*sensors)(struct device *device, struct sensor_reading *reading);
    /* Return true if attention over this many tokens with heads of this width is supported. */
    bool (*attention_fits)(struct device *device, int64_t tokens, int64_t head_dim);
    /* True if a call of a linear layer may have any number of grains, unless it computes gradients
     * of parameters. */
    bool linear_grains;
    /* The operations that write or read the gradient of a linear layer's output can also compute
     * the gradient of its bias. */
    bool sums_gradients;

    /* True if a convolution of this shape can read images channels first (shape.images). NULL: no
     * convolution can. */
    bool (*convolution_reads_images)(enum data_type type, const struct convolution_shape *shape);
    /* Return the bytes of workspace that a convolution of this shape needs, forward and backward.
     */
    size_t (*convolution_workspace)(struct device *device, enum data_type type,
                                    const struct convolution_shape *shape);

    /* Device memory and pinned host memory; NULL and an error if memory is short. */
    void *(*allocate)(struct device *device, size_t bytes, struct error *error);
    void (*release)(struct device *device, void *memory);
    void *(*allocate_pinned)(struct device *device, size_t bytes, struct error *error);
    void (*release_pinned)(struct device *device, void *memory);
    /* Free bytes of dedicated device memory; NULL: the device uses the host's. */
    size_t (*memory_free)(struct device *device);

    /* Collectives on the device's own memory (comm/comm.h); NULL where it has the host's. comm_open
     * is collective over `host` and returns a group of the same ranks, or NULL and an error.
     * comm_keep_order: call it before two groups are opened whose collectives overlap; false and an
     * error if the library may deadlock then. */
    struct comm *(*comm_open)(struct comm *host, struct error *error);
    bool (*comm_keep_order)(struct error *error);

    /* The largest workspace that any operation needs. Set once before the first operation, to
     * device memory from the arena. */
    size_t (*workspace_bytes)(struct device *device);
    void (*workspace_set)(struct device *device, void *memory, size_t bytes);

    /* Called before the first operation. NULL: the device has no settings. */
    void (*settings_set)(struct device *device, const struct device_settings *settings);

    /* The algorithms of matrix products that this device has chosen by measurement
     * (algorithm_choices.h), as text. Other ranks and resumed runs adopt them to get identical
     * bits. choices_adopt returns true if an algorithm in use changed: graphs captured before still
     * use the old one. choices_are_new: true if choices were made since the last adoption; NULL if
     * the device does not choose, whose text only identifies its kernels. */
    char *(*choices_export)(struct device *device); /* the caller frees it */
    bool (*choices_are_new)(struct device *device);
    bool (*choices_adopt)(struct device *device, const char *choices);

    struct stream *(*stream_open)(struct device *device);
    void (*stream_close)(struct stream *stream);
    void (*stream_wait)(struct stream *stream, struct event *event);
    void (*stream_synchronize)(struct stream *stream); /* blocks the host */
    struct event *(*event_open)(struct device *device);
    void (*event_close)(struct event *event);
    void (*event_record)(struct event *event, struct stream *stream);
    void (*event_synchronize)(struct event *event); /* blocks the host */

    /* Graphs, as in CUDA; all NULL if not supported. Work put on the stream between begin and end,
     * and on streams joined to it by events, is captured instead of executed; run launches all of
     * it on the stream. Host addresses and values are fixed at capture; memory contents are read at
     * execution. */
    void (*graph_begin)(struct stream *stream);
    struct graph *(*graph_end)(struct stream *stream);
    void (*graph_run)(struct graph *graph, struct stream *stream);
    void (*graph_close)(struct graph *graph);

    /* Nested ranges on a profiler's timeline; NULL if not supported. */
    void (*range_begin)(const char *name);
    void (*range_end)(void);

    /* Start and stop a profiler that waits for this call (cudaProfilerStart); NULL if not
     * supported. */
    void (*capture)(bool on);

#define OPERATION_POINTER(name, kind, parameters, ...) void(*name) parameters;
    DEVICE_OPERATIONS(OPERATION_POINTER)
};

struct device {
    const struct device_backend *backend;
    /* The bits of results must depend on the arguments of operations only (grains.h), not on the
     * number of threads or on measurements of algorithms. Set before the first operation. */
    bool reproducible;
};

/* Queue an operation of operations.h; its arguments are the members of its struct. */
#define OPERATION_RUN(device, stream, operation, ...)                                              \
    (device)->backend->operation(stream, &(const struct operation){__VA_ARGS__})

extern const struct device_backend device_cpu;

/* Return the backend named "cpu" or "cuda" (whose module is opened), or NULL and an error that
 * names what is missing. */
const struct device_backend *device_find(const char *name, struct error *error);

/* Return a symbol of the GPU module, vittrain-cuda.so, or NULL and an error: module missing, no
 * driver, or a different version. The module is opened at the first call, because loading the CUDA
 * libraries takes half a second and 150 MB per process. It is searched for next to the program and
 * in the installation directory. VITTRAIN_CUDA_MODULE names another file, which is opened without
 * searching for a driver. */
void *device_module_symbol(const char *name, struct error *error);

#endif
