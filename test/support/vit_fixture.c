// SPDX-License-Identifier: BSD-3-Clause
/* Device memory is accessed only through the backend, so that the tests run on any device. */
#include "vit_fixture.h"

#include "base/random.h"
#include "device_test.h"
#include "model/model.h"
#include "options/options.h"
#include "train/optimizer.h"

static int64_t grain; /* samples; 0: without grains */

void vit_fixture_set_grain(int64_t samples)
{
    grain = samples;
}

static void *device_memory(struct device *device, size_t bytes)
{
    void *memory = device->backend->allocate(device, bytes > 0 ? bytes : 1, &error);
    ENSURE(memory != NULL, "%s", error.text);
    return memory;
}

/* Copy between the host and the device, and wait. */
static void copy_now(const struct vit_fixture *fixture, void *to, const void *from, size_t bytes)
{
    fixture->device->backend->copy(fixture->stream, to, from, bytes);
    fixture->device->backend->stream_synchronize(fixture->stream);
}

static int64_t model_pixels(const struct model *model)
{
    return model->channels * model->image.height * model->image.width;
}

/* Called twice: to measure and to allocate. */
static void lay_out(struct vit_fixture *fixture)
{
    struct model *model = fixture->model;
    struct arena *arena = &fixture->arena;
    size_t size = type_size(model->compute);
    int64_t pixels = model_pixels(model);
    flat_allocate(&fixture->flat, arena);
    fixture->staging_count = fixture->batch * (pixels + model_output_count(model));
    for (int u = 0; u < model->unit_count; u++)
        if (fixture->staging_count < model->units[u].count)
            fixture->staging_count = model->units[u].count;
    fixture->staging = arena_take(arena, MEMORY_BUFFERS, (size_t)fixture->staging_count * 4);
    fixture->images = arena_take(arena, MEMORY_BUFFERS, (size_t)(fixture->batch * pixels) * size);
    fixture->logits = arena_take(arena, MEMORY_BUFFERS,
                                 (size_t)(fixture->batch * model_output_count(model)) * size);
    fixture->labels = arena_take(arena, MEMORY_BUFFERS, (size_t)fixture->batch * sizeof(int32_t));
    fixture->sums = arena_take(arena, MEMORY_BUFFERS, sizeof *fixture->sums);
    fixture->place = arena_take(arena, MEMORY_BUFFERS, sizeof *fixture->place);
    if (fixture->grains != NULL)
        grains_allocate(fixture->grains, arena, fixture->batch, fixture->batch,
                        fixture->staging_count, 64); /* most channels of a batch norm */
    fixture->activations_mark = arena_mark(arena);
    vit_fixture_set_training(fixture, false);
    vit_fixture_set_training(fixture, true);
}

void vit_fixture_set_training(struct vit_fixture *fixture, bool training)
{
    fixture->training = training;
    arena_rewind(&fixture->arena, fixture->activations_mark);
    fixture->model->type->activations(fixture->model, &fixture->arena, fixture->batch, training);
}

/* Open the device, a stream, and a mesh of the world or, if it is NULL, of this rank. */
static void open_device(struct vit_fixture *fixture, struct comm *world, int64_t batch,
                        const char *words)
{
    *fixture =
        (struct vit_fixture){.batch = batch, .training = true, .borrows_world = world != NULL};
    settings_set(&fixture->options, words);
    fixture->running_weight = flat_running_weight(1, 1, 0);
    const struct device_backend *backend = device_test_backend(&error);
    fixture->device = backend != NULL ? backend->open(0, 0, &error) : NULL;
    ENSURE(fixture->device != NULL, "%s", error.text);
    fixture->grains = grain > 0 ? grains_open(fixture->device, grain) : NULL;
    device_test_print(fixture->device);
    fixture->stream = backend->stream_open(fixture->device);
    fixture->ready = backend->event_open(fixture->device);
    fixture->world = world != NULL ? world : comm_fake_open(0, 1);
    ENSURE(mesh_open(&fixture->mesh, fixture->world, &fixture->options.mesh, &error) &&
               (world == NULL || mesh_use_device(&fixture->mesh, fixture->device, &error)),
           "%s", error.text);
}

