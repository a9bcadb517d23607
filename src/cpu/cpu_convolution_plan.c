// SPDX-License-Identifier: BSD-3-Clause
/* Convolutions by oneDNN 2.6 and 3.x. A plan holds the primitives (the convolution, the reorder of
 * its weight) and the memory objects of their operands, so that a run creates nothing. */
#include "cpu/cpu_convolution_plan.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "cpu/cpu_onednn.h"

/* weight: in oneDNN's layout; plain: in PyTorch's layout. */
enum operand {
    OPERAND_IMAGE,
    OPERAND_WEIGHT,
    OPERAND_BIAS,
    OPERAND_RESULT,
    OPERAND_SCRATCH,
    OPERAND_PLAIN,
    OPERAND_REORDER_SCRATCH,
    OPERANDS
};
enum { CONVOLVED_OPERANDS = OPERAND_PLAIN }; /* operands of the convolution itself */

static const int operand_name[3][CONVOLVED_OPERANDS] = {
    [CONVOLUTION_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST,
                             DNNL_ARG_SCRATCHPAD},
    [CONVOLUTION_INPUT] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DIFF_DST,
                           DNNL_ARG_SCRATCHPAD},
    [CONVOLUTION_WEIGHT] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DIFF_DST,
                            DNNL_ARG_SCRATCHPAD}};

struct convolution_plan {
    struct convolution convolution;
    struct convolution_plan *next;
    const struct onednn *onednn;
    dnnl_primitive_t primitive, reorder;
    dnnl_memory_t memory[OPERANDS];
    size_t bytes[OPERANDS]; /* in the workspace */
};

void convolution_plans_close(struct convolution_plan *plans)
{
    while (plans != NULL) {
        struct convolution_plan *plan = plans;
        plans = plan->next;
        for (int operand = 0; operand < OPERANDS; operand++)
            if (plan->memory[operand] != NULL)
                dnnl_memory_destroy(plan->memory[operand]);
        dnnl_primitive_destroy(plan->primitive);
        dnnl_primitive_destroy(plan->reorder);
        free(plan);
    }
}

/* Memory descriptions of image, weight (any layout), bias and result. */
struct described {
    dnnl_memory_desc_t image, weight, bias, result;
    dnnl_dims_t strides, dilations, padding;
};

#if DNNL_VERSION_MAJOR >= 3

/* Gradients need the description of the forward pass as a hint. */
static dnnl_status_t describe_pass(dnnl_primitive_desc_t *result, dnnl_engine_t engine,
                                   const struct described *it,
                                   const struct convolution *convolution,
                                   dnnl_primitive_desc_t forward, dnnl_primitive_attr_t attributes)
{
    if (convolution->pass == CONVOLUTION_FORWARD)
        return dnnl_convolution_forward_primitive_desc_create(
            result, engine, dnnl_forward_training, dnnl_convolution_direct, it->image, it->weight,
            convolution->bias ? it->bias : NULL, it->result, it->strides, it->dilations,
            it->padding, it->padding, attributes);
    if (convolution->pass == CONVOLUTION_INPUT)
        return dnnl_convolution_backward_data_primitive_desc_create(
            result, engine, dnnl_convolution_direct, it->image, it->weight, it->result, it->strides,
            it->dilations, it->padding, it->padding, forward, attributes);
    return dnnl_convolution_backward_weights_primitive_desc_create(
        result, engine, dnnl_convolution_direct, it->image, it->weight, NULL, it->result,
        it->strides, it->dilations, it->padding, it->padding, forward, attributes);
}

#else

