// SPDX-License-Identifier: BSD-3-Clause
/* Values are a hash of their position. */
#include "model_fixture.h"

#include <sys/stat.h>

#include "base/file.h"

char folder[64];

/* ---- the model ---- */

static void add_tensor(struct fixture *fixture, int u, const char *name, int dimensions,
                       const int64_t *shape)
{
    struct unit *unit = &fixture->units[u];
    struct unit_tensor *tensor = &fixture->tensors[u][unit->tensor_count++];
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    tensor->dimensions = dimensions;
    tensor->count = 1;
    for (int d = 0; d < dimensions; d++) {
        tensor->shape[d] = shape[d];
        tensor->count *= shape[d];
    }
    tensor->offset = (unit->count + 15) / 16 * 16;
    tensor->trainable = true;
    tensor->rate_scale = 1;
    unit->count = tensor->offset + tensor->count;
}

static void make_units(struct fixture *fixture, const struct fixture_shape *shape)
{
    static const char *const names[FIXTURE_UNITS] = {"stem", "blocks.0", "head"};
    int64_t width = shape->width > 0 ? shape->width : 24;
    int64_t side = shape->side > 0 ? shape->side : 4;
    int64_t classes = shape->classes > 0 ? shape->classes : 10;
    int64_t hidden = shape->hidden > 0 ? shape->hidden : 1003;
    int64_t columns = shape->columns > 0 ? shape->columns : side;
    int64_t tokens = side * columns + (shape->no_class_token ? 0 : 1);
    for (int u = 0; u < FIXTURE_UNITS; u++) {
        snprintf(fixture->units[u].name, TENSOR_NAME, "%s", names[u]);
        fixture->units[u].tensors = fixture->tensors[u];
    }
    if (!shape->no_class_token)
        add_tensor(fixture, 0, "cls_token", 3, (int64_t[]){1, 1, width});
    add_tensor(fixture, 0, "pos_embed", 3, (int64_t[]){1, tokens, width});
    struct unit_tensor *position = &fixture->tensors[0][fixture->units[0].tensor_count - 1];
    position->grid[0] = side;
    position->grid[1] = columns;
    add_tensor(fixture, 0, "patch_embed.proj.weight", 4, (int64_t[]){width, 3, 2, 2});
    add_tensor(fixture, 0, "patch_embed.proj.bias", 1, &width);
    add_tensor(fixture, 1, "blocks.0.mlp.fc1.weight", 2, (int64_t[]){hidden, width});
    add_tensor(fixture, 1, "blocks.0.mlp.fc1.bias", 1, &hidden);
    add_tensor(fixture, 2, "norm.weight", 1, &width);
    add_tensor(fixture, 2, "head.weight", 2, (int64_t[]){classes, width});
    add_tensor(fixture, 2, "head.bias", 1, &classes);
    fixture->tensors[2][0].kind = TENSOR_STATE;
}

void fixture_open_on(struct fixture *fixture, struct comm *comm, int shard,
                     const struct fixture_shape *shape, int moments, bool averaged)
{
    *fixture = (struct fixture){.world = comm, .device = device_cpu.open(0, 1, &error)};
    ENSURE(fixture->device != NULL, "%s", error.text);
    options_default(&fixture->options);
    snprintf(fixture->options.model.name, sizeof fixture->options.model.name, "fake");
    fixture->options.checkpoint.keep = 0;
    fixture->stream = device_cpu.stream_open(fixture->device);
    make_units(fixture, shape);
    fixture->options.mesh.strategy = STRATEGY_ZERO1;
    fixture->options.mesh.shard = shard;
    ENSURE(mesh_open(&fixture->mesh, comm, &fixture->options.mesh, &error), "%s", error.text);
    flat_open(&fixture->flat, fixture->units, FIXTURE_UNITS, &fixture->mesh, fixture->device,
              fixture->stream, TYPE_FP32, moments, averaged, true);
    arena_measure(&fixture->arena);
    flat_allocate(&fixture->flat, &fixture->arena);
    size_t size = fixture->arena.peak;
    void *memory = aligned_alloc(ARENA_ALIGNMENT, size);
    ENSURE_MEMORY(memory != NULL, "no memory for a test");
    memset(memory, 0, size);
    arena_begin(&fixture->arena, memory, size);
    flat_allocate(&fixture->flat, &fixture->arena);
}

void fixture_open(struct fixture *fixture, int shard, const struct fixture_shape *shape,
                  int moments, bool averaged)
{
    fixture_open_on(fixture, world, shard, shape, moments, averaged);
}

void fixture_close(struct fixture *fixture)
{
    flat_close(&fixture->flat);
    mesh_close(&fixture->mesh);
    free(fixture->arena.base);
    device_cpu.stream_close(fixture->stream);
    device_cpu.close(fixture->device);
}

static bool in_tensor(const struct unit *unit, int64_t place)
{
    for (int t = 0; t < unit->tensor_count; t++)
        if (place >= unit->tensors[t].offset &&
            place < unit->tensors[t].offset + unit->tensors[t].count)
            return true;
    return false;
}

/* Finite values of all magnitudes and signs. */
static float value_at(uint32_t salt, int u, enum flat_vector kind, int64_t place)
{
    uint64_t hash = salt * 0x9e3779b97f4a7c15u + (uint64_t)place * 31 + (uint64_t)u * 1000003 +
                    (uint64_t)kind * 7919;
    hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ hash >> 27) * 0x94d049bb133111ebu;
    uint32_t bits = (uint32_t)(hash >> 32) & 0xbfffffffu;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float expected(const struct fixture *fixture, uint32_t salt, int u, enum flat_vector kind,
                      int64_t place)
{
    return in_tensor(&fixture->units[u], place) ? value_at(salt, u, kind, place) : 0;
}