static void set_random_batch(struct vit_fixture *fixture)
{
    const struct model *model = fixture->model;
    const int64_t batch = fixture->batch;
    const int64_t count = batch * model_pixels(model);
    OWNED float *images = allocate((size_t)count, sizeof *images);
    OWNED int32_t *labels = allocate((size_t)batch, sizeof *labels);
    for (int64_t i = 0; i < count; i++) {
        const struct random_block block =
            random_block_at(3, RANDOM_SYNTHETIC, 0, 0, 0, (uint32_t)i);
        images[i] = 2 * random_uniform(block.word[0]) - 1;
    }
    for (int64_t i = 0; i < batch; i++)
        labels[i] = (int32_t)(i * 7 % model->classes);
    vit_fixture_set_batch(fixture, images, labels);
}

/* Open everything else for this model; NULL: the model could not be opened. */
static void open_model(struct vit_fixture *fixture, struct model *model)
{
    const struct device_backend *backend = fixture->device->backend;
    fixture->model = model;
    ENSURE(model != NULL && model_apply_options(model, &fixture->options, &error), "%s",
           error.text);
    flat_open(&fixture->flat, model->units, model->unit_count, &fixture->mesh, fixture->device,
              fixture->stream, model->compute, optimizer_moments(&fixture->options),
              fixture->options.optim.ema > 0, true);
    if (fixture->mesh.one_node && backend->comm_open == NULL)
        flat_use_shared_memory(&fixture->flat);
    arena_measure(&fixture->arena);
    lay_out(fixture);
    ENSURE(flat_share(&fixture->flat, &error), "%s", error.text);
    size_t bytes = fixture->arena.peak;
    fixture->memory = device_memory(fixture->device, bytes);
    arena_begin(&fixture->arena, fixture->memory, bytes);
    lay_out(fixture);
    mesh_use_memory(&fixture->mesh, fixture->memory, bytes);
    size_t workspace = backend->workspace_bytes(fixture->device);
    fixture->workspace = device_memory(fixture->device, workspace);
    backend->workspace_set(fixture->device, fixture->workspace, workspace);
    flat_set_segments(&fixture->flat, fixture->options.optim.weight_decay,
                      fixture->options.train.accumulate);
    flat_initialize(&fixture->flat, 1);
    flat_refresh(&fixture->flat);
    set_random_batch(fixture);
}

void vit_fixture_open(struct vit_fixture *fixture, const struct vit_shape *shape,
                      enum data_type compute, int64_t batch, const char *words)
{
    open_device(fixture, NULL, batch, words);
    open_model(fixture, vit_open(shape, fixture->device, compute, &error));
}

void vit_fixture_open_convnet(struct vit_fixture *fixture, struct comm *world,
                              const struct convnet_shape *shape, enum data_type compute,
                              int64_t batch, const char *words)
{
    open_device(fixture, world, batch, words);
    open_model(fixture, convnet_open("convnet", shape, fixture->device, compute, &error));
}

void vit_fixture_close(struct vit_fixture *fixture)
{
    grains_close(fixture->grains);
    const struct device_backend *backend = fixture->device->backend;
    flat_close(&fixture->flat);
    model_close(fixture->model);
    mesh_close(&fixture->mesh);
    if (!fixture->borrows_world)
        fixture->world->backend->close(fixture->world);
    backend->release(fixture->device, fixture->memory);
    backend->release(fixture->device, fixture->workspace);
    backend->event_close(fixture->ready);
    backend->stream_close(fixture->stream);
    backend->close(fixture->device);
}

struct vit_shape vit_fixture_shape_of(enum vit_fixture_kind kind, int64_t depth)
{
    const bool reference = kind == SHAPE_REFERENCE;
    struct vit_shape shape = {.image = 12,
                              .channels = 3,
                              .patch = 4,
                              .dim = 24,
                              .depth = depth,
                              .heads = 3,
                              .hidden = 40,
                              .classes = 6,
                              .dropout = 0.2,
                              .drop_path = 0.3,
                              .qkv_bias = !reference,
                              .qk_norm = kind == SHAPE_WIDE,
                              .class_token = kind != SHAPE_MEAN && kind != SHAPE_MAP,
                              .pool_mean = kind == SHAPE_MEAN,
                              .pool_map = kind == SHAPE_MAP,
                              .dense = kind == SHAPE_DENSE,
                              .swiglu = kind == SHAPE_SWIGLU,
                              .initial_zero = reference,
                              .drop_elements = reference,
                              .embed_norm = reference,
                              .norm_epsilon = 1e-6f};
    const bool rotary = kind == SHAPE_ROTARY || kind == SHAPE_WIDE;
    if (kind == SHAPE_PARTS || kind == SHAPE_DENSE || rotary) {
        shape.registers = 2;
        shape.position = rotary ? POSITION_ROTARY : POSITION_PATCHES;
        shape.layer_scale = 0.5;
        shape.gelu_tanh = true;
    }
    if (kind == SHAPE_DENSE || kind == SHAPE_WIDE)
        shape.image_width = 2 * shape.image;
    return shape;
}

