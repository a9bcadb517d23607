// SPDX-License-Identifier: BSD-3-Clause
/* Convolutional models. A model is a table of nodes in topological order, divided into units. The
 * tensors, the activations and both passes are derived from the table, so a model only needs a
 * function that fills it (cnn.c, resnet.c). Activations are channels last. */
#ifndef VITTRAIN_MODEL_CONVNET_H
#define VITTRAIN_MODEL_CONVNET_H

#include "model/model.h"

enum convnet_kind {
    CONVNET_IMAGES,      /* input; converts from channels first to channels last */
    CONVNET_CONVOLUTION, /* weight, bias */
    CONVNET_BATCH_NORM,  /* weight, bias, running_mean, running_var */
    CONVNET_MAX_POOL,
    CONVNET_MEAN_POOL, /* over all pixels */
    CONVNET_FLATTEN,   /* one row per sample, channel by channel as in torch */
    CONVNET_LINEAR,    /* weight, bias; one row per sample */
    CONVNET_UPSAMPLE   /* to the size of the images, channels first; the last node */
};

enum convnet_initial {
    CONVNET_UNIFORM,         /* torch's default: within 1 / sqrt(fan in), also for the bias */
    CONVNET_KAIMING_FAN_OUT, /* He et al. 2015: normal with variance 2 / fan out */
    CONVNET_DIRAC,  /* identity for the first channels, CONVNET_KAIMING_FAN_OUT for others */
    CONVNET_COSINES /* cosine basis of the input's patches, without a bias */
};

struct convnet_node {
    /* Set by the model's function. */
    enum convnet_kind kind;
    const char *name; /* prefix of the names of its tensors, "" for none; copied */
    int input;        /* number of the node whose output it reads; lower than its own */
    int residual;     /* batch norm: node whose output is added before the relu; 0: none */
    bool relu;        /* batch norm, convolution, linear: apply relu to the output */
    bool bias;        /* convolution: has a bias */
    int64_t channels; /* convolution, linear: of the output */
    int64_t kernel, stride, padding; /* convolution, max pool */
    enum convnet_initial initial;

    /* Derived by convnet.c. */
    int unit;
    char prefix[TENSOR_NAME];
    int64_t in, in_height, in_width; /* of the input */
    int64_t height, width;           /* of the output */
    int readers;                     /* nodes that read the output, 2 at most */
    int parameters;                  /* number of its first parameter in the unit */
    int states;                      /* batch norm: number of running_mean in the unit */
    bool frozen;                     /* batch norm: normalises with the running statistics */
    bool reads_images; /* the first convolution, if the device reads images channels first */
    bool clipped;      /* output of a relu, whose gradient the readers mask (x_relu) */
    int slot;          /* of the output in evaluation */
    int gradient[2],
        gradient_count; /* slots of the output's gradient, one per reader; -1: logits */
    int input_gradient; /* slot of the gradient of the input; -1: none */

    void *y;           /* output, in training */
    uint8_t *index;    /* max pool */
    float *statistics; /* [3 * channels] batch norm */
    double *sums;      /* [2 * channels + 1] batch norm, of all ranks */
};

enum { CONVNET_NODES = 384, CONVNET_SLOTS = 8 };

/* Buffers shared by outputs, or by gradients; sizes in elements per sample. */
struct convnet_slots {
    int64_t size[CONVNET_SLOTS];
    bool busy[CONVNET_SLOTS];
    int count;
    void *memory[CONVNET_SLOTS];
};

struct convnet {
    struct model model; /* first: a struct model is a struct convnet */
    struct convnet_node nodes[CONVNET_NODES];
    int node_count;
    char unit_name[CONVNET_NODES][TENSOR_NAME];
    uint32_t next_index; /* of the next tensor */
    bool too_small;      /* the image is too small for a node */
    bool sync;           /* batch norm uses the statistics of all ranks */
    int64_t batch;       /* of the last forward pass */
    struct convnet_slots outputs, gradients;
    float *statistics; /* batch norm, evaluation */
    double *sums;      /* batch norm, backward */
    void *workspace;   /* convolutions */
};

struct convnet_shape {
    /* Fills the table by convnet_unit and CONVNET_ADD. Node 0, the images, exists already; the
     * output of the last node is the logits. */
    void (*describe)(struct convnet *convnet, const struct convnet_shape *shape);
    int64_t image, channels, classes;
    int64_t image_width; /* 0: equal to `image`, the height */
    int64_t width;   /* channels of the first stage, doubled at each next one; 0: not an option */
    bool dense;      /* ResNets: outputs for each pixel */
    int blocks[4];   /* ResNets: blocks per stage */
    bool bottleneck; /* ResNets: 1x1, 3x3, 1x1 */
    enum model_loss loss;
};

/* The type of a registered model whose shape is a struct convnet_shape. */
extern const struct model_type convnet_type;

/* Describe a model of this shape; `name` is for messages. Returns NULL and sets the error if the
 * image is too small. device may be NULL. The caller closes the model. */
struct model *convnet_open(const char *name, const struct convnet_shape *shape,
                           struct device *device, enum data_type compute, struct error *error);

/* Begin a unit, to which the nodes added next belong. */
void convnet_unit(struct convnet *convnet, const char *name);
/* Add a node, given by the members of its struct, and return its number. */
#define CONVNET_ADD(convnet, ...) convnet_add(convnet, &(const struct convnet_node){__VA_ARGS__})
int convnet_add(struct convnet *convnet, const struct convnet_node *node);

/* The rest is private to convnet.c and convnet_pass.c (passes). */

/* Elements per sample of a node's output. */
int64_t convnet_elements(const struct convnet_node *node);

struct convolution_shape convnet_convolution_shape(const struct convnet_node *node, int64_t batch);

void convnet_forward(struct model *model, const struct model_pass *pass, int unit);
void convnet_backward(struct model *model, const struct model_pass *pass, int unit);
const void *convnet_output(const struct model *model, int unit, int64_t *count);

#endif
