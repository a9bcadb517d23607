/* Operations of device.h as models queue them, at any size, on tensors that are there for nothing
 * else. */
#include "bench/bench_machine.h"

/* As in a block: the first product of an MLP goes through GELU, the second is added to what came
 * in. */
void trial_linear_forward(struct machine_bench *self, const int64_t *size)
{
    bool widens = size[2] == 4 * size[1], adds = size[1] == 4 * size[2] || size[1] == size[2];
    self->device->backend->linear_forward(self->stream, &(struct linear_forward){
                                                            .type = self->type,
                                                            .rows = size[0],
                                                            .in = size[1],
                                                            .out = size[2],
                                                            .rows_per_sample = 1,
                                                            .x = self->x,
                                                            .weight = self->weight,
                                                            .bias = self->gradient,
                                                            .residual = adds ? self->other : NULL,
                                                            .pre = widens ? self->pre : NULL,
                                                            .y = self->y,
                                                        });
}

void trial_linear_backward(struct machine_bench *self, const int64_t *size)
{
    self->device->backend->linear_backward(self->stream,
                                           &(struct linear_backward){
                                               .type = self->type,
                                               .rows = size[0],
                                               .in = size[1],
                                               .out = size[2],
                                               .rows_per_sample = 1,
                                               .x = self->x,
                                               .weight = self->weight,
                                               .dy = self->y,
                                               .pre = size[1] == 4 * size[2] ? self->pre : NULL,
                                               .dx = self->other,
                                               .dweight = self->gradient,
                                               .dbias = (float *)self->gradient + size[1] * size[2],
                                           });
}

enum { HEAD_DIM = 64 };

void trial_attention_forward(struct machine_bench *self, const int64_t *size)
{
    self->device->backend->attention_forward(self->stream,
                                             &(struct attention_forward){.type = self->type,
                                                                         .batch = size[0],
                                                                         .tokens = size[1],
                                                                         .queries = size[1],
                                                                         .heads = size[2],
                                                                         .head_dim = HEAD_DIM,
                                                                         .scale = 0.125f,
                                                                         .qkv = self->x,
                                                                         .out = self->y,
                                                                         .lse = self->gradient});
}

void trial_attention_backward(struct machine_bench *self, const int64_t *size)
{
    self->device->backend->attention_backward(self->stream,
                                              &(struct attention_backward){.type = self->type,
                                                                           .batch = size[0],
                                                                           .tokens = size[1],
                                                                           .queries = size[1],
                                                                           .heads = size[2],
                                                                           .head_dim = HEAD_DIM,
                                                                           .scale = 0.125f,
                                                                           .qkv = self->x,
                                                                           .out = self->y,
                                                                           .dout = self->other,
                                                                           .lse = self->gradient,
                                                                           .dqkv = self->pre});
}

static struct convolution_shape shape_of(const int64_t *size)
{
    return (struct convolution_shape){.batch = size[0],
                                      .height = size[1],
                                      .width = size[1],
                                      .in = size[2],
                                      .out = size[3],
                                      .kernel = size[4],
                                      .stride = size[5],
                                      .padding = size[4] / 2};
}

size_t trial_convolution_workspace(const struct machine_bench *self, enum data_type type,
                                   const int64_t *size)
{
    const struct convolution_shape shape = shape_of(size);
    return self->device->backend->convolution_workspace(self->device, type, &shape);
}

void trial_convolution_forward(struct machine_bench *self, const int64_t *size)
{
    self->device->backend->convolution_forward(
        self->stream, &(struct convolution_forward){.type = self->type,
                                                    .shape = shape_of(size),
                                                    .x = self->x,
                                                    .weight = self->weight,
                                                    .y = self->y,
                                                    .workspace = self->convolution});
}

/* What reads the images needs no gradient of them. */
void trial_convolution_backward(struct machine_bench *self, const int64_t *size)
{
    self->device->backend->convolution_backward(
        self->stream, &(struct convolution_backward){.type = self->type,
                                                     .shape = shape_of(size),
                                                     .x = self->x,
                                                     .weight = self->weight,
                                                     .dy = self->y,
                                                     .dx = size[2] > 4 ? self->other : NULL,
                                                     .dweight = self->gradient,
                                                     .workspace = self->convolution});
}

void trial_norm_forward(struct machine_bench *self, const int64_t *size)
{
    float *statistics = self->gradient;
    self->device->backend->norm_forward(self->stream,
                                        &(struct norm_forward){.type = self->type,
                                                               .rows = size[0],
                                                               .width = size[1],
                                                               .epsilon = 1e-6f,
                                                               .x = self->x,
                                                               .gamma = self->weight,
                                                               .beta = self->weight,
                                                               .y = self->y,
                                                               .mean = statistics,
                                                               .rstd = statistics + size[0]});
}

void trial_norm_backward(struct machine_bench *self, const int64_t *size)
{
    float *statistics = self->gradient;
    float *sums = statistics + 2 * size[0];
    self->device->backend->norm_backward(self->stream,
                                         &(struct norm_backward){.type = self->type,
                                                                 .rows = size[0],
                                                                 .width = size[1],
                                                                 .x = self->x,
                                                                 .gamma = self->weight,
                                                                 .dy = self->y,
                                                                 .mean = statistics,
                                                                 .rstd = statistics + size[0],
                                                                 .add = self->other,
                                                                 .dx = self->pre,
                                                                 .dgamma = sums,
                                                                 .dbeta = sums + size[1]});
}

void trial_dropout_apply(struct machine_bench *self, const int64_t *size)
{
    self->device->backend->dropout_apply(
        self->stream, &(struct dropout_apply){.type = self->type,
                                              .rows = size[0],
                                              .width = size[1],
                                              .rows_per_sample = 1,
                                              .x = self->x,
                                              .y = self->y,
                                              .dropout = {.rate = 0.1f, .params = self->place}});
}

