// SPDX-License-Identifier: BSD-3-Clause
/* The operations of device.h by number and name, for backends that wrap another one (profile.c,
 * count.c). */
#ifndef VITTRAIN_DEVICE_OPERATIONS_H
#define VITTRAIN_DEVICE_OPERATIONS_H

#include "device/device.h"

/* Operations with arguments (stream, args): the function's name is also the name of the struct. */
#define DEVICE_OPERATIONS(OPERATION)                                                               \
    OPERATION(linear_forward)                                                                      \
    OPERATION(linear_backward)                                                                     \
    OPERATION(norm_forward)                                                                        \
    OPERATION(norm_backward)                                                                       \
    OPERATION(attention_forward)                                                                   \
    OPERATION(attention_backward)                                                                  \
    OPERATION(dropout_apply)                                                                       \
    OPERATION(scale_backward)                                                                      \
    OPERATION(rotary)                                                                              \
    OPERATION(glu_forward)                                                                         \
    OPERATION(glu_backward)                                                                        \
    OPERATION(patches_forward)                                                                     \
    OPERATION(tokens_forward)                                                                      \
    OPERATION(tokens_backward)                                                                     \
    OPERATION(pool_forward)                                                                        \
    OPERATION(pool_backward)                                                                       \
    OPERATION(convolution_forward)                                                                 \
    OPERATION(convolution_backward)                                                                \
    OPERATION(batch_norm_sums)                                                                     \
    OPERATION(batch_norm_forward)                                                                  \
    OPERATION(batch_norm_backward_sums)                                                            \
    OPERATION(batch_norm_backward)                                                                 \
    OPERATION(max_pool_forward)                                                                    \
    OPERATION(max_pool_backward)                                                                   \
    OPERATION(transpose)                                                                           \
    OPERATION(cross_entropy)                                                                       \
    OPERATION(squared_error)                                                                       \
    OPERATION(update)                                                                              \
    OPERATION(matrix_sum)                                                                          \
    OPERATION(tree_sums)                                                                           \
    OPERATION(hash)                                                                                \
    OPERATION(nonfinite)                                                                           \
    OPERATION(image_transform)                                                                     \
    OPERATION(images_mix)

/* Operations with other arguments. */
#define DEVICE_OTHERS(OPERATION)                                                                   \
    OPERATION(copy)                                                                                \
    OPERATION(zero)                                                                                \
    OPERATION(convert)                                                                             \
    OPERATION(add)                                                                                 \
    OPERATION(scaler_update)                                                                       \
    OPERATION(sum_squares)                                                                         \
    OPERATION(sum_value)

#define OPERATION_NUMBER(name) OPERATION_##name,
enum operation { DEVICE_OPERATIONS(OPERATION_NUMBER) DEVICE_OTHERS(OPERATION_NUMBER) OPERATIONS };

/* "linear_forward" */
extern const char *const operation_name[OPERATIONS];

#endif
