/* The table of one instruction set's kernels; compiled once per instruction set like all
 * kernels_*.c. */
#include "device/kernels.h"

#define KERNEL_STRING(name) #name
#define KERNEL_NAME(name) KERNEL_STRING(name)

extern const struct random_kernels KERNEL(random_kernels);
extern const struct convert_kernels KERNEL(convert_kernels);
extern const struct linear_kernels KERNEL(linear_kernels);
extern const struct attention_kernels KERNEL(attention_kernels);
extern const struct element_kernels KERNEL(element_kernels);
extern const struct norm_kernels KERNEL(norm_kernels);
extern const struct batch_norm_kernels KERNEL(batch_norm_kernels);
extern const struct convolution_kernels KERNEL(convolution_kernels);
extern const struct max_pool_kernels KERNEL(max_pool_kernels);
extern const struct loss_kernels KERNEL(loss_kernels);
extern const struct update_kernels KERNEL(update_kernels);
extern const struct image_kernels KERNEL(image_kernels);
extern const struct colour_kernels KERNEL(colour_kernels);

const struct cpu_kernels KERNEL(cpu_kernels) = {
    .name = KERNEL_NAME(KERNELS),
    .random = &KERNEL(random_kernels),
    .convert = &KERNEL(convert_kernels),
    .linear = &KERNEL(linear_kernels),
    .attention = &KERNEL(attention_kernels),
    .elements = &KERNEL(element_kernels),
    .norm = &KERNEL(norm_kernels),
    .batch_norm = &KERNEL(batch_norm_kernels),
    .convolution = &KERNEL(convolution_kernels),
    .max_pool = &KERNEL(max_pool_kernels),
    .loss = &KERNEL(loss_kernels),
    .update = &KERNEL(update_kernels),
    .image = &KERNEL(image_kernels),
    .colour = &KERNEL(colour_kernels),
};
