/* The table of all options. What is not here does not exist: the reader of decks, the help, the
 * manual page and the resolved deck come from it. */
#include <math.h>
#include <string.h>

#include "config/option.h"
#include "config/options.h"
#include "config/phase.h"

#define PLACE(section, member)                                                                     \
    .name = #section "." #member, .offset = offsetof(struct options, section.member)
#define AUTOMATIC(value) .has_automatic = true, .automatic = (value)
#define CHOICE(constant, word) {constant, word},
#define CHOICES(LIST)                                                                              \
    .kind = OPTION_IS_CHOICE, .choices = (const struct option_choice[])                            \
    {                                                                                              \
        LIST(CHOICE)                                                                               \
        {                                                                                          \
            0, NULL                                                                                \
        }                                                                                          \
    }

/* 2^53: every whole number up to here is a double, too. */
#define LARGEST 9007199254740992.0

const struct option_entry option_table[] = {
    {PLACE(run, name), .kind = OPTION_IS_TEXT, .preset = "vittrain",
     .help = "What the run is called; its folder is runs/NAME-DATE."},
    {PLACE(run, dir), .kind = OPTION_IS_TEXT, .preset = "",
     .help = "The run's folder. Empty: runs/NAME-DATE in the working directory."},
    {PLACE(run, seed), .kind = OPTION_IS_INTEGER, .preset = "42", .most = LARGEST,
     .help = "All random numbers follow from it: first weights, order of the samples, "
             "augmentation, dropout."},
    {PLACE(run, backend), CHOICES(BACKEND_CHOICES), .preset = "auto",
     .help = "What computes: cuda is NVIDIA GPUs, a rank each. auto: a GPU where the program finds "
             "one (it says why not), else the CPU."},
    {PLACE(run, threads), .kind = OPTION_IS_INTEGER, .preset = "auto", AUTOMATIC(0), .most = 4096,
     .help = "Threads of a rank. auto: the rank's share of the node's cores."},

    {PLACE(model, name), .kind = OPTION_IS_TEXT, .preset = "vit_cifar",
     .help =
         "A model of the registry: vit_cifar, vit_tiny_patch16_224, vit_small_patch16_224, "
         "vit_small_patch32_224, vit_base_patch16_224, vit_base_patch32_224, cnn_a, cnn_a_lenet, "
         "cnn_b (a ResNet-18 for images of 32 pixels), resnet18, resnet34, resnet50, resnet101, "
         "resnet152, linear (a regression on numbers). Keys of patch, dim, depth, heads, "
         "mlp_ratio, dropout, drop_path, qkv_bias, class_token, embed_norm and pool are for "
         "ViTs only."},
    {PLACE(model, init), .kind = OPTION_IS_TEXT, .preset = "none",
     .help = "Where the first weights come from: none (random), a FILE.safetensors or a checkpoint "
             "of a model of the same shape, also on a remote (s3://BUCKET/FILE or REMOTE:FILE, "
             "docs/store.md). From safetensors a head of another size starts at random, "
             "positions of another grid are resized."},
    {PLACE(model, image), .kind = OPTION_IS_INTEGER, .preset = "auto", AUTOMATIC(0), .most = 8192,
     .help = "Height and width of the model's images in pixels. auto, here and below: as the "
             "registry has it."},
    {PLACE(model, channels), .kind = OPTION_IS_INTEGER, .preset = "auto", AUTOMATIC(0), .most = 32,
     .help = "Colours of an image."},
    {PLACE(model, patch), .kind = OPTION_IS_INTEGER, .preset = "auto", AUTOMATIC(0), .most = 16384,
     .help = "Height and width of a patch; must divide the image."},
    {PLACE(model, dim), .kind = OPTION_IS_INTEGER, .preset = "auto", AUTOMATIC(0), .most = 65536,
     .help = "Width of a token; the heads must divide it."},
    {PLACE(model, depth), .kind = OPTION_IS_INTEGER, .preset = "auto", AUTOMATIC(0), .most = 1000,
     .help = "Number of blocks."},
    {PLACE(model, heads), .kind = OPTION_IS_INTEGER, .preset = "auto", AUTOMATIC(0), .most = 1024,
     .help = "Heads of the attention."},
    {PLACE(model, classes), .kind = OPTION_IS_INTEGER, .preset = "auto", AUTOMATIC(0), .most = 5e5,
     .help = "Classes that the head tells apart."},
    {PLACE(model, mlp_ratio), .kind = OPTION_IS_NUMBER, .preset = "auto", AUTOMATIC(0), .most = 64,
     .help = "Width of a block's hidden layer, in widths of a token."},
    {PLACE(model, dropout), .kind = OPTION_IS_NUMBER, .preset = "auto", AUTOMATIC(-1), .most = 1,
     .below_most = true,
     .help = "Share of values that dropout makes zero, wherever the model has dropout."},
    {PLACE(model, drop_path), .kind = OPTION_IS_NUMBER, .preset = "auto", AUTOMATIC(-1), .most = 1,
     .below_most = true,
     .help = "Rate of stochastic depth at the last block; it grows linearly from 0 at the first. "
             "vit_cifar: of a dropout of single values behind both branches of each block."},
    {PLACE(model, qkv_bias), CHOICES(SWITCH_CHOICES), .preset = "auto",
     .help = "Bias in the projection to queries, keys and values."},
    {PLACE(model, class_token), CHOICES(SWITCH_CHOICES), .preset = "auto",
     .help = "A class token before the patches."},
    {PLACE(model, embed_norm), CHOICES(SWITCH_CHOICES), .preset = "auto",
     .help = "A layer norm on the embedded patches."},
    {PLACE(model, pool), CHOICES(POOL_CHOICES), .preset = "auto",
     .help = "What the head sees: the class token, or the mean of the patches."},
    {PLACE(model, width), .kind = OPTION_IS_INTEGER, .preset = "auto", AUTOMATIC(0), .most = 4096,
     .help = "ResNets: channels of the first stage; each next one has twice as many."},
    {PLACE(model, sync_bn), CHOICES(SWITCH_CHOICES), .preset = "auto",
     .help = "Batch norm: do statistics come from the samples of all ranks (of a piece, where "
             "train.accumulate cuts)? off: of their own rank alone, so that results depend on how "
             "many ranks there are. auto: on."},

    {PLACE(data, format), .kind = OPTION_IS_TEXT, .preset = "cifar10",
     .help =
         "Format of the data set: cifar10 (binary version), imagefolder (ROOT/train/CLASS/FILE, "
         "ROOT/val or ROOT/test likewise; JPEG and PNG), cinic10 (such folders), packed (files "
         "made "
         "by `vittrain convert data`) or synthetic."},
    {PLACE(data, root), .kind = OPTION_IS_TEXT, .preset = "",
     .help = "Folder of the data set, or its packed FILE.h5. Empty: the sample of CIFAR-10 that "
             "comes with the program "
             "(4,000 + 1,000 images)."},
    {PLACE(data, workers), .kind = OPTION_IS_INTEGER, .preset = "1", .least = 1, .most = 256,
     .help = "Threads of a rank that load batches ahead of the step."},
    {PLACE(data, shuffle), .kind = OPTION_IS_SWITCH, .preset = "on",
     .help = "A new order of the training samples in each epoch; off: the order of the files."},
    {PLACE(data, shuffle_block), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 4294967295.0,
     .help = "Packed data: shuffle blocks of so many samples, then the samples of 16 blocks among "
             "each other, so that disks read large stretches; better with convert.shuffle. 0: all "
             "among each other."},
    {PLACE(data, drop_last), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "Leave out the last batch of an epoch when it is not full."},
    {PLACE(data, val), CHOICES(VALIDATION_CHOICES), .preset = "test",
     .help =
         "What is evaluated while training: the test set; the middle part of a random split of all "
         "samples, 75 % to train, 8.3 % to evaluate, 16.7 % to test (reference); nothing; "
         "val: the validation split of data that have one. Folders of images without a folder test "
         "have their validation split for test, too."},
    {PLACE(data, samples), .kind = OPTION_IS_INTEGER, .preset = "1024", .least = 1,
     .most = 4294967295.0,
     .help = "Synthetic data: training samples; the test set has a quarter as many."},
    {PLACE(data, image), .kind = OPTION_IS_INTEGER, .preset = "32", .least = 1, .most = 8192,
     .help = "Synthetic data: height and width."},
    {PLACE(data, classes), .kind = OPTION_IS_INTEGER, .preset = "10", .least = 1, .most = 5e5,
     .help = "Synthetic data: classes."},
    {PLACE(data, task), CHOICES(TASK_CHOICES), .preset = "classes",
     .help = "Synthetic data: what is to be learnt. regression: a random target from 0 to 1 for "
             "20 random numbers (or model.channels of them); for model.name=linear."},
    {PLACE(data, skip_broken), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help =
         "Folders of images: leave out files that are no images, with data.check=full those that "
         "are cut or damaged, too (the log says how many); off: they end the run."},
    {PLACE(data, allow_empty), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "Folders of images: classes without images are classes; off: they end the run."},
    {PLACE(data, check), CHOICES(CHECK_CHOICES), .preset = "header",
     .help =
         "Folders of images: what of the files is looked at before training: nothing, format "
         "and size, or all of them decoded. Packed pixels: full compares the sum of a record each "
         "time it is read and not the first time only."},
    {PLACE(data, truncated), CHOICES(TRUNCATED_CHOICES), .preset = "error",
     .help = "An image file that ends inside the image, where that is found: ends the run "
             "(error), or is taken as far as it goes (accept)."},
    {PLACE(data, scaled_decode), .kind = OPTION_IS_SWITCH, .preset = "on",
     .help = "JPEG: decode at 1/2, 1/4 or 1/8 of the size where the part that is wanted is at "
             "least as large even then; faster, but not bit for bit what PIL's resize makes."},
    {PLACE(data, max_pixels), .kind = OPTION_IS_INTEGER, .preset = "178956970", .least = 1,
     .most = 2e9,
     .help = "Image files of more pixels are refused: small files can hold images larger than the "
             "memory."},

    {PLACE(augment, flip), .kind = OPTION_IS_NUMBER, .preset = "0.5", .most = 1,
     .help = "Probability that an image is mirrored left to right. 0, here and below: never."},
    {PLACE(augment, rotate), .kind = OPTION_IS_NUMBER, .preset = "15", .most = 180,
     .help = "Rotation by up to so many degrees to either side."},
    {PLACE(augment, translate), .kind = OPTION_IS_NUMBER, .preset = "0.1", .most = 1,
     .help = "Translation by up to this share of width and height."},
    {PLACE(augment, erase), .kind = OPTION_IS_NUMBER, .preset = "0.5", .most = 1,
     .help = "Probability that a rectangle is erased."},
    {PLACE(augment, erase_scale), .kind = OPTION_IS_LIST, .preset = "0.02,0.2", .most = 1,
     .above_least = true, .least_count = 2, .most_count = 2,
     .help = "Least and largest share of the image that the rectangle covers."},
    {PLACE(augment, erase_ratio), .kind = OPTION_IS_LIST, .preset = "0.3,3.3", .most = 1000,
     .above_least = true, .least_count = 2, .most_count = 2,
     .help = "Least and largest ratio of its sides."},
    {PLACE(augment, crop_pad), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 4096,
     .help =
         "Random crop after padding with so many zeros on each side: of the image's own size, or "
         "what augment.crop=random takes."},
    {PLACE(augment, rand_augment), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 16,
     .help = "RandAugment: so many operations on each image, of 14 that move it or change its "
             "colours."},
    {PLACE(augment, rand_magnitude), .kind = OPTION_IS_INTEGER, .preset = "9", .most = 30,
     .help = "RandAugment: how strong its operations are."},
    {PLACE(augment, brightness), .kind = OPTION_IS_NUMBER, .preset = "0", .most = 100,
     .help = "Brightness times a factor from 1 - this (at least 0) to 1 + this. Brightness, "
             "contrast, saturation and hue change in a random order."},
    {PLACE(augment, contrast), .kind = OPTION_IS_NUMBER, .preset = "0", .most = 100,
     .help = "The same for the contrast."},
    {PLACE(augment, saturation), .kind = OPTION_IS_NUMBER, .preset = "0", .most = 100,
     .help = "The same for the saturation."},
    {PLACE(augment, hue), .kind = OPTION_IS_NUMBER, .preset = "0", .most = 0.5,
     .help = "Hues are turned by up to this part of the colour wheel to either side."},
    {PLACE(augment, greyscale), .kind = OPTION_IS_NUMBER, .preset = "0", .most = 1,
     .help = "Probability that an image becomes grey."},
    {PLACE(augment, mixup), .kind = OPTION_IS_NUMBER, .preset = "0", .most = 100,
     .help = "Blends each two samples that follow each other in a batch, and their targets, in a "
             "proportion drawn from Beta(alpha, alpha). This is alpha; 0: never."},
    {PLACE(augment, cutmix), .kind = OPTION_IS_NUMBER, .preset = "0", .most = 100,
     .help = "Instead exchanges a rectangle between the two; alpha of its area."},
    {PLACE(augment, mix_switch), .kind = OPTION_IS_NUMBER, .preset = "0.5", .most = 1,
     .help = "With mixup and cutmix: how often it is cutmix."},
    {PLACE(augment, resize), .kind = OPTION_IS_INTEGER, .preset = "auto", AUTOMATIC(0),
     .most = 8192,
     .help = "What training images are resized to first (see resize_to). auto: the model's size."},
    {PLACE(augment, resize_to), CHOICES(RESIZE_CHOICES), .preset = "square",
     .help = "What augment.resize is: height and width, or the shorter side, the longer one in "
             "proportion."},
    {PLACE(augment, crop), CHOICES(CROP_CHOICES), .preset = "none",
     .help = "What of the resized image is taken: all, or a square of the model's size from its "
             "middle or from anywhere, there after padding with augment.crop_pad."},
    {PLACE(augment, random_resized_crop), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help =
         "In place of resize and crop: a part of random size and shape (crop_scale, crop_ratio) "
         "from anywhere in the image, resized to the model's size."},
    {PLACE(augment, crop_scale), .kind = OPTION_IS_LIST, .preset = "0.08,1", .most = 1,
     .above_least = true, .least_count = 2, .most_count = 2,
     .help = "Least and largest share of the image that the random part covers."},
    {PLACE(augment, crop_ratio), .kind = OPTION_IS_LIST, .preset = "0.75,1.3333333333333333",
     .most = 1000, .above_least = true, .least_count = 2, .most_count = 2,
     .help = "Least and largest ratio of its width to its height."},
    {PLACE(augment, mean), .kind = OPTION_IS_LIST, .preset = "auto", AUTOMATIC(0),
     .least = -INFINITY, .most = INFINITY, .least_count = 1, .most_count = 4,
     .help = "Normalisation, for each channel or one for all: (value / 255 - mean) / std. auto: "
             "the model's."},
    {PLACE(augment, std), .kind = OPTION_IS_LIST, .preset = "auto", AUTOMATIC(0), .most = INFINITY,
     .above_least = true, .least_count = 1, .most_count = 4, .help = "See augment.mean."},

    {PLACE(eval, resize), .kind = OPTION_IS_INTEGER, .preset = "auto", AUTOMATIC(0), .most = 8192,
     .help = "What images are resized to first in evaluation. auto: as augment.resize has it, with "
             "random_resized_crop the model's size."},
    {PLACE(eval, resize_to), CHOICES(RESIZE_OR_AUTO_CHOICES), .preset = "auto",
     .help = "What eval.resize is. auto: as augment.resize_to has it."},
    {PLACE(eval, crop), CHOICES(CROP_OR_AUTO_CHOICES), .preset = "auto",
     .help = "What of the resized image is taken. auto: as augment.crop has it, center in place of "
             "random. random makes evaluations depend on run.seed."},
    {PLACE(eval, crop_pad), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 4096,
     .help = "eval.crop=random: so many zeros are put on each side first."},

    {PLACE(train, epochs), .kind = OPTION_IS_INTEGER, .preset = "10", .most = 1e6,
     .help = "How often the training data is gone through."},
    {PLACE(train, steps), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 1e15,
     .help =
         "Updates after which the run ends, whatever train.epochs says. 0: train.epochs counts."},
    {PLACE(train, batch), .kind = OPTION_IS_INTEGER, .preset = "64", .least = 1, .most = BATCH_MOST,
     .help = "Samples of a rank in a step."},
    {PLACE(train, global_batch), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 1e9,
     .help = "Samples of all ranks together in a step; 0: train.batch times the ranks. The same "
             "losses on any number of ranks need the same value here."},
    {PLACE(train, accumulate), .kind = OPTION_IS_INTEGER, .preset = "1", .least = 1, .most = 65536,
     .help = "Pieces that a rank's batch is cut into, to save memory; the result is the same."},
    {PLACE(train, precision), CHOICES(PRECISION_CHOICES), .preset = "auto",
     .help = "Type of weights and activations in products; sums and updates are always fp32. auto: "
             "bf16 where the hardware multiplies it, else fp16 where it does, else fp32. fp16 on a "
             "CPU is for tests: it is multiplied in fp32."},
    {PLACE(train, loss_scale), .kind = OPTION_IS_NUMBER, .preset = "65536", .least = 1,
     .most = 1099511627776.0,
     .help = "fp16: what the loss is multiplied by at the start, a power of two. It is halved when "
             "gradients overflow, which skips the update, and doubled after 2,000 updates in a row "
             "that did not."},
    {PLACE(train, checkpoint_activations), CHOICES(CHECKPOINT_ACTIVATIONS_CHOICES),
     .preset = "none",
     .help = "block: of a block only the output is kept for the backward pass, which computes the "
             "rest anew: less memory, about a quarter more time, the same result."},
    {PLACE(train, clip_norm), .kind = OPTION_IS_NUMBER, .preset = "0", .most = INFINITY,
     .help = "The gradient's norm is cut to this. 0: it is not."},
    {PLACE(train, label_smoothing), .kind = OPTION_IS_NUMBER, .preset = "0", .most = 1,
     .below_most = true, .help = "Share of the target that is spread over all classes."},
    {PLACE(train, eval_every), .kind = OPTION_IS_INTEGER, .preset = "1", .most = 1e6,
     .help = "Epochs between evaluations; 0: only at the end."},
    {PLACE(train, max_seconds), .kind = OPTION_IS_SECONDS, .preset = "0", .most = 1e9,
     .help = "The run stops, with a checkpoint, so long after it was started; the next start goes "
             "on with it. 0: no limit."},
    {PLACE(train, early_stop), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 1e6,
     .help = "The run stops after so many evaluations without a better value of "
             "checkpoint.monitor; 0: it does not."},
    {PLACE(train, test), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "When all steps are done, evaluate the test split once, with the best weights by "
             "checkpoint.monitor where a checkpoint has them, else the last."},

    {PLACE(optim, name), CHOICES(OPTIMIZER_CHOICES), .preset = "adamw",
     .help = "The optimizer, with PyTorch's rules and defaults."},
    {PLACE(optim, lr), .kind = OPTION_IS_NUMBER, .preset = "0.0003", .most = INFINITY,
     .help = "Learning rate."},
    {PLACE(optim, lr_scale), CHOICES(RATE_SCALE_CHOICES), .preset = "none",
     .help = "How the learning rate grows with the global batch, from the one it is meant for "
             "(optim.lr_batch)."},
    {PLACE(optim, lr_batch), .kind = OPTION_IS_INTEGER, .preset = "64", .least = 1, .most = 1e9,
     .help = "The global batch that optim.lr is meant for."},
    {PLACE(optim, weight_decay), .kind = OPTION_IS_NUMBER, .preset = "0.0001", .most = INFINITY,
     .help = "Weight decay; decoupled in adamw, part of the gradient elsewhere."},
    {PLACE(optim, no_decay), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "No weight decay on norms, biases, positions and class token."},
    {PLACE(optim, layer_decay), .kind = OPTION_IS_NUMBER, .preset = "1", .most = 1,
     .above_least = true,
     .help = "Each unit's learning rate is this times that of the unit above it."},
    {PLACE(optim, freeze), .kind = OPTION_IS_TEXT, .preset = "",
     .help = "Units, or beginnings of tensors' names, that are not trained, separated by commas: "
             "stem,blocks.0."},
    {PLACE(optim, ema), .kind = OPTION_IS_NUMBER, .preset = "0", .most = 1, .below_most = true,
     .help = "Decay of a moving average of the weights, which is then evaluated and saved too; 0: "
             "none."},
    {PLACE(optim, momentum), .kind = OPTION_IS_NUMBER, .preset = "0", .most = 1, .below_most = true,
     .help = "Momentum of sgd and rmsprop."},
    {PLACE(optim, nesterov), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "Nesterov's momentum (sgd)."},
    {PLACE(optim, betas), .kind = OPTION_IS_LIST, .preset = "0.9,0.999", .most = 1,
     .below_most = true, .least_count = 2, .most_count = 2,
     .help = "Decay of the two moments of adam and adamw."},
    {PLACE(optim, eps), .kind = OPTION_IS_NUMBER, .preset = "1e-08", .most = INFINITY,
     .help = "Added to the divisor of adam, adamw and rmsprop."},
    {PLACE(optim, alpha), .kind = OPTION_IS_NUMBER, .preset = "0.99", .most = 1, .below_most = true,
     .help = "Smoothing of rmsprop."},

    {PLACE(schedule, name), CHOICES(SCHEDULE_CHOICES), .preset = "constant",
     .help = "How the learning rate moves."},
    {PLACE(schedule, per), CHOICES(SCHEDULE_PER_CHOICES), .preset = "step",
     .help =
         "Whether it moves at each step or at each epoch, and what warmup and step_size count."},
    {PLACE(schedule, warmup), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 1e12,
     .help = "Steps or epochs of linear warm-up before the schedule begins."},
    {PLACE(schedule, min_lr), .kind = OPTION_IS_NUMBER, .preset = "0", .most = INFINITY,
     .help = "cosine ends here, plateau does not go below."},
    {PLACE(schedule, step_size), .kind = OPTION_IS_INTEGER, .preset = "30", .least = 1,
     .most = 1e12, .help = "step: steps or epochs between two reductions."},
    {PLACE(schedule, gamma), .kind = OPTION_IS_NUMBER, .preset = "0.1", .most = INFINITY,
     .help = "step: factor of a reduction."},
    {PLACE(schedule, pct_start), .kind = OPTION_IS_NUMBER, .preset = "0.3", .most = 1,
     .help = "onecycle: share of the run in which the rate rises."},
    {PLACE(schedule, div_factor), .kind = OPTION_IS_NUMBER, .preset = "25", .most = INFINITY,
     .above_least = true, .help = "onecycle: optim.lr over the first rate."},
    {PLACE(schedule, final_div_factor), .kind = OPTION_IS_NUMBER, .preset = "10000",
     .most = INFINITY, .above_least = true, .help = "onecycle: the first rate over the last."},
    {PLACE(schedule, factor), .kind = OPTION_IS_NUMBER, .preset = "0.1", .most = 1,
     .above_least = true, .below_most = true, .help = "plateau: factor of a reduction."},
    {PLACE(schedule, threshold), .kind = OPTION_IS_NUMBER, .preset = "0.0001", .most = INFINITY,
     .help = "plateau: relative change that counts as better."},
    {PLACE(schedule, patience), .kind = OPTION_IS_INTEGER, .preset = "10", .most = 1e6,
     .help = "plateau: evaluations that may pass without a better value."},
    {PLACE(schedule, end_factor), .kind = OPTION_IS_NUMBER, .preset = "0", .most = INFINITY,
     .help = "linear: factor of the rate at the end."},

    {PLACE(mesh, strategy), CHOICES(STRATEGY_CHOICES), .preset = "ddp",
     .help = "How ranks share the work. ddp: each has the whole model, gradients are added; zero1: "
             "each updates a part of it; zero2: and keeps only that part's gradients; fsdp: and "
             "only that part's weights; hsdp: fsdp inside each node, ddp between them."},
    {PLACE(mesh, shard), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 1e6,
     .help = "How many ranks hold one copy of the model together; 0: all, with hsdp those of a "
             "node."},
    {PLACE(mesh, reduce), CHOICES(REDUCE_CHOICES), .preset = "fp32",
     .help = "Type in which gradients are added up over ranks; compute: that of train.precision."},
    {PLACE(mesh, transport), CHOICES(TRANSPORT_CHOICES), .preset = "auto",
     .help = "How ranks exchange large data. ring: messages from rank to rank. shared: memory that "
             "the ranks of a node share. hierarchical: inside each node first, then between nodes. "
             "auto: for each group of ranks the fastest that its layout allows; the log says "
             "which."},
    {PLACE(mesh, elastic), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help =
         "A run that goes on on another number of ranks keeps its global batch, although "
         "train.batch is that of a rank: it is the checkpoint's. Where a rank gets more samples "
         "than that it computes them in pieces."},
    {PLACE(mesh, timeout), .kind = OPTION_IS_SECONDS, .preset = "10m", .most = 1e9,
     .help = "A collective that takes longer ends the job and names the ranks that are missing; 0: "
             "wait for ever."},
    {PLACE(mesh, heartbeat_timeout), .kind = OPTION_IS_SECONDS, .preset = "20", .most = 1e9,
     .help = "A rank that gives no sign of life for so long (its machine is off, its cable out, "
             "its process stopped) ends the job and is named; 0: never, as for debuggers."},

    {PLACE(checkpoint, every), .kind = OPTION_IS_NUMBER, .preset = "1", .most = 1e6,
     .help = "Epochs between checkpoints, parts of an epoch too (0.5); 0: only at the end."},
    {PLACE(checkpoint, every_seconds), .kind = OPTION_IS_SECONDS, .preset = "0", .most = 1e9,
     .help = "Also a checkpoint whenever so much time has passed since the last one; 0: no."},
    {PLACE(checkpoint, keep), .kind = OPTION_IS_INTEGER, .preset = "3", .least = 1, .most = 1e6,
     .help = "How many of the newest checkpoints are kept, besides the best."},
    {PLACE(checkpoint, resume), .kind = OPTION_IS_TEXT, .preset = "auto",
     .help = "auto: the newest good checkpoint of the run's folder, or of the newest unfinished "
             "run of this name and deck; never; a checkpoint's FILE, also on a remote "
             "(s3://BUCKET/FILE.h5 or REMOTE:FILE.h5); or the remote path of a run that "
             "output.upload has sent: its newest valid checkpoint, unless the run's folder has a "
             "newer one."},
    {PLACE(checkpoint, monitor), CHOICES(MONITOR_CHOICES), .preset = "top1",
     .help = "The value of an evaluation that tells which checkpoint is the best."},
    {PLACE(checkpoint, writers), CHOICES(WRITERS_CHOICES), .preset = "auto",
     .help = "Who writes: all ranks into one file on a shared disk, or the first node for all, "
             "where nodes have private disks. auto finds out."},
    {PLACE(checkpoint, background), CHOICES(BACKGROUND_CHOICES), .preset = "auto",
     .help = "Are checkpoints written while the next steps run? It takes host memory for a copy of "
             "what a rank writes. auto: with a GPU. Where nodes have private disks: never."},

    {PLACE(output, style), CHOICES(STYLE_CHOICES), .preset = "vittrain",
     .help = "Whose lines the console and train.log have while the run goes, and whose tags "
             "TensorBoard, for scripts that read them (docs/outputs.md): this program's; those of "
             "a course's CNNs and ViT on CIFAR-10, with its result file and plots; of PyTorch's "
             "ImageNet example; of Lightning; of PyTorch's torchrun tutorial."},
    {PLACE(output, log_every), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 1e9,
     .help = "Steps between two rows of metrics.csv, and lines of output.style. 0: as the style "
             "has it: vittrain and torchrun 10, imagenet and lightning 50, course 512, of a ViT "
             "100."},
    {PLACE(output, monitor), .kind = OPTION_IS_SECONDS, .preset = "10s", .most = 300,
     .help = "Seconds between two readings of the sensors (load, memory, clocks, temperature, "
             "power): rows of monitor.csv, points in TensorBoard, a summary at the end. At least "
             "0.1; 0: none."},
    {PLACE(output, tensorboard), .kind = OPTION_IS_SWITCH, .preset = "on",
     .help = "Events for TensorBoard."},
    {PLACE(output, csv), .kind = OPTION_IS_SWITCH, .preset = "on",
     .help = "metrics.csv, epochs.csv, units.csv, ranks.csv and monitor.csv."},
    {PLACE(output, logbook), .kind = OPTION_IS_TEXT, .preset = "runs/logbook",
     .help = "Folder of the log book, which gets a page and a row of its index when a run ends. "
             "Empty: none."},
    {PLACE(output, target), .kind = OPTION_IS_NUMBER, .preset = "0", .most = 1,
     .help = "A top-1 accuracy from 0 to 1: log book and result.json tell how long the run took to "
             "reach it in an evaluation. 0: none."},
    {PLACE(output, prometheus), .kind = OPTION_IS_TEXT, .preset = "",
     .help =
         "FILE.prom in the folder of a node exporter's textfile collector: step, loss, speed and "
         "sensors, replaced every output.monitor seconds by rank 0, removed at the end. %h "
         "in the name stands for the host: then each node's first rank writes its own."},
    {PLACE(output, weights), .kind = OPTION_IS_SWITCH, .preset = "on",
     .help = "The final weights as safetensors."},
    {PLACE(output, upload), .kind = OPTION_IS_TEXT, .preset = "",
     .help = "s3://BUCKET/PATH, or REMOTE:PATH with a remote of rclone: the run's last and best "
             "checkpoint, log, tables, events, result and weights are sent there during the run "
             "(docs/store.md). A path that ends in / or : is completed with the name of the run's "
             "folder. Empty: nothing is sent."},
    {PLACE(output, upload_every), .kind = OPTION_IS_SECONDS, .preset = "1m", .most = 1e9,
     .help = "Time between two uploads of a log, table or event file that grows. Checkpoints are "
             "sent when they are written."},
    {PLACE(output, upload_wait), .kind = OPTION_IS_SECONDS, .preset = "1m", .most = 1e9,
     .help = "Maximum time that the end of the run waits for uploads; then the missing files are "
             "listed. 0: no waiting."},
    {PLACE(output, upload_rate), .kind = OPTION_IS_BYTES, .preset = "0", .most = LARGEST,
     .help = "Bandwidth limit of uploads in bytes per second; 0: none."},

    {PLACE(debug, batches), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 1e12,
     .help = "Only so many batches of each epoch and of each evaluation; 0: all."},
    {PLACE(debug, fraction), .kind = OPTION_IS_NUMBER, .preset = "1", .most = 1,
     .above_least = true, .help = "Only this share of the data."},
    {PLACE(debug, overfit), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 1e9,
     .help = "Train on the first so many batches again and again; 0: on all."},
    {PLACE(debug, profile), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "Time of each unit and operation, printed at the end."},
    {PLACE(debug, capture), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 1e12,
     .help =
         "The step that an outer profiler records which waits for cudaProfilerStart, such as ncu "
         "--profile-from-start off; 0: none. cuda.graph=off shows it each kernel."},
    {PLACE(debug, check_weights), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 1e12,
     .help = "Every so many steps, check that all ranks hold the same weights; 0: never."},
    {PLACE(debug, wait), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "Wait for the GPU in each step: a value that is not finite is then found where it "
             "begins, and times are those of the step that they stand for."},
    {PLACE(debug, pause), .kind = OPTION_IS_TEXT, .preset = "none",
     .help =
         "PHASE:STEP:SECONDS, as backward:20:60: each rank waits there, once, and says so, to be "
         "looked at by a debugger or to be killed. Phases: data_open, model_open, memory, "
         "folder, weights_read (step 0), data, forward, backward, reduce, update, evaluation, "
         "checkpoint_write, checkpoint_name, weights_write, results, end."},

    {PLACE(cuda, graph), .kind = OPTION_IS_SWITCH, .preset = "on",
     .help = "Record a step as a CUDA graph and run that again: small models are faster. Not with "
             "train.accumulate or debug.profile."},
    {PLACE(cuda, tf32), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "Matrix products and convolutions of fp32 on GPUs round their operands to TF32's 10 "
             "bits: some times faster."},
    {PLACE(cuda, cache), .kind = OPTION_IS_TEXT, .preset = "auto",
     .help = "Folder where the fastest algorithms of a GPU's matrix products are remembered. auto: "
             "~/.cache/vittrain; none: they are measured in each run. A resumed run takes those in "
             "its checkpoint."},
    {PLACE(cuda, share), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "Several ranks may compute on one GPU: for tests, it is slower."},

    {PLACE(fetch, url), .kind = OPTION_IS_TEXT, .preset = "",
     .help = "Mirror to download from. Empty: the official home."},
    {PLACE(fetch, dir), .kind = OPTION_IS_TEXT, .preset = "data",
     .help = "Folder to download into."},

    {PLACE(predict, split), .kind = OPTION_IS_TEXT, .preset = "test",
     .help = "The split to predict: train, val or test."},
    {PLACE(predict, output), .kind = OPTION_IS_TEXT, .preset = "-",
     .help = "The file for the predictions, .csv or .json; -: standard output, as CSV."},

    {PLACE(convert, average), .kind = OPTION_IS_SWITCH, .preset = "on",
     .help = "Of a checkpoint with a moving average of the weights take that, as a run's own "
             "weights.safetensors do; off: the weights themselves."},

    {PLACE(convert, output), .kind = OPTION_IS_TEXT, .preset = "",
     .help = "convert data: the file to make, .h5."},
    {PLACE(convert, kind), CHOICES(KIND_CHOICES), .preset = "auto",
     .help = "convert data: what is stored of a record, its JPEG or PNG file as it is (encoded) or "
             "its pixels (decoded). auto: the file, where there is one and convert.size is 0."},
    {PLACE(convert, size), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 8192,
     .help = "convert data: height and width of stored pixels. 0: as they are."},
    {PLACE(convert, resize_to), CHOICES(RESIZE_CHOICES), .preset = "shorter",
     .help = "convert data: how images get there. square: resized to it; shorter: the shorter side "
             "is, and the middle taken."},
    {PLACE(convert, file_size), .kind = OPTION_IS_BYTES, .preset = "0", .most = LARGEST,
     .help = "convert data: several files, each with so much of images at most. 0: one file."},
    {PLACE(convert, shuffle), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "convert data: training records are stored in a random order, for "
             "data.shuffle_block. Off: in the order of the source, and training with them is the "
             "same as with it."},

    {PLACE(bench, collective), CHOICES(COLLECTIVE_CHOICES), .preset = "all",
     .help = "Which collective is measured."},
    {PLACE(bench, min), .kind = OPTION_IS_BYTES, .preset = "8", .least = 4, .most = 0x1p40,
     .help = "The smallest buffer."},
    {PLACE(bench, max), .kind = OPTION_IS_BYTES, .preset = "256MiB", .least = 4, .most = 0x1p40,
     .help = "The largest buffer."},
    {PLACE(bench, factor), .kind = OPTION_IS_INTEGER, .preset = "8", .least = 2, .most = 1e6,
     .help = "From one size to the next."},
    {PLACE(bench, seconds), .kind = OPTION_IS_SECONDS, .preset = "0.3", .most = 1e6,
     .help =
         "How long each transport is measured for each collective and size (at least 5 times)."},
    {PLACE(bench, overlap), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help =
         "Also measure how much of a collective is hidden when the rank computes for as long as "
         "it takes."},
    {PLACE(bench, output), .kind = OPTION_IS_TEXT, .preset = "",
     .help = "A CSV file that the results are added to, in the columns of benchmarks/README.md. "
             "Empty: none."},
    {PLACE(bench, machine), .kind = OPTION_IS_TEXT, .preset = "machine.ini",
     .help = "bench machine: the file to write, for plan.machine."},
    {PLACE(bench, quick), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "bench machine: one size of each operation, once: seconds, to try it out."},

    {PLACE(plan, ranks), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 1e6,
     .help = "How many ranks to plan for; 0: as many as were started."},
    {PLACE(plan, node_ranks), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 1e6,
     .help = "How many of them are on a node; 0: as they were started, or all on one."},
    {PLACE(plan, memory), .kind = OPTION_IS_BYTES, .preset = "0", .most = LARGEST,
     .help =
         "Memory that a rank may use. plan says which batch fits into it, find batch tries, and "
         "train does not start with more; 0: what its GPU or node has free, less a reserve of 5 "
         "%."},
    {PLACE(plan, machine), .kind = OPTION_IS_TEXT, .preset = "auto",
     .help = "What `vittrain bench machine` has measured, by which plan says how long a step will "
             "take. auto: machine.ini of the working directory, if it is there; none: no times."},
    {PLACE(plan, cluster), .kind = OPTION_IS_TEXT, .preset = "",
     .help = "A file that describes a cluster (input/clusters/*.ini, or what bench machine wrote): "
             "plan says what this run would do on 1 to 4096 ranks of it. Empty: none."},
    {PLACE(plan, scaling), CHOICES(SCALING_CHOICES), .preset = "weak",
     .help = "With plan.cluster: weak keeps each rank's batch as ranks become more, strong the "
             "batch of all ranks together."},
    {PLACE(plan, operations), .kind = OPTION_IS_TEXT, .preset = "",
     .help = "A CSV file that gets the kernels of one training step, each with its floating-point "
             "operations and the fewest bytes that it moves (benchmarks/README.md). Empty: none."},

    {PLACE(find, first), .kind = OPTION_IS_NUMBER, .preset = "1e-08", .most = INFINITY,
     .above_least = true, .help = "find lr: the first learning rate."},
    {PLACE(find, last), .kind = OPTION_IS_NUMBER, .preset = "10", .most = INFINITY,
     .above_least = true,
     .help = "find lr: the last learning rate; from one step to the next it grows by the same "
             "factor."},
    {PLACE(find, steps), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 1e9,
     .help = "find lr: steps from the first rate to the last; 0: as many as an epoch has."},
    {PLACE(find, beta), .kind = OPTION_IS_NUMBER, .preset = "0.98", .most = 1, .below_most = true,
     .help = "find lr: share of the average so far when the losses are smoothed. 0: they are not."},
    {PLACE(find, stop), .kind = OPTION_IS_NUMBER, .preset = "4", .most = INFINITY,
     .help = "find lr: it ends where the smoothed loss is more than this times the lowest; 0: only "
             "at the last rate, or at NaN."},
    {PLACE(find, output), .kind = OPTION_IS_TEXT, .preset = "find_lr",
     .help = "find lr: what the names of its files begin with: the curve as .csv, .svg and .png. "
             "Empty: it leaves no files."},

    {PLACE(report, output), .kind = OPTION_IS_TEXT, .preset = "",
     .help =
         "The HTML file that report writes. Empty: RUN/report.html, of several runs report.html "
         "in the working directory."},
    {PLACE(report, csv), .kind = OPTION_IS_TEXT, .preset = "",
     .help = "A CSV file for the summary, a row a run. Empty: none."},
    {PLACE(report, result_file), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "Also the result file and the plots of output.style=course (docs/outputs.md), into "
             "each run's folder."},

    {PLACE(sweep, method), CHOICES(SWEEP_CHOICES), .preset = "grid",
     .help = "How a sweep chooses its trials. grid: all combinations; random; tpe: where earlier "
             "trials were good, after 10 random ones."},
    {PLACE(sweep, trials), .kind = OPTION_IS_INTEGER, .preset = "20", .least = 1, .most = 100000,
     .help = "Trials of a sweep by random or tpe."},
    {PLACE(sweep, seed), .kind = OPTION_IS_INTEGER, .preset = "42", .most = LARGEST,
     .help = "What random and tpe draw from. All trials train with run.seed."},
    {PLACE(sweep, dir), .kind = OPTION_IS_TEXT, .preset = "",
     .help = "The sweep's folder. Empty: sweeps/NAME-DATE in the working directory, NAME being "
             "run.name; a sweep that was cut off is gone on with by the same command."},
    {PLACE(sweep, slurm), .kind = OPTION_IS_TEXT, .preset = "",
     .help = "A job script such as jobs/ddp_1node.sh: sbatch starts it as an array of sweep.tasks "
             "jobs, which take trials one after another. Empty: trials run here."},
    {PLACE(sweep, tasks), .kind = OPTION_IS_INTEGER, .preset = "4", .least = 1, .most = 10000,
     .help = "Jobs of a sweep by Slurm at a time."},
    {.name = NULL},
};

