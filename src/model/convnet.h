/* Convolutional models. A model is a flat table of nodes in topological order, cut into units; from
 * it come tensors, activations and both passes, so that a model is nothing but the function that
 * fills its table (cnn.c, resnet.c). Activations are channels last. */
#ifndef VITTRAIN_MODEL_CONVNET_H
#define VITTRAIN_MODEL_CONVNET_H

#include "model/model.h"

enum convnet_kind {
    CONVNET_IMAGES,      /* what comes in, from channels first to channels last */
    CONVNET_CONVOLUTION, /* weight, bias */
    CONVNET_BATCH_NORM,  /* weight, bias, running_mean, running_var */
    CONVNET_MAX_POOL,
    CONVNET_MEAN_POOL, /* over all pixels */
    CONVNET_FLATTEN,   /* to one row a sample, channel by channel as in torch */
    CONVNET_LINEAR     /* weight, bias; of one row a sample */
};

enum convnet_initial {
    CONVNET_UNIFORM,        /* torch's own start: within 1 / sqrt(fan in), the bias too */
    CONVNET_KAIMING_FAN_OUT /* He et al. 2015: normal with variance 2 / fan out, for relu */
};

/* What a model's function says of a node, and below what convnet.c makes of it. */
struct convnet_node {
    enum convnet_kind kind;
    const char *name; /* what its tensors' names begin with, "" for nothing; copied */
    int input;        /* the node whose output it reads, a lower number */
    int residual;     /* batch norm: the node whose output is added before the relu; 0: none */
    bool relu;        /* of batch norm, convolution and linear */
    bool bias;        /* of a convolution: has one */
    int64_t channels; /* convolution, linear: of the output */
    int64_t kernel, stride, padding; /* convolution, max pool */
    enum convnet_initial initial;

    int unit;
    char prefix[TENSOR_NAME];
    int64_t in, in_height, in_width; /* of the input */
    int64_t height, width;           /* of the output */
    int readers;                     /* of the output, 2 at most */
    int parameters;                  /* number of the first tensor in the unit */
    int states;                      /* the same of running_mean */
    bool frozen;                     /* batch norm: normalises with the running statistics */
    bool clipped; /* the output's gradient is to be masked by those who read it: x_relu */
    int slot;     /* of the output in evaluation */
    /* Where the output's gradient comes to: a slot for each reader; -1: the logits. */
    int gradient[2], gradient_count;
    int input_gradient; /* the slot of what this node gives its input */

    void *y;           /* training: its own memory */
    uint8_t *index;    /* max pool */
    float *statistics; /* [3 * channels] batch norm */
    double *sums;      /* [2 * channels + 1] batch norm, of all ranks */
};

enum { CONVNET_NODES = 384, CONVNET_SLOTS = 8 };

/* Memory that outputs, or gradients, take turns at: so many elements a sample. */
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
    bool too_small; /* an image left nothing for a node */
    bool sync;      /* statistics of batch norm are those of all ranks */
    int first_trainable;
    int64_t batch; /* of the last forward pass */
    struct convnet_slots outputs, gradients;
    float *statistics; /* in evaluation */
    double *sums;      /* of backward passes */
    void *workspace;   /* of convolutions */
};

/* A model's numbers, as the registry and the options have them. */
struct convnet_shape {
    /* Fills the table: begins units and adds nodes to node 0, the images. The last one added gives
     * the logits. */
    void (*describe)(struct convnet *convnet, const struct convnet_shape *shape);
    int64_t image, channels, classes;
    int64_t width;   /* ResNets: channels of the first stage; each next one has twice as many */
    int blocks[4];   /* ResNets: of each stage */
    bool bottleneck; /* ResNets: 1x1, 3x3, 1x1 */
    enum model_loss loss;
};

struct model *convnet_open(const char *name, const struct convnet_shape *shape,
                           struct device *device, enum data_type compute, struct error *error);

/* What follows belongs to the unit of this name. */
void convnet_unit(struct convnet *convnet, const char *name);
/* Gives the node's number. */
int convnet_add(struct convnet *convnet, const struct convnet_node *node);

/* The models: cnn.c, resnet.c. */
void cnn_a_describe(struct convnet *convnet, const struct convnet_shape *shape);
void cnn_a_lenet_describe(struct convnet *convnet, const struct convnet_shape *shape);
void linear_describe(struct convnet *convnet, const struct convnet_shape *shape);
void cnn_b_describe(struct convnet *convnet, const struct convnet_shape *shape);
void resnet_describe(struct convnet *convnet, const struct convnet_shape *shape);

/* Below: shared by convnet.c, convnet_activations.c (memory) and convnet_pass.c (both passes). */

/* Elements of a sample that leave this node. */
int64_t convnet_elements(const struct convnet_node *node);

/* Decides, once, which memory outputs and gradients take turns at. */
void convnet_plan_slots(struct convnet *convnet);
void convnet_activations(struct model *model, struct arena *arena, int64_t batch, bool training);
struct convolution_shape convnet_convolution_shape(const struct convnet_node *node, int64_t batch);

void convnet_forward(struct model *model, const struct model_pass *pass, int unit);
void convnet_backward(struct model *model, const struct model_pass *pass, int unit);
const void *convnet_output(const struct model *model, int unit, int64_t *count);

#endif