void trial_batch_norm_sums(struct machine_bench *self, const int64_t *size)
{
    self->device->backend->batch_norm_sums(self->stream,
                                           &(struct batch_norm_sums){.type = self->type,
                                                                     .rows = size[0],
                                                                     .channels = size[1],
                                                                     .x = self->x,
                                                                     .sums = self->gradient});
}

/* Statistics lie behind the sums. */
static float *statistics_of(const struct machine_bench *self, const int64_t *size)
{
    return (float *)((double *)self->gradient + 2 * size[1] + 16);
}

void trial_batch_norm_forward(struct machine_bench *self, const int64_t *size)
{
    self->device->backend->batch_norm_forward(
        self->stream, &(struct batch_norm_forward){.type = self->type,
                                                   .rows = size[0],
                                                   .channels = size[1],
                                                   .epsilon = 1e-5f,
                                                   .x = self->x,
                                                   .gamma = self->weight,
                                                   .beta = self->weight,
                                                   .running_mean = self->weight,
                                                   .running_variance = self->weight,
                                                   .relu = true,
                                                   .y = self->y,
                                                   .statistics = statistics_of(self, size)});
}

void trial_batch_norm_backward_sums(struct machine_bench *self, const int64_t *size)
{
    self->device->backend->batch_norm_backward_sums(
        self->stream, &(struct batch_norm_backward_sums){.type = self->type,
                                                         .rows = size[0],
                                                         .channels = size[1],
                                                         .x = self->x,
                                                         .y = self->y,
                                                         .statistics = statistics_of(self, size),
                                                         .dy = self->other,
                                                         .sums = self->gradient});
}

void trial_batch_norm_backward(struct machine_bench *self, const int64_t *size)
{
    self->device->backend->batch_norm_backward(
        self->stream, &(struct batch_norm_backward){.type = self->type,
                                                    .rows = size[0],
                                                    .channels = size[1],
                                                    .x = self->x,
                                                    .dy = self->other,
                                                    .gamma = self->weight,
                                                    .statistics = statistics_of(self, size),
                                                    .dx = self->pre});
}

void trial_max_pool_forward(struct machine_bench *self, const int64_t *size)
{
    self->device->backend->max_pool_forward(self->stream,
                                            &(struct max_pool_forward){.type = self->type,
                                                                       .batch = size[0],
                                                                       .height = size[1],
                                                                       .width = size[1],
                                                                       .channels = size[2],
                                                                       .kernel = 3,
                                                                       .stride = 2,
                                                                       .padding = 1,
                                                                       .x = self->x,
                                                                       .y = self->y,
                                                                       .index = self->pre});
}

void trial_max_pool_backward(struct machine_bench *self, const int64_t *size)
{
    self->device->backend->max_pool_backward(self->stream,
                                             &(struct max_pool_backward){.type = self->type,
                                                                         .batch = size[0],
                                                                         .height = size[1],
                                                                         .width = size[1],
                                                                         .channels = size[2],
                                                                         .kernel = 3,
                                                                         .stride = 2,
                                                                         .padding = 1,
                                                                         .dy = self->y,
                                                                         .index = self->pre,
                                                                         .dx = self->other});
}

void trial_image_transform(struct machine_bench *self, const int64_t *size)
{
    static const float mean[] = {0.5f, 0.5f, 0.5f}, std[] = {0.5f, 0.5f, 0.5f};
    self->device->backend->image_transform(self->stream,
                                           &(struct image_transform){.type = self->type,
                                                                     .batch = size[0],
                                                                     .channels = 3,
                                                                     .source_height = size[1],
                                                                     .source_width = size[1],
                                                                     .height = size[1],
                                                                     .width = size[1],
                                                                     .source = self->x,
                                                                     .mean = mean,
                                                                     .std = std,
                                                                     .images = self->y});
}

void trial_copy(struct machine_bench *self, const int64_t *size)
{
    self->device->backend->copy(self->stream, self->y, self->x,
                                (size_t)(size[0] * size[1]) * type_size(self->type));
}

void trial_update(struct machine_bench *self, const int64_t *size)
{
    const struct update_segment all = {.end = size[0] * size[1], .rate_scale = 1};
    self->device->backend->update(self->stream, &(struct update){.rule = UPDATE_ADAMW,
                                                                 .count = size[0] * size[1],
                                                                 .weights = self->x,
                                                                 .gradient = self->gradient,
                                                                 .moment1 = self->y,
                                                                 .moment2 = self->other,
                                                                 .segments = &all,
                                                                 .segment_count = 1,
                                                                 .params = self->place,
                                                                 .beta2 = 0.999,
                                                                 .epsilon = 1e-8});
    self->device->backend->stream_synchronize(self->stream); /* it reads `all` */
}

void trial_sum_squares(struct machine_bench *self, const int64_t *size)
{
    self->device->backend->sum_squares(self->stream, self->x, size[0] * size[1], self->gradient);
}

void trial_add(struct machine_bench *self, const int64_t *size)
{
    self->device->backend->add(self->stream, self->y, self->x, size[0] * size[1]);
}

void trial_convert(struct machine_bench *self, const int64_t *size)
{
    self->device->backend->convert(self->stream, TYPE_BF16, self->y, TYPE_FP32, self->x,
                                   size[0] * size[1]);
}

void trial_zero(struct machine_bench *self, const int64_t *size)
{
    self->device->backend->zero(self->stream, self->pre, (size_t)(size[0] * size[1]) * 4);
}
