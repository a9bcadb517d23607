// SPDX-License-Identifier: BSD-3-Clause
/* Time of a checkpoint of ViT-B/32 with AdamW's state (1.05 GB), compared with a plain parallel
 * write of the same size to the same folder, both synced to disk; and of reading it back, usually
 * from the page cache. Prints rows of the common CSV (README.md) with medians: mpirun -np 2
 * bench_checkpoint [FOLDER [REPETITIONS [SHARD]]]   (default: . 3 1) */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "commands/bench.h"
#include "model/model.h"
#include "options/options.h"

enum work { PLAIN, WRITE, WRITE_NODE0, READ, WORKS };
static const char *const work_name[WORKS] = {"plain write", "checkpoint", "checkpoint by one rank",
                                             "resume"};

enum { MOST_REPETITIONS = 99, PLAIN_BLOCK = 4 << 20 };

struct checkpoint_bench {
    struct bench_host host;
    int nodes;
    char *folder, *path, *plain_path;
    int repetitions;
    struct comm *world;
    struct mesh mesh;
    struct device *device;
    struct options options;
    struct model *model;
    struct flat_model flat;
    void *memory;
    int64_t bytes; /* size of the whole state */
    char *block;   /* data of the plain write */
    double seconds[WORKS][MOST_REPETITIONS];
};

/* Fill with random bytes: some disks compress or deduplicate. */
static void memory_fill(void *memory, size_t bytes, uint64_t seed)
{
    uint64_t word = seed * 0x9e3779b97f4a7c15u + 1, *to = memory;
    for (size_t n = 0; n < bytes / sizeof word; n++) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        to[n] = word;
    }
}

static void open_model(struct checkpoint_bench *bench, int shard)
{
    struct options *options = &bench->options;
    struct error error = {.kind = ERROR_NONE};
    struct arena arena;
    options_default(options);
    error_defer(options_set("model.name=vit_base_patch32_224", options, &error) &&
                options_set("model.classes=10", options, &error));
    bench->device = device_cpu.open(0, 1, &error);
    bench->model =
        bench->device == NULL ? NULL : model_open(options, bench->device, TYPE_FP32, &error);
    ENSURE(bench->model != NULL, "%s", error.text);
    options->mesh.strategy = STRATEGY_ZERO1;
    options->mesh.shard = shard;
    ENSURE(mesh_open(&bench->mesh, bench->world, &options->mesh, &error), "%s", error.text);
    flat_open(&bench->flat, bench->model->units, bench->model->unit_count, &bench->mesh,
              bench->device, device_cpu.stream_open(bench->device), TYPE_FP32, 2, false, true);
    arena_measure(&arena);
    flat_allocate(&bench->flat, &arena);
    size_t size = arena.peak;
    bench->memory = device_cpu.allocate(bench->device, size, &error);
    ENSURE(bench->memory != NULL, "%s", error.text);
    arena_begin(&arena, bench->memory, size);
    flat_allocate(&bench->flat, &arena);
    memory_fill(bench->memory, size, (uint64_t)bench->mesh.shard->rank);
    for (int u = 0; u < bench->flat.count; u++)
        bench->bytes += bench->flat.buffers[u].unit->count * 3 * (int64_t)sizeof(float);
}

static void close_model(struct checkpoint_bench *bench)
{
    struct stream *stream = bench->flat.stream;
    flat_close(&bench->flat);
    mesh_close(&bench->mesh);
    model_close(bench->model);
    device_cpu.stream_close(stream);
    device_cpu.release(bench->device, bench->memory);
    device_cpu.close(bench->device);
}

/* Every rank writes its part of one preallocated file, in blocks of the same size as in a
 * checkpoint, and syncs it. */
static void write_plain(const struct checkpoint_bench *bench)
{
    int64_t part = bench->bytes / bench->world->size, begin = part * bench->world->rank;
    if (bench->world->rank == 0) {
        int created = open(bench->plain_path, O_CREAT | O_TRUNC | O_WRONLY, 0666);
        ENSURE(created >= 0 && posix_fallocate(created, 0, bench->bytes) == 0 &&
                   close(created) == 0,
               "cannot create %s", bench->plain_path);
    }
    comm_barrier(bench->world);
    int file = open(bench->plain_path, O_WRONLY);
    ENSURE(file >= 0, "cannot open %s", bench->plain_path);
    for (int64_t done = 0; done < part;) {
        int64_t left = part - done;
        ssize_t wrote = pwrite(file, bench->block,
                               (size_t)(left < PLAIN_BLOCK ? left : PLAIN_BLOCK), begin + done);
        ENSURE(wrote > 0, "cannot write %s", bench->plain_path);
        done += wrote;
    }
    ENSURE(fsync(file) == 0 && close(file) == 0, "cannot sync %s", bench->plain_path);
}

