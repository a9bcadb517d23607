/* What the trials of `bench machine` work on. A step comes to a tensor again when all others have
 * been through the caches, and its numbers are neither zeros nor so small that processors take the
 * long way; so tensors move on through pools larger than the caches, and are filled anew for each
 * trial: foretold from tensors that were always the same, steps came out 12 to 20 % too short. */
#include <stdlib.h>
#include <unistd.h>

#include "bench/bench_machine.h"
#include "config/options.h"
#include "train/hardware.h"

/* A GPU multiplies zeros faster. The bits are good as any type: in those of 16 bits each half is
 * one. */
static void numbers_fill(uint32_t *numbers)
{
    uint32_t state = 1;
    for (int i = 0; i < TRIAL_BYTES / (int)sizeof *numbers; i++) {
        state = state * 1664525 + 1013904223;
        numbers[i] = 0x3c003c00 | (state & 0x80ff80ff);
    }
}

/* Bytes of the last cache that ranks of a node share; a guess where nobody says it, and for GPUs.
 */
static double cache_bytes(const struct machine_bench *self)
{
    const double guess = 128 << 20;
    long bytes = -1;
#ifdef _SC_LEVEL3_CACHE_SIZE
    bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    if (self->limits.memory_bytes > 0 || bytes <= 0)
        return guess;
    return (double)bytes / self->node->size;
}

/* All six together half as large again as the cache. */
static size_t pool_choose(const struct machine_bench *self)
{
    double beyond = self->bench->options->bench.quick ? 0 : cache_bytes(self) * 1.5 / TRIAL_TENSORS;
    return TRIAL_BYTES + (size_t)beyond;
}

void trial_tensors_fill(struct machine_bench *self)
{
    for (int i = 0; i < TRIAL_TENSORS; i++)
        for (size_t at = 0; at < self->pool_bytes; at += TRIAL_BYTES) {
            size_t left = self->pool_bytes - at;
            self->device->backend->copy(self->stream, self->pool[i] + at, self->numbers,
                                        left < TRIAL_BYTES ? left : TRIAL_BYTES);
        }
    self->device->backend->stream_synchronize(self->stream);
}

void trial_tensors_turn(struct machine_bench *self, double bytes)
{
    void **const tensors[TRIAL_TENSORS] = {&self->x,     &self->y,   &self->weight,
                                           &self->other, &self->pre, &self->gradient};
    const size_t page = 4096;
    self->turned += ((size_t)bytes + page) / page * page;
    if (self->turned > self->pool_bytes - TRIAL_BYTES)
        self->turned = 0;
    for (int i = 0; i < TRIAL_TENSORS; i++)
        *tensors[i] = self->pool[i] + self->turned;
}

static void memory_open(struct machine_bench *self, struct error *error)
{
    const struct device_backend *backend = self->device->backend;
    const size_t bytes = backend->workspace_bytes(self->device);
    self->pool_bytes = pool_choose(self);
    self->numbers = malloc(TRIAL_BYTES);
    ENSURE(self->numbers != NULL, "no memory for numbers");
    numbers_fill(self->numbers);
    for (int i = 0; i < TRIAL_TENSORS && error->kind == ERROR_NONE; i++)
        self->pool[i] = backend->allocate(self->device, self->pool_bytes, error);
    if (error->kind == ERROR_NONE)
        self->convolution = backend->allocate(self->device, machine_convolution_bytes(self), error);
    if (error->kind == ERROR_NONE)
        self->place = backend->allocate(self->device, sizeof *self->place, error);
    if (error->kind == ERROR_NONE)
        self->workspace = backend->allocate(self->device, bytes + 1, error);
    if (error->kind == ERROR_NONE)
        backend->workspace_set(self->device, self->workspace, bytes);
}

/* Somewhere in a run, for what reads that. */
static void place_set(const struct machine_bench *self)
{
    static const struct step_params place = {.update = 1, .rate = 1e-3, .beta1 = 0.9};
    self->device->backend->copy(self->stream, self->place, &place, sizeof place);
    self->device->backend->stream_synchronize(self->stream);
}

bool machine_bench_open(struct machine_bench *self, struct error *error)
{
    self->device = hardware_open(self->bench->options, self->node, error);
    if (self->device != NULL) {
        self->device->backend->limits(self->device, &self->limits);
        self->stream = self->device->backend->stream_open(self->device);
        memory_open(self, error);
    }
    if (!comm_agree(self->world, error))
        return false;
    place_set(self);
    trial_tensors_fill(self);
    trial_tensors_turn(self, 0);
    return true;
}

void machine_bench_close(struct machine_bench *self)
{
    void *const memory[] = {self->pool[0], self->pool[1],     self->pool[2],
                            self->pool[3], self->pool[4],     self->pool[5],
                            self->place,   self->convolution, self->workspace};
    if (self->device == NULL)
        return;
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        if (memory[i] != NULL)
            self->device->backend->release(self->device, memory[i]);
    free(self->numbers);
    self->device->backend->stream_close(self->stream);
    self->device->backend->close(self->device);
}