struct convnet_shape vit_fixture_small_convnet(const char *name)
{
    struct convnet_shape shape = *(const struct convnet_shape *)registry_find(name)->shape;
    shape.image = 18;
    shape.classes = 5;
    shape.width = 8;
    memcpy(shape.blocks, (const int[]){0, 1, 0, 0}, sizeof shape.blocks);
    return shape;
}

struct vit_shape vit_fixture_shape(const struct vector_file *file)
{
    long long size[8];
    int on[4];
    int sizes =
        sscanf(vector_file_text(file, "shape"), "%lld %lld %lld %lld %lld %lld %lld %lld", &size[0],
               &size[1], &size[2], &size[3], &size[4], &size[5], &size[6], &size[7]);
    int switches =
        sscanf(vector_file_text(file, "switches"), "%d %d %d %d", &on[0], &on[1], &on[2], &on[3]);
    const char *parts = vector_file_text(file, "parts"); /* not in older files */
    long long registers = 0;
    int position = POSITION_LEARNED, norm_first = 0, gelu_tanh = 0, pool_map = 0, swiglu = 0;
    int qk_norm = 0, image_width = 0, dense = 0;
    double layer_scale = 0;
    ENSURE(sizes == 8 && switches == 4 &&
               (parts == NULL || sscanf(parts, "%lld %d %d %d %lf %d %d %d %d %d", &registers,
                                        &position, &norm_first, &gelu_tanh, &layer_scale, &pool_map,
                                        &swiglu, &qk_norm, &image_width, &dense) >= 5),
           "a vector file without shape");
    return (struct vit_shape){.image = size[0],
                              .image_width = image_width,
                              .channels = size[1],
                              .patch = size[2],
                              .dim = size[3],
                              .depth = size[4],
                              .heads = size[5],
                              .hidden = size[6],
                              .classes = size[7],
                              .qkv_bias = on[0],
                              .qk_norm = qk_norm,
                              .class_token = on[1],
                              .embed_norm = on[2],
                              .pool_mean = on[3],
                              .pool_map = pool_map,
                              .dense = dense,
                              .registers = registers,
                              .position = (enum position_choice)position,
                              .norm_first = norm_first,
                              .layer_scale = layer_scale,
                              .gelu_tanh = gelu_tanh,
                              .swiglu = swiglu,
                              .norm_epsilon = strtof(vector_file_text(file, "norm_epsilon"), NULL)};
}

struct convnet_shape vit_fixture_convnet_shape(const struct vector_file *file)
{
    const char *table = vector_file_text(file, "convnet");
    long long number[5] = {0};
    struct convnet_shape shape = {.bottleneck = strcmp(table, "bottleneck") == 0};
    int numbers = sscanf(vector_file_text(file, "numbers"), "%lld %lld %lld %lld %lld", &number[0],
                         &number[1], &number[2], &number[3], &number[4]);
    int blocks = sscanf(vector_file_text(file, "blocks"), "%d %d %d %d", &shape.blocks[0],
                        &shape.blocks[1], &shape.blocks[2], &shape.blocks[3]);
    ENSURE(numbers >= 4 && blocks == 4, "a vector file without shape");
    shape.image = number[0];
    shape.channels = number[1];
    shape.classes = number[2];
    shape.width = number[3];
    shape.dense = number[4] != 0;
    const struct model_entry *entry = registry_find(table);
    if (entry == NULL) /* "basic" or "bottleneck" */
        entry = registry_find("resnet18");
    shape.describe = ((const struct convnet_shape *)entry->shape)->describe;
    return shape;
}

