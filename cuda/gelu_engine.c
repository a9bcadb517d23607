// SPDX-License-Identifier: BSD-3-Clause
#include "gelu_engine.h"

typedef cudnnBackendDescriptor_t descriptor;

/* Tensors of the graph. */
enum { A, B, PRE, C, BIAS, SUM, TENSORS };

/* A matrix; `row` and `column` are the distances between its rows and columns in memory. A virtual
 * tensor is not stored. */
static descriptor matrix_open(int64_t identifier, cudnnDataType_t type, int64_t rows,
                              int64_t columns, int64_t row, int64_t column, bool is_virtual)
{
    const int64_t sizes[] = {1, rows, columns}, strides[] = {rows * columns, row, column};
    const int64_t alignment = ENGINE_ALIGNMENT;
    descriptor matrix = descriptor_open(CUDNN_BACKEND_TENSOR_DESCRIPTOR);

    SET(matrix, TENSOR_UNIQUE_ID, INT64, 1, &identifier);
    SET(matrix, TENSOR_DATA_TYPE, DATA_TYPE, 1, &type);
    SET(matrix, TENSOR_DIMENSIONS, INT64, 3, sizes);
    SET(matrix, TENSOR_STRIDES, INT64, 3, strides);
    SET(matrix, TENSOR_BYTE_ALIGNMENT, INT64, 1, &alignment);
    SET(matrix, TENSOR_IS_VIRTUAL, BOOLEAN, 1, &is_virtual);
    GRAPH_CHECK(cudnnBackendFinalize(matrix));
    return matrix;
}

static void matrices_open(const struct gelu_shape *s, descriptor matrices[TENSORS])
{
    const cudnnDataType_t type = engine_type((enum data_type)s->type);
    const bool b_transposed = !s->gradient; /* b is stored as [columns, inner] */

    matrices[A] = matrix_open(A, type, s->rows, s->inner, s->inner, 1, false);
    matrices[B] = matrix_open(B, type, s->inner, s->columns, b_transposed ? 1 : s->columns,
                              b_transposed ? s->inner : 1, false);
    matrices[PRE] = matrix_open(PRE, type, s->rows, s->columns, s->columns, 1, false);
    matrices[C] = matrix_open(C, type, s->rows, s->columns, s->columns, 1, false);
    matrices[BIAS] = matrix_open(BIAS, type, 1, s->columns, s->columns, 1, false);
    matrices[SUM] = matrix_open(SUM, CUDNN_DATA_FLOAT, s->rows, s->columns, s->columns, 1, true);
}

/* c = a . b */
static descriptor product_open(descriptor a, descriptor b, descriptor c)
{
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    descriptor precision = descriptor_open(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    descriptor operation = descriptor_open(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);

    SET(precision, MATMUL_COMP_TYPE, DATA_TYPE, 1, &sums);
    GRAPH_CHECK(cudnnBackendFinalize(precision));
    attribute_set_descriptor(operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    attribute_set_descriptor(operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    attribute_set_descriptor(operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    attribute_set_descriptor(operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, precision);
    GRAPH_CHECK(cudnnBackendFinalize(operation));
    descriptor_close(precision);
    return operation;
}

/* An elementwise operation on three tensors, in fp32; a tensor may be NULL. */
struct operand {
    cudnnBackendAttributeName_t name;
    descriptor tensor;
};
static descriptor elementwise_open(cudnnPointwiseMode_t mode, const struct operand operands[3])
{
    const cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    descriptor kind = descriptor_open(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    descriptor operation = descriptor_open(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);

    SET(kind, POINTWISE_MODE, POINTWISE_MODE, 1, &mode);
    SET(kind, POINTWISE_MATH_PREC, DATA_TYPE, 1, &precision);
    GRAPH_CHECK(cudnnBackendFinalize(kind));
    attribute_set_descriptor(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
    for (int i = 0; i < 3; i++)
        if (operands[i].tensor != NULL)
            attribute_set_descriptor(operation, operands[i].name, operands[i].tensor);
    GRAPH_CHECK(cudnnBackendFinalize(operation));
    descriptor_close(kind);
    return operation;
}

static descriptor bias_open(const descriptor matrices[TENSORS])
{
    const struct operand operands[] = {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, matrices[SUM]},
                                       {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, matrices[BIAS]},
                                       {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, matrices[PRE]}};
    return elementwise_open(CUDNN_POINTWISE_ADD, operands);
}

static descriptor gelu_open(const descriptor matrices[TENSORS], bool tanh)
{
    const struct operand operands[] = {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, matrices[PRE]},
                                       {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, NULL},
                                       {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, matrices[C]}};
    return elementwise_open(tanh ? CUDNN_POINTWISE_GELU_APPROX_TANH_FWD : CUDNN_POINTWISE_GELU_FWD,
                            operands);
}

static descriptor gelu_gradient_open(const descriptor matrices[TENSORS], bool tanh)
{
    const struct operand operands[] = {{CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, matrices[SUM]},
                                       {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, matrices[PRE]},
                                       {CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, matrices[C]}};
    return elementwise_open(tanh ? CUDNN_POINTWISE_GELU_APPROX_TANH_BWD : CUDNN_POINTWISE_GELU_BWD,
                            operands);
}

bool gelu_engine_open(const struct engine_device *device, const struct gelu_shape *shape, int skip,
                      size_t limit, struct engine *engine)
{
    const struct engine_rules rules = {true, true, limit};
    descriptor matrices[TENSORS], operations[3];
    int count = 0;

    matrices_open(shape, matrices);
    operations[count++] = product_open(matrices[A], matrices[B], matrices[SUM]);
    if (shape->gradient) {
        operations[count++] = gelu_gradient_open(matrices, shape->tanh);
    } else {
        operations[count++] = bias_open(matrices);
        operations[count++] = gelu_open(matrices, shape->tanh);
    }
    descriptor graph = engine_graph_open(device, operations, count);
    bool found = engine_open(device, graph, CUDNN_HEUR_MODE_A, &rules, skip, engine);
    descriptor_close(graph);
    for (int i = 0; i < count; i++)
        descriptor_close(operations[i]);
    for (int i = 0; i < TENSORS; i++)
        descriptor_close(matrices[i]);
    return found;
}

cudnnStatus_t gelu_engine_run(cudnnHandle_t handle, const struct gelu_shape *shape,
                              const struct engine *engine, const struct gelu_operands *operands)
{
    static const int64_t identifiers[] = {A, B, PRE, C, BIAS};
    const void *const pointers[] = {operands->a, operands->b, operands->pre, operands->c,
                                    operands->bias};
    return engine_execute(handle, engine, shape->gradient ? 4 : 5, identifiers, pointers,
                          operands->workspace);
}