static void do_work(struct checkpoint_bench *bench, enum work work)
{
    struct error error = {.kind = ERROR_NONE};
    struct training_state state = {.step = 1};
    struct checkpoint_target target = {
        .directory = bench->folder, .writers = work == WRITE_NODE0 ? WRITERS_NODE0 : WRITERS_ALL};
    if (work == PLAIN)
        write_plain(bench);
    else if (work == READ)
        error_defer(checkpoint_read(bench->path, &target, &bench->flat, &state, false, &error));
    else {
        const struct checkpoint_order order = {.options = &bench->options, .state = &state};
        struct checkpoint_writer *writer = checkpoint_writer_open(&target, &bench->flat, NULL);
        error_defer(checkpoint_writer_start(writer, &order, &error));
        checkpoint_writer_close(writer);
    }
    ENSURE(error.kind == ERROR_NONE, "%s", error.text);
    comm_barrier(bench->world);
}

/* Sync the deletion, so that the next measurement does not wait for it. Leave an empty folder. */
static void remove_files(const struct checkpoint_bench *bench)
{
    comm_barrier(bench->world);
    if (bench->world->rank == 0) {
        folder_remove(bench->folder);
        ENSURE(mkdir(bench->folder, 0777) == 0, "cannot create %s", bench->folder);
        sync();
    }
    comm_barrier(bench->world);
}

static void checkpoint_measure(struct checkpoint_bench *bench)
{
    static const enum work order[2][WORKS] = {{PLAIN, WRITE, READ, WRITE_NODE0},
                                              {WRITE, READ, PLAIN, WRITE_NODE0}};
    for (int r = 0; r < bench->repetitions; r++)
        for (int turn = 0; turn < WORKS; turn++) {
            enum work work = order[r % 2][turn];
            if (work != READ)
                remove_files(bench);
            double begin = clock_now();
            do_work(bench, work);
            bench->seconds[work][r] = clock_now() - begin;
        }
    remove_files(bench);
}

static void row_print(const struct checkpoint_bench *bench, const char *metric, double value,
                      const char *unit)
{
    const int shards = bench->mesh.shard->size, ranks = bench->world->size;
    bench_row_print(&bench->host, &(struct bench_row){.work = "checkpoint",
                                                      .model = "vit_base_patch32_224",
                                                      .strategy = shards > 1  ? "fsdp"
                                                                  : ranks > 1 ? "ddp"
                                                                              : "none",
                                                      .ranks = ranks,
                                                      .nodes = bench->nodes,
                                                      .metric = metric,
                                                      .value = value,
                                                      .unit = unit});
}

/* Compare measurements that follow each other: the speed of a shared disk varies. */
static void report_all(struct checkpoint_bench *bench)
{
    double ratio[MOST_REPETITIONS];
    bench_header_print();
    for (int r = 0; r < bench->repetitions; r++)
        ratio[r] = bench->seconds[PLAIN][r] / bench->seconds[WRITE][r];
    for (enum work work = 0; work < WORKS; work++)
        row_print(bench, work_name[work],
                  (double)bench->bytes / values_median(bench->seconds[work], bench->repetitions) /
                      1e6,
                  "MB/s");
    row_print(bench, "checkpoint over plain write", values_median(ratio, bench->repetitions), "x");
}

int main(int argc, char **argv)
{
    static struct checkpoint_bench bench;
    struct error error = {.kind = ERROR_NONE};
    if (!comm_world_open(&argc, &argv, &bench.world, &error)) {
        log_error(&error);
        return (int)error.kind;
    }
    int node;
    bench_host_read(&bench.host);
    bench.nodes = comm_node_count(bench.world, &node);
    bench.folder = allocate_text("%s/bench_checkpoint", argc > 1 ? argv[1] : ".");
    bench.repetitions = argc > 2 ? atoi(argv[2]) : 3;
    ENSURE(bench.repetitions > 0 && bench.repetitions <= MOST_REPETITIONS, "1 to %d repetitions",
           MOST_REPETITIONS);
    bench.path = allocate_text("%s/step-00000001.h5", bench.folder);
    bench.plain_path = allocate_text("%s/plain", bench.folder);
    bench.block = malloc(PLAIN_BLOCK);
    ENSURE(bench.block != NULL, "no memory");
    memory_fill(bench.block, PLAIN_BLOCK, 1000 + (uint64_t)bench.world->rank);
    open_model(&bench, argc > 3 ? atoi(argv[3]) : 1);
    checkpoint_measure(&bench);
    if (bench.world->rank == 0)
        report_all(&bench);
    close_model(&bench);
    if (bench.world->rank == 0)
        folder_remove(bench.folder);
    free(bench.plain_path);
    free(bench.path);
    free(bench.folder);
    free(bench.block);
    comm_world_close(bench.world);
    return 0;
}