float *vit_fixture_gradients(struct vit_fixture *fixture, int64_t *count)
{
    const struct model *model = fixture->model;
    float *all = NULL;
    *count = 0;
    for (int u = 0; u < model->unit_count; u++)
        for (int t = 0; t < model->units[u].tensor_count; t++) {
            const int64_t elements = model->units[u].tensors[t].count;
            OWNED float *gradient = vit_fixture_gradient(fixture, u, t);
            all = allocate_resized(all, (size_t)(*count + elements) * sizeof *all);
            memcpy(all + *count, gradient, (size_t)elements * sizeof *all);
            *count += elements;
        }
    return all;
}

void vit_fixture_set_weight(struct vit_fixture *fixture, int unit, int tensor, const float *values)
{
    const struct unit_tensor *described = &fixture->model->units[unit].tensors[tensor];
    const struct flat_buffer *buffer = &fixture->flat.buffers[unit];
    size_t bytes = (size_t)described->count * sizeof *values;
    fixture->device->backend->copy(fixture->stream, buffer->master + described->offset, values,
                                   bytes);
    if (buffer->average != NULL)
        fixture->device->backend->copy(fixture->stream, buffer->average + described->offset, values,
                                       bytes);
    flat_refresh(&fixture->flat);
}

void vit_fixture_load(struct vit_fixture *fixture, const struct vector_file *file,
                      const char *prefix)
{
    for (int u = 0; u < fixture->model->unit_count; u++)
        for (int t = 0; t < fixture->model->units[u].tensor_count; t++) {
            const struct unit_tensor *tensor = &fixture->model->units[u].tensors[t];
            char name[TENSOR_NAME + 64];
            int64_t count;
            snprintf(name, sizeof name, "%s/%s", prefix, tensor->name);
            const float *values = vector_file_floats(file, name, &count);
            ENSURE(count == tensor->count, "%s has %lld elements, not %lld", name,
                   (long long)tensor->count, (long long)count);
            vit_fixture_set_weight(fixture, u, t, values);
        }
}

void vit_fixture_set_batch(struct vit_fixture *fixture, const float *images, const int32_t *labels)
{
    const struct device_backend *backend = fixture->device->backend;
    const struct model *model = fixture->model;
    int64_t count = fixture->batch * model_pixels(model);
    backend->copy(fixture->stream, fixture->staging, images, (size_t)count * sizeof *images);
    backend->convert(fixture->stream, model->compute, fixture->images, TYPE_FP32, fixture->staging,
                     count);
    copy_now(fixture, fixture->labels, labels, (size_t)fixture->batch * sizeof *labels);
}

void vit_fixture_set_place(struct vit_fixture *fixture, const struct step_params *place)
{
    copy_now(fixture, fixture->place, place, sizeof *place);
}

static struct model_pass pass_over(struct vit_fixture *fixture, int64_t first, int64_t count)
{
    const struct model *model = fixture->model;
    int64_t pixels = model_pixels(model);
    size_t size = type_size(model->compute);
    vit_fixture_set_place(
        fixture, &(struct step_params){.step = fixture->step, .position = (uint32_t)first});
    return (struct model_pass){.stream = fixture->stream,
                               .flat = &fixture->flat,
                               .grains = fixture->grains,
                               .batch = count,
                               .training = fixture->training,
                               .running_weight = fixture->running_weight,
                               .seed = 7,
                               .params = fixture->place,
                               .images = (char *)fixture->images + (size_t)(first * pixels) * size,
                               .logits = fixture->logits};
}

static void run_backward(struct vit_fixture *fixture, const struct model_pass *pass)
{
    static const int only_slot = 0;
    struct model *model = fixture->model;
    for (int u = model->unit_count - 1; u >= model->first_trainable; u--) {
        flat_gradient_open(&fixture->flat, u, pass->batch > 0);
        if (fixture->grains != NULL)
            grains_unit(fixture->grains, 0, &only_slot);
        model->type->backward(model, pass, u);
        flat_release(&fixture->flat, u);
        flat_gradient_close(&fixture->flat, u, true);
    }
    flat_reduce_wait(&fixture->flat);
}