static dnnl_status_t describe_pass(dnnl_primitive_desc_t *result, dnnl_engine_t engine,
                                   const struct described *it,
                                   const struct convolution *convolution,
                                   dnnl_primitive_desc_t forward, dnnl_primitive_attr_t attributes)
{
    dnnl_convolution_desc_t operation;
    dnnl_status_t status;

    if (convolution->pass == CONVOLUTION_FORWARD)
        status = dnnl_dilated_convolution_forward_desc_init(
            &operation, dnnl_forward_training, dnnl_convolution_direct, &it->image, &it->weight,
            convolution->bias ? &it->bias : NULL, &it->result, it->strides, it->dilations,
            it->padding, it->padding);
    else if (convolution->pass == CONVOLUTION_INPUT)
        status = dnnl_dilated_convolution_backward_data_desc_init(
            &operation, dnnl_convolution_direct, &it->image, &it->weight, &it->result, it->strides,
            it->dilations, it->padding, it->padding);
    else
        status = dnnl_dilated_convolution_backward_weights_desc_init(
            &operation, dnnl_convolution_direct, &it->image, &it->weight, NULL, &it->result,
            it->strides, it->dilations, it->padding, it->padding);
    if (status != dnnl_success)
        return status;
    return dnnl_primitive_desc_create(result, &operation, attributes, engine, forward);
}

#endif

static dnnl_data_type_t onednn_type(enum data_type type)
{
    return type == TYPE_BF16 ? dnnl_bf16 : dnnl_f32;
}

/* Gradients of weights are fp32. */
static dnnl_data_type_t weight_type(const struct convolution *it)
{
    return it->pass == CONVOLUTION_WEIGHT ? dnnl_f32 : onednn_type(it->type);
}

static struct described tensors_describe(const struct convolution *it)
{
    const struct convolution_shape *s = &it->shape;
    const dnnl_data_type_t type = onednn_type(it->type);
    const dnnl_dims_t image = {s->batch, s->in, s->height, s->width};
    const dnnl_dims_t result = {s->batch, s->out, convolved_height(s), convolved_width(s)};
    const dnnl_dims_t weight = {s->out, s->in, s->kernel, s->kernel}, bias = {s->out};
    struct described described = {.strides = {s->stride, s->stride},
                                  .padding = {s->padding, s->padding}};

    onednn_check(onednn_describe_tag(&described.image, 4, image, type, dnnl_nhwc), "image");
    onednn_check(
        onednn_describe_tag(&described.weight, 4, weight, weight_type(it), dnnl_format_tag_any),
        "weight");
    onednn_check(onednn_describe_tag(&described.bias, 1, bias, weight_type(it), dnnl_a), "bias");
    onednn_check(onednn_describe_tag(&described.result, 4, result, type, dnnl_nhwc), "result");
    return described;
}

static void described_free(struct described *described)
{
    onednn_description_free(&described->image);
    onednn_description_free(&described->weight);
    onednn_description_free(&described->bias);
    onednn_description_free(&described->result);
}

static dnnl_primitive_desc_t pass_describe(const struct onednn *onednn,
                                           const struct convolution *it)
{
    const struct convolution_shape *s = &it->shape;
    struct convolution forward_of = *it;
    dnnl_primitive_desc_t forward = NULL, description;
    dnnl_primitive_attr_t attributes = onednn_attributes(it->relu, false);
    struct described described = tensors_describe(it);

    forward_of.pass = CONVOLUTION_FORWARD;
    if (it->pass != CONVOLUTION_FORWARD)
        forward = pass_describe(onednn, &forward_of);
    dnnl_status_t status =
        describe_pass(&description, onednn->engine, &described, it, forward, attributes);
    ENSURE(status == dnnl_success,
           "oneDNN has no convolution of %lld x %lld pixels, %lld to %lld channels: status %d",
           (long long)s->height, (long long)s->width, (long long)s->in, (long long)s->out,
           (int)status);
    described_free(&described);
    if (forward != NULL)
        onednn_check(dnnl_primitive_desc_destroy(forward), "description");
    onednn_check(dnnl_primitive_attr_destroy(attributes), "attributes");
    return description;
}

