/* Operations that multiply bf16 with tiles (tiles.h). Each tiles_SUBJECT.c is compiled twice: with
 * -DKERNELS=amx for processors with AMX, and with -DKERNELS=amx_emulated, where plain C replaces
 * the tile instructions, for tests on any processor. A shape that an operation does not take is
 * computed as without tiles. */
#ifndef VITTRAIN_DEVICE_TILE_KERNELS_H
#define VITTRAIN_DEVICE_TILE_KERNELS_H

#include "device/kernels.h"

struct cpu_device;

/* tiles_convolution.c */
struct tile_convolution_kernels {
    /* Return the bytes of workspace; 0 if the shape is not supported. */
    size_t (*workspace)(const struct convolution_shape *shape);
    /* Add the weight's gradient to args->dweight. Runs on all threads of the device. */
    void (*weight)(const struct cpu_device *cpu, const struct convolution_backward *args,
                   void *workspace);
};

struct tile_kernels {
    const char *name; /* value of VITTRAIN_CPU */
    const struct tile_convolution_kernels *convolution;
};

#ifdef KERNELS
extern const struct tile_convolution_kernels KERNEL(tile_convolution_kernels);
#endif

/* Return the operations on tiles of the processor or, if VITTRAIN_CPU=amx-emulated, of the
 * emulation; NULL without AMX or if VITTRAIN_CPU has another value. */
const struct tile_kernels *cpu_tiles_choose(void);

/* tile_kernels_amx is compiled in if HAVE_KERNELS_AMX is defined (config.h). */
extern const struct tile_kernels tile_kernels_amx, tile_kernels_amx_emulated;

#endif
