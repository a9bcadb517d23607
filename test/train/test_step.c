// SPDX-License-Identifier: BSD-3-Clause
/* After the first step no thread allocates memory. This test replaces the C library's allocation
 * functions and counts the calls; sanitizers replace them, too, so it is skipped there. Calls by
 * oneDNN and by LLVM's OpenMP runtime are not counted. That runtime allocates in each loop with
 * schedule(dynamic), for each team of one thread and, if built with assertions, for trace messages.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr */
#endif
#include <stdatomic.h>

#include <dlfcn.h>
#include <dnnl.h>

#include "model_fixture.h"
#include "options/options.h"
#include "temporary.h"
#include "train/trainer.h"

#if defined(__SANITIZE_ADDRESS__)
#define COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define COUNTS_ALLOCATIONS 0
#endif
#endif
#ifndef COUNTS_ALLOCATIONS
#ifdef __GLIBC__
#define COUNTS_ALLOCATIONS 1
#else
#define COUNTS_ALLOCATIONS 0
#endif
#endif

static atomic_long allocations;
#if COUNTS_ALLOCATIONS
static _Thread_local bool inside_onednn;

static bool called_by_openmp(const void *caller)
{
    Dl_info library;
    return dladdr(caller, &library) != 0 && strstr(library.dli_fname, "/libomp") != NULL;
}

static void allocation_count(const void *caller)
{
    if (!inside_onednn && !called_by_openmp(caller))
        allocations++;
}

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);

void *malloc(size_t size)
{
    allocation_count(__builtin_return_address(0));
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    allocation_count(__builtin_return_address(0));
    return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
    allocation_count(__builtin_return_address(0));
    return __libc_realloc(memory, size);
}

typedef dnnl_status_t execute_function(const_dnnl_primitive_t, dnnl_stream_t, int,
                                       const dnnl_exec_arg_t *);

dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream,
                                     int argument_count, const dnnl_exec_arg_t *arguments)
{
    static _Atomic(execute_function *) execute;
    if (execute == NULL)
        execute = (execute_function *)dlsym(RTLD_NEXT, "dnnl_primitive_execute");
    inside_onednn = true;
    dnnl_status_t status = execute(primitive, stream, argument_count, arguments);
    inside_onednn = false;
    return status;
}
#endif

static void options_make(struct options *options, const char *directory)
{
    char words[1024];
    snprintf(words, sizeof words,
             "model.dim=32 model.depth=2 model.heads=2 model.patch=8 data.format=synthetic "
             "data.samples=640 train.batch=16 train.clip_norm=1 train.precision=fp32 "
             "train.accumulate=2 run.dir=%s/run",
             directory);
    settings_set(options, words);
}

static void steps_run(struct trainer *trainer, int64_t first, int64_t end)
{
    struct step_times times = {0};
    for (int64_t step = first; step < end; step++)
        assert_ok(step_run(&trainer->session, step, 1e-3, &times, &error), &error);
}

TEST(a_step_allocates_nothing)
{
    struct options options;
    struct trainer trainer;
    options_make(&options, temporary_open());
    assert_ok(trainer_open(&trainer, &options, NULL, NULL, world, &error), &error);
    session_activations(&trainer.session, true);
    loader_start(trainer.session.train.loader, 0, 0, trainer.steps_per_epoch);
    steps_run(&trainer, 0, 3);
    long before = allocations;
    steps_run(&trainer, 3, 13);
    long after = allocations;
    trainer_close(&trainer);
    temporary_close();
    assert_int_equal(before > 0, COUNTS_ALLOCATIONS);
    assert_int_equal(after - before, 0);
}

TEST_MAIN_WORLD()