/* Describe the reorder of the weight before the convolution, or of its gradient after it. */
static dnnl_primitive_desc_t reorder_describe(const struct onednn *onednn,
                                              const struct convolution *it,
                                              description_handle weight, description_handle plain)
{
    const bool after = it->pass == CONVOLUTION_WEIGHT;
    dnnl_primitive_attr_t attributes = onednn_attributes(false, after);
    dnnl_primitive_desc_t description;

    onednn_check(dnnl_reorder_primitive_desc_create(&description, after ? weight : plain,
                                                    onednn->engine, after ? plain : weight,
                                                    onednn->engine, attributes),
                 "reorder of a weight");
    onednn_check(dnnl_primitive_attr_destroy(attributes), "attributes");
    return description;
}

static description_handle query_memory(dnnl_primitive_desc_t description, dnnl_query_t what)
{
    return dnnl_primitive_desc_query_md(description, what, 0);
}

static size_t page_bytes(description_handle description)
{
    return (size_t)round_up((int64_t)dnnl_memory_desc_get_size(description), 4096);
}

/* The descriptions of a plan, and the workspace bytes of its operands. */
struct plan_description {
    dnnl_primitive_desc_t convolution, reorder;
    dnnl_memory_desc_t plain;
    description_handle weight;
    size_t bytes[OPERANDS];
};

static struct plan_description plan_describe(const struct onednn *onednn,
                                             const struct convolution *it)
{
    const struct convolution_shape *s = &it->shape;
    const dnnl_dims_t sizes = {s->out, s->in, s->kernel, s->kernel};
    struct plan_description plan = {.convolution = pass_describe(onednn, it)};

    plan.weight =
        query_memory(plan.convolution, it->pass == CONVOLUTION_WEIGHT ? dnnl_query_diff_weights_md
                                                                      : dnnl_query_weights_md);
    onednn_check(onednn_describe_tag(&plan.plain, 4, sizes, weight_type(it), dnnl_oihw), "weight");
    plan.reorder = reorder_describe(onednn, it, plan.weight, onednn_handle(&plan.plain));
    plan.bytes[OPERAND_WEIGHT] = page_bytes(plan.weight);
    plan.bytes[OPERAND_SCRATCH] =
        page_bytes(query_memory(plan.convolution, dnnl_query_scratchpad_md));
    plan.bytes[OPERAND_REORDER_SCRATCH] =
        page_bytes(query_memory(plan.reorder, dnnl_query_scratchpad_md));
    return plan;
}

static void plan_description_free(struct plan_description *plan)
{
    onednn_check(dnnl_primitive_desc_destroy(plan->reorder), "description");
    onednn_check(dnnl_primitive_desc_destroy(plan->convolution), "description");
    onednn_description_free(&plan->plain);
}

static struct convolution_plan *plan_open(const struct onednn *onednn, const struct convolution *it)
{
    struct plan_description described = plan_describe(onednn, it);
    struct convolution_plan *plan = allocate(1, sizeof *plan);

    plan->convolution = *it;
    plan->onednn = onednn;
    memcpy(plan->bytes, described.bytes, sizeof plan->bytes);
    onednn_primitive_create(&plan->primitive, described.convolution, "convolution");
    onednn_primitive_create(&plan->reorder, described.reorder, "reorder");
    struct described operands = tensors_describe(it);
    const description_handle of[OPERANDS] = {
        [OPERAND_IMAGE] = onednn_handle(&operands.image),
        [OPERAND_WEIGHT] = described.weight,
        [OPERAND_BIAS] = onednn_handle(&operands.bias),
        [OPERAND_RESULT] = onednn_handle(&operands.result),
        [OPERAND_SCRATCH] = query_memory(described.convolution, dnnl_query_scratchpad_md),
        [OPERAND_PLAIN] = onednn_handle(&described.plain),
        [OPERAND_REORDER_SCRATCH] = query_memory(described.reorder, dnnl_query_scratchpad_md)};
    for (int operand = 0; operand < OPERANDS; operand++)
        if (operand != OPERAND_BIAS || it->bias)
            plan->memory[operand] = onednn_memory(onednn, of[operand], DNNL_MEMORY_NONE);
    described_free(&operands);
    plan_description_free(&described);
    return plan;
}