void vit_fixture_run(struct vit_fixture *fixture, int64_t first, int64_t count, double smoothing,
                     bool backward)
{
    struct model *model = fixture->model;
    struct model_pass pass = pass_over(fixture, first, count);
    if (fixture->grains != NULL)
        grains_begin(fixture->grains, first, count, fixture->batch);
    for (int u = 0; u < model->unit_count; u++) {
        flat_gather_start(&fixture->flat, u);
        flat_gather_wait(&fixture->flat, u);
        model->type->forward(model, &pass, u);
    }
    if (fixture->targets != NULL)
        DEVICE_RUN(fixture, target_loss, .type = model->compute, .kind = TARGET_SQUARED,
                   .batch = count, .outputs = model->classes, .height = model->output.height,
                   .width = model->output.width, .scale = 1.0f / (float)fixture->batch,
                   .predictions = fixture->logits,
                   .targets = fixture->targets + first * model_output_count(model),
                   .dpredictions = backward ? fixture->logits : NULL, .sums = fixture->sums);
    else
        DEVICE_RUN(fixture, cross_entropy, .type = model->compute, .batch = count,
                   .classes = model_output_count(model), .smoothing = (float)smoothing,
                   .scale = 1.0f / (float)fixture->batch, .logits = fixture->logits,
                   .labels = fixture->labels + first, .dlogits = backward ? fixture->logits : NULL,
                   .sums = fixture->sums);
    if (backward)
        run_backward(fixture, &pass);
    if (fixture->grains != NULL)
        grains_end(fixture->grains);
}

void vit_fixture_zero(struct vit_fixture *fixture)
{
    flat_begin_gradients(&fixture->flat);
    fixture->device->backend->zero(fixture->stream, fixture->sums, sizeof *fixture->sums);
}

double vit_fixture_norm(struct vit_fixture *fixture)
{
    double norm_squared;
    copy_now(fixture, &norm_squared, fixture->flat.norm_squared, sizeof norm_squared);
    return norm_squared;
}

void vit_fixture_poison(struct vit_fixture *fixture)
{
    for (int u = 0; u < fixture->flat.count; u++) {
        const struct flat_buffer *buffer = &fixture->flat.buffers[u];
        OWNED float *nans = allocate((size_t)buffer->padded, sizeof *nans);
        for (int64_t i = 0; i < buffer->padded; i++)
            nans[i] = NAN;
        copy_now(fixture, buffer->whole_gradient, nans, (size_t)buffer->padded * sizeof *nans);
    }
}

double vit_fixture_loss(struct vit_fixture *fixture)
{
    struct loss_sums sums;
    copy_now(fixture, &sums, fixture->sums, sizeof sums);
    return sums.loss;
}

void vit_fixture_train(struct vit_fixture *fixture, double smoothing)
{
    vit_fixture_zero(fixture);
    vit_fixture_run(fixture, 0, fixture->batch, smoothing, true);
    flat_norm(&fixture->flat);
}

static float *host_copy(struct vit_fixture *fixture, const float *values, int64_t count)
{
    float *copy = allocate((size_t)count, sizeof *copy);
    copy_now(fixture, copy, values, (size_t)count * sizeof *copy);
    return copy;
}

float *vit_fixture_logits(struct vit_fixture *fixture, int64_t count)
{
    int64_t elements = count * model_output_count(fixture->model);
    fixture->device->backend->convert(fixture->stream, TYPE_FP32, fixture->staging,
                                      fixture->model->compute, fixture->logits, elements);
    return host_copy(fixture, fixture->staging, elements);
}

static float *host_tensor(struct vit_fixture *fixture, int unit, int tensor, const float *buffer)
{
    const struct unit_tensor *described = &fixture->model->units[unit].tensors[tensor];
    return host_copy(fixture, buffer + described->offset, described->count);
}

float *vit_fixture_gradient(struct vit_fixture *fixture, int unit, int tensor)
{
    return host_tensor(fixture, unit, tensor, fixture->flat.buffers[unit].gradient);
}

float *vit_fixture_weight(struct vit_fixture *fixture, int unit, int tensor)
{
    return host_tensor(fixture, unit, tensor, fixture->flat.buffers[unit].master);
}

float *vit_fixture_average(struct vit_fixture *fixture, int unit, int tensor)
{
    return host_tensor(fixture, unit, tensor, fixture->flat.buffers[unit].average);
}