static const struct {
    const char *name, *help;
    bool of_command; /* of a command other than train */
} sections[] = {
    {"run", "name, folder and seed of the run", false},
    {"model", "architecture and initial weights", false},
    {"data", "data set and data loading", false},
    {"augment", "augmentation and normalization of training images", false},
    {"eval", "resizing and cropping of images in evaluation", false},
    {"train", "length of training, batch size, precision", false},
    {"optim", "optimizer", false},
    {"schedule", "learning-rate schedule", false},
    {"mesh", "parallel strategy and communication between ranks", false},
    {"checkpoint", "saving and resuming", false},
    {"output", "log, tables, TensorBoard events and upload", false},
    {"debug", "smaller runs, checks and profiling", false},
    {"cuda", "NVIDIA GPUs", false},
    {"fetch", "downloads", true},
    {"predict", "predictions", true},
    {"convert", "conversion of weights, checkpoints and data sets", true},
    {"bench", "benchmarks", true},
    {"report", "reports of runs", true},
    {"plan", "memory and time of a planned run", true},
    {"find", "learning-rate range test", true},
    {"sweep", "hyperparameter search", true},
};

static size_t section_find(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++)
        if (strlen(sections[i].name) == length && strncmp(sections[i].name, name, length) == 0)
            return i;
    error_abort(__FILE__, __LINE__, "no section %.*s", (int)length, name);
}

const char *option_section_help(const char *section)
{
    return sections[section_find(section, strlen(section))].help;
}

bool option_is_of_run(const struct option_entry *entry)
{
    /* Training, too, stays below plan.memory. */
    return !sections[section_find(entry->name, strcspn(entry->name, "."))].of_command ||
           strcmp(entry->name, "plan.memory") == 0;
}

static const struct option_alias aliases[] = {
    {"mesh.silence", "mesh.heartbeat_timeout"},
    {NULL, NULL},
};
const struct option_alias *option_aliases = aliases;

#define PHASE_ROW(constant, word, name) [constant] = {word, name},
const struct status_phase phase_table[PHASE_COUNT] = {PHASES(PHASE_ROW)};