static bool convolution_equal(const struct convolution *a, const struct convolution *b)
{
    const struct convolution_shape *s = &a->shape, *t = &b->shape;

    return a->pass == b->pass && a->type == b->type && a->bias == b->bias && a->relu == b->relu &&
           s->batch == t->batch && s->height == t->height && s->width == t->width &&
           s->in == t->in && s->out == t->out && s->kernel == t->kernel && s->stride == t->stride &&
           s->padding == t->padding;
}

const struct convolution_plan *convolution_plan(struct onednn *onednn,
                                                const struct convolution *convolution)
{
    for (struct convolution_plan *plan = onednn->convolutions; plan != NULL; plan = plan->next)
        if (convolution_equal(&plan->convolution, convolution))
            return plan;
    omp_set_num_threads(onednn->threads);
    struct convolution_plan *plan = plan_open(onednn, convolution);
    plan->next = onednn->convolutions;
    onednn->convolutions = plan;
    return plan;
}

size_t convolution_plan_workspace(struct onednn *onednn, const struct convolution *convolution)
{
    size_t bytes = 0;

    omp_set_num_threads(onednn->threads);
    struct plan_description described = plan_describe(onednn, convolution);
    for (int operand = 0; operand < OPERANDS; operand++)
        bytes += described.bytes[operand];
    plan_description_free(&described);
    return bytes;
}

/* oneDNN takes all operands as void *, including those that it only reads. */
static void operand_set(const struct convolution_plan *plan, enum operand operand,
                        const void *memory)
{
    void *address;

    memcpy(&address, &memory, sizeof address);
    if (plan->memory[operand] != NULL)
        onednn_check(dnnl_memory_set_data_handle(plan->memory[operand], address), "operand");
}

static void run_reorder(const struct convolution_plan *plan)
{
    const bool after = plan->convolution.pass == CONVOLUTION_WEIGHT;
    const dnnl_exec_arg_t arguments[] = {
        {DNNL_ARG_FROM, plan->memory[after ? OPERAND_WEIGHT : OPERAND_PLAIN]},
        {DNNL_ARG_TO, plan->memory[after ? OPERAND_PLAIN : OPERAND_WEIGHT]},
        {DNNL_ARG_SCRATCHPAD, plan->memory[OPERAND_REORDER_SCRATCH]}};

    onednn_check(dnnl_primitive_execute(plan->reorder, plan->onednn->streams[0], 3, arguments),
                 "reorder");
}

static void run_convolution(const struct convolution_plan *plan)
{
    dnnl_exec_arg_t arguments[CONVOLVED_OPERANDS];
    int count = 0;

    for (int operand = 0; operand < CONVOLVED_OPERANDS; operand++)
        if (plan->memory[operand] != NULL)
            arguments[count++] = (dnnl_exec_arg_t){operand_name[plan->convolution.pass][operand],
                                                   plan->memory[operand]};
    onednn_check(
        dnnl_primitive_execute(plan->primitive, plan->onednn->streams[0], count, arguments),
        "convolution");
}

/* Run the reorder and the convolution; gradients of weights are reordered afterwards. */
void convolution_plan_run(const struct convolution_plan *plan, const void *image,
                          const void *weight, const void *bias, const void *result, char *workspace)
{
    static const enum operand of_workspace[] = {OPERAND_WEIGHT, OPERAND_SCRATCH,
                                                OPERAND_REORDER_SCRATCH};
    const bool after = plan->convolution.pass == CONVOLUTION_WEIGHT;
    for (size_t i = 0; i < sizeof of_workspace / sizeof of_workspace[0]; i++) {
        operand_set(plan, of_workspace[i], workspace);
        workspace += plan->bytes[of_workspace[i]];
    }
    operand_set(plan, OPERAND_IMAGE, image);
    operand_set(plan, OPERAND_BIAS, bias);
    operand_set(plan, OPERAND_PLAIN, weight);
    operand_set(plan, OPERAND_RESULT, result);
    omp_set_num_threads(plan->onednn->threads);
    if (!after)
        run_reorder(plan);
    run_convolution(plan);
    if (after)
        run_reorder(plan);
}