void fixture_fill(struct fixture *fixture, uint32_t salt)
{
    for (int u = 0; u < FIXTURE_UNITS; u++) {
        const struct flat_buffer *buffer = &fixture->flat.buffers[u];
        for (enum flat_vector kind = 0; kind < FLAT_VECTORS; kind++) {
            float *memory = flat_vector_memory(buffer, kind);
            for (int64_t i = 0; memory != NULL && i < buffer->shard_count; i++)
                memory[i] = expected(fixture, salt, u, kind, buffer->shard_begin + i);
        }
    }
}

int64_t fixture_wrong(const struct fixture *fixture, uint32_t salt, enum flat_vector kind,
                      enum flat_vector as)
{
    int64_t wrong = 0;
    for (int u = 0; u < FIXTURE_UNITS; u++) {
        const struct flat_buffer *buffer = &fixture->flat.buffers[u];
        const float *memory = flat_vector_memory(buffer, kind);
        for (int64_t i = 0; i < buffer->shard_count; i++) {
            float value = expected(fixture, salt, u, as, buffer->shard_begin + i);
            wrong += memcmp(&value, &memory[i], sizeof value) != 0;
        }
    }
    return wrong;
}

int64_t fixture_all_wrong(const struct fixture *fixture, uint32_t salt)
{
    int64_t wrong = 0;
    for (enum flat_vector kind = 0; kind < FLAT_VECTORS; kind++)
        if (flat_vector_memory(&fixture->flat.buffers[0], kind) != NULL)
            wrong += fixture_wrong(fixture, salt, kind, kind);
    return wrong;
}

float *fixture_tensor(const struct fixture *fixture, const char *name,
                      const struct unit_tensor **tensor)
{
    for (int u = 0; u < FIXTURE_UNITS; u++)
        for (int t = 0; t < fixture->units[u].tensor_count; t++)
            if (strcmp(fixture->tensors[u][t].name, name) == 0) {
                if (tensor != NULL)
                    *tensor = &fixture->tensors[u][t];
                return fixture->flat.buffers[u].master + fixture->tensors[u][t].offset;
            }
    error_abort(__FILE__, __LINE__, "no tensor %s", name);
}

/* ---- folders ---- */

void fixture_directory(char *path, size_t size)
{
    memset(path, 0, size);
    if (world->rank == 0) {
        snprintf(path, size, "files.XXXXXX");
        ENSURE(mkdtemp(path) != NULL, "cannot make a folder for a test");
        chmod(path, 0777);
    }
    comm_broadcast(world, path, (int64_t)size, COMM_BYTE, 0);
}

void fixture_remove(const char *path)
{
    comm_barrier(world);
    if (world->rank == 0)
        folder_remove(path);
    comm_barrier(world);
}

const char *folder_path(const char *name)
{
    static char path[2][256];
    static int turn;
    turn = 1 - turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

const char *folder_step(int64_t step)
{
    char name[CHECKPOINT_NAME];
    checkpoint_name(name, step);
    return folder_path(name);
}

bool folder_has(const char *name)
{
    struct stat file;
    comm_barrier(world);
    bool there = lstat(folder_path(name), &file) == 0;
    comm_broadcast(world, &there, sizeof there, COMM_BYTE, 0);
    return there;
}

void folder_write(const char *name, const void *content, size_t bytes)
{
    comm_barrier(world);
    if (world->rank == 0) {
        FILE *file = fopen(folder_path(name), "wb");
        ENSURE(file != NULL && fwrite(content, 1, bytes, file) == bytes && fclose(file) == 0,
               "cannot write %s", name);
    }
    comm_barrier(world);
}

bool fixture_checkpoint(const struct fixture *fixture, const struct checkpoint_target *target,
                        const struct checkpoint_order *order, struct error *failure)
{
    struct checkpoint_writer *writer = checkpoint_writer_open(target, &fixture->flat, NULL);
    const bool good = checkpoint_writer_start(writer, order, failure);
    checkpoint_writer_close(writer);
    return good;
}

bool fixture_write(struct fixture *fixture, enum writers_choice writers, int64_t step,
                   struct error *failure)
{
    const struct checkpoint_target target = {.directory = folder, .writers = writers};
    const struct training_state state = {.step = step};
    const struct checkpoint_order order = {
        .options = &fixture->options, .state = &state, .metadata = "{\"program\":\"here\"}"};
    fixture_fill(fixture, (uint32_t)step);
    return fixture_checkpoint(fixture, &target, &order, failure);
}

void fixture_assert_read(struct fixture *fixture, const char *path, bool weights_only, int64_t step)
{
    const struct checkpoint_target target = {.writers = WRITERS_ALL};
    struct training_state state = {.step = -1};
    fixture_fill(fixture, (uint32_t)step + 1);
    assert_ok(checkpoint_read(path, &target, &fixture->flat, &state, weights_only, &error), &error);
    assert_int_equal(state.step, step);
    assert_int_equal(fixture_all_wrong(fixture, (uint32_t)step), 0);
}

void fixture_folder_make(void)
{
    fixture_directory(folder, sizeof folder);
}

void fixture_folder_remove(void)
{
    fixture_remove(folder);
}

int64_t fixture_total(int64_t count)
{
    comm_all_reduce(world, &count, 1, COMM_INT64, COMM_SUM);
    return count;
}
