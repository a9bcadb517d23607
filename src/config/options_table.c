// SPDX-License-Identifier: BSD-3-Clause
/* The program's options, and the phases of a run. */
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

/* 2^53: every whole number up to this one is a double. */
#define LARGEST 9007199254740992.0

const struct option_entry option_table[] = {
    {PLACE(run, name), .kind = OPTION_IS_TEXT, .preset = "vittrain", .flags = "experiment exp-name",
     .help = "Name of the run, the prefix of its folder: runs/NAME-DATE."},
    {PLACE(run, tags), .kind = OPTION_IS_TEXT, .preset = "",
     .help = "Comma-separated tags of the run, for reports and the log book: baseline,photos. Also "
             "written to result.json."},
    {PLACE(run, dir), .kind = OPTION_IS_TEXT, .preset = "",
     .flags = "o output output-dir out-dir save-dir log-dir logdir checkpoint-dir model-folder",
     .help = "Folder of the run. Empty: runs/NAME-DATE in the working directory."},
    {PLACE(run, seed), .kind = OPTION_IS_INTEGER, .preset = "42", .most = LARGEST,
     .help = "Seed of all random numbers: initial weights, order of the samples, augmentation, "
             "dropout."},
    {PLACE(run, backend), CHOICES(BACKEND_CHOICES), .preset = "auto",
     .flags = "accelerator=cuda device=cuda gpu=cuda cuda=cuda no-cuda=cpu cpu=cpu",
     .help = "Device to compute on. cuda: NVIDIA GPUs, one per rank. auto: a GPU if the program "
             "finds a usable one (the log gives the reason if not), else the CPU."},
    {PLACE(run, threads), .kind = OPTION_IS_INTEGER, .preset = "auto", AUTOMATIC(0), .most = 4096,
     .help = "Threads per rank. auto: the rank's share of the node's cores."},

    {PLACE(model, name), .kind = OPTION_IS_TEXT, .preset = "vit_cifar",
     .flags = "a arch model net backbone",
     .help =
         "Architecture; vittrain --list-models lists all names. vit_cifar, timm's "
         "vit_{tiny,small,base,large,huge}_*, deit3_*, vit_*_dinov{2,3}, vit_*_siglip_*, cnn_a, "
         "cnn_a_lenet, cnn_b (ResNet-18 for images of 32 pixels), cnn_c, "
         "resnet{18,34,50,101,152}, linear (linear regression on numbers)."},
    {PLACE(model, init), .kind = OPTION_IS_TEXT, .preset = "none",
     .flags = "pretrained=FILE.safetensors initial-checkpoint=FILE.safetensors "
              "finetune=FILE.safetensors",
     .help = "Source of the initial weights: none (random), a FILE.safetensors, a checkpoint of a "
             "model of the same shape, or a run folder (its best weights), also on a remote "
             "(docs/store.md). With safetensors, a head of another size is initialized at random "
             "and position embeddings are resized to the model's grid."},
    {PLACE(model, image), .kind = OPTION_IS_INTEGER, .preset = "auto", AUTOMATIC(0),
     .most = IMAGE_LARGEST, .flags = "img-size image-size input-size",
     .help = "Height of the model's input images in pixels, and their width unless "
             "model.image_width is set. auto, here and below: the value of the architecture."},
    {PLACE(model, image_width), .kind = OPTION_IS_INTEGER, .preset = "auto", AUTOMATIC(0),
     .most = IMAGE_LARGEST, .help = "Width of images that are not square. auto: model.image."},
    {PLACE(model, channels), .kind = OPTION_IS_INTEGER, .preset = "auto", AUTOMATIC(0),
     .most = IMAGE_CHANNELS,
     .help = "Channels of an input image; float32 data: auto is their number. Image files always "
             "have 3."},
    {PLACE(model, patch), .kind = OPTION_IS_INTEGER, .preset = "auto", AUTOMATIC(0), .most = 16384,
     .help = "Side of a patch in pixels; must divide the height and width of the images."},
    {PLACE(model, dim), .kind = OPTION_IS_INTEGER, .preset = "auto", AUTOMATIC(0), .most = 65536,
     .help = "Embedding dimension; model.heads must divide it."},
    {PLACE(model, depth), .kind = OPTION_IS_INTEGER, .preset = "auto", AUTOMATIC(0), .most = 1000,
     .help = "Number of transformer blocks."},
    {PLACE(model, heads), .kind = OPTION_IS_INTEGER, .preset = "auto", AUTOMATIC(0), .most = 1024,
     .help = "Number of attention heads."},
    {PLACE(model, classes), .kind = OPTION_IS_INTEGER, .preset = "auto", AUTOMATIC(0),
     .most = CLASSES_MOST, .flags = "num-classes", .help = "Number of classes."},
    {PLACE(model, mlp_ratio), .kind = OPTION_IS_NUMBER, .preset = "auto", AUTOMATIC(0), .most = 64,
     .help = "Hidden dimension of the MLP divided by the embedding dimension."},
    {PLACE(model, dropout), .kind = OPTION_IS_NUMBER, .preset = "auto", AUTOMATIC(-1), .most = 1,
     .below_most = true, .flags = "drop", .help = "Dropout probability."},
    {PLACE(model, drop_path), .kind = OPTION_IS_NUMBER, .preset = "auto", AUTOMATIC(-1), .most = 1,
     .below_most = true,
     .help =
         "Stochastic depth rate of the last block; it increases linearly from 0 at the first "
         "block. vit_cifar: rate of an element-wise dropout after both branches of each block."},
    {PLACE(model, qkv_bias), CHOICES(SWITCH_CHOICES), .preset = "auto",
     .help = "Bias in the projection to queries, keys and values."},
    {PLACE(model, qk_norm), CHOICES(SWITCH_CHOICES), .preset = "auto",
     .help = "Layer norm of the queries and keys of each head."},
    {PLACE(model, class_token), CHOICES(SWITCH_CHOICES), .preset = "auto",
     .help = "Class token before the patches."},
    {PLACE(model, registers), .kind = OPTION_IS_INTEGER, .preset = "auto", AUTOMATIC(-1),
     .most = 1024,
     .help = "Number of register tokens between the class token and the patches: learned tokens "
             "that the head does not read (Darcet et al. 2024)."},
    {PLACE(model, position), CHOICES(POSITION_CHOICES), .preset = "auto",
     .help = "Position embeddings. learned: of all tokens. patches: learned, of the patches only "
             "(timm's no_embed_class). sincos: of the patches, two-dimensional sines and cosines "
             "that are not trained (big_vision's sincos2d); model.dim must be a multiple of 4, "
             "at least 8. rotary: no embeddings; the queries and keys of patches are rotated in "
             "each block (DINOv3). Tensors then have the names of timm's Eva."},
    {PLACE(model, embed_norm), CHOICES(SWITCH_CHOICES), .preset = "auto",
     .help = "Layer norm after the patch embedding."},
    {PLACE(model, head), CHOICES(HEAD_CHOICES), .preset = "class",
     .help = "Outputs. class: one per class and image. dense: one per class and pixel "
             "(docs/train.md)."},
    {PLACE(model, pool), CHOICES(POOL_CHOICES), .preset = "auto",
     .help = "Input of the head. token: the class token. mean: the mean of the patches. map: the "
             "output of attention with one learned query, followed by an MLP (SigLIP)."},
    {PLACE(model, fc_norm), CHOICES(SWITCH_CHOICES), .preset = "auto",
     .help = "Last layer norm with model.pool=mean. on: of the mean. off: of tokens, before it."},
    {PLACE(model, layer_scale), .kind = OPTION_IS_NUMBER, .preset = "auto", AUTOMATIC(-1),
     .most = 1,
     .help = "Initial value of LayerScale: learned factors of the output of each branch, one per "
             "dimension (Touvron et al. 2021). 0: no LayerScale."},
    {PLACE(model, mlp), CHOICES(MLP_CHOICES), .preset = "auto",
     .help = "MLP of the blocks: fc2(gelu(fc1(x))), or fc2(silu(a) * b) with the halves a and b of "
             "fc1(x) (SwiGLU, as in DINOv2's giant model)."},
    {PLACE(model, gelu), CHOICES(GELU_CHOICES), .preset = "auto",
     .help = "GELU in the MLP. exact: with erf. tanh: the tanh approximation."},
    {PLACE(model, width), .kind = OPTION_IS_INTEGER, .preset = "auto", AUTOMATIC(0), .most = 4096,
     .help =
         "ResNets, cnn_b, cnn_c: channels of the first stage. Each further stage of ResNets and "
         "cnn_b has twice as many; both further stages of cnn_c have four times as many."},
    {PLACE(model, sync_bn), CHOICES(SWITCH_CHOICES), .preset = "auto",
     .help = "Synchronized batch norm. on: statistics over the samples of all ranks (of one "
             "micro-batch with train.accumulate). off: over the samples of each rank, so that "
             "results depend on the number of ranks. auto: on."},

    {PLACE(data, format), .kind = OPTION_IS_TEXT, .preset = "cifar10", .flags = "dataset",
     .help = "Format of the data set: cifar10 (binary version), imagefolder (ROOT/train/CLASS/FILE "
             "and ROOT/val or ROOT/test, or ROOT/CLASS/FILE; JPEG, PNG, WebP), cinic10 (image "
             "folders), webdataset (tar shards), arrays (of HDF5, NetCDF-4, Zarr and .npy files) "
             "or synthetic."},
    {PLACE(data, root), .kind = OPTION_IS_TEXT, .preset = "",
     .flags = "data data-dir data-path data-root root",
     .help = "Folder of the data set, or names of tar shards or files of arrays "
             "with braces and wildcards (`imagenet-train-{000000..000146}.tar`). Empty: the sample "
             "of CIFAR-10 that is installed with the program (2,000 + 500 images)."},
    {PLACE(data, workers), .kind = OPTION_IS_INTEGER, .preset = "1", .least = 1, .most = 256,
     .flags = "j num-workers", .help = "Threads per rank that load batches ahead of the step."},
    {PLACE(data, shuffle), CHOICES(SHUFFLE_CHOICES), .preset = "on",
     .help = "Shuffle the training samples in each epoch. off: the order of the files. chunks: "
             "arrays, by chunks of their files, each of which is decoded about once."},
    {PLACE(data, shuffle_block), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 4294967295.0,
     .help =
         "Tar shards: shuffle blocks of this many samples, then the samples within groups of 16 "
         "blocks, so that disks read long ranges. Works best if the shards hold the samples in "
         "random order. 0: shuffle all samples."},
    {PLACE(data, drop_last), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "Drop the last batch of an epoch if it is incomplete."},
    {PLACE(data, val), CHOICES(VALIDATION_CHOICES), .preset = "test",
     .number_offset = offsetof(struct options, data.val_fraction),
     .number_choice = VALIDATION_FRACTION, .most = 1, .above_least = true, .below_most = true,
     .help = "Data for the evaluations during training. test: the test set. A fraction, for "
             "example 0.1: this part of each class is held out from the training samples; the "
             "choice depends on the files only, not on run.seed. reference: a random "
             "split of all samples into 75 % for training, 8.3 % for evaluation and 16.7 % for "
             "testing, that of PyTorch's random_split with the seed run.seed. none: no "
             "evaluation. val: the data set's validation split. Image folders without a folder "
             "test use the validation split for testing too."},
    {PLACE(data, val_from), CHOICES(VAL_FROM_CHOICES), .preset = "classes",
     .help =
         "Samples that data.val=FRACTION holds out. classes: of each class, at random. end: the "
         "last samples, for series in time."},
    {PLACE(data, samples), .kind = OPTION_IS_INTEGER, .preset = "1024", .least = 1,
     .most = 4294967295.0,
     .help = "Synthetic data: number of training samples; the test set has a quarter as many."},
    {PLACE(data, distinct), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 4294967295.0,
     .help = "Synthetic data: number of different images of each set. They are drawn at the start "
             "and kept in the memory of each rank; the set repeats them, so that loading is one "
             "copy. 0: all images differ and are drawn when they are loaded."},
    {PLACE(data, image), .kind = OPTION_IS_INTEGER, .preset = "32", .least = 1,
     .most = IMAGE_LARGEST, .help = "Synthetic data: height and width in pixels."},
    {PLACE(data, classes), .kind = OPTION_IS_INTEGER, .preset = "10", .least = 1,
     .most = CLASSES_MOST, .help = "Synthetic data: number of classes."},
    {PLACE(data, task), CHOICES(TASK_CHOICES), .preset = "classes",
     .help = "Synthetic data and arrays: the task. labels: a sample has several labels; set by the "
             "program if data.y is [N, K]. regression: predict the numbers of data.y, or 20 (or "
             "model.channels) random ones from 0 to 1."},
    {PLACE(data, x), .kind = OPTION_IS_TEXT, .preset = "",
     .help = "Arrays: path of the data set of the images in each file, [samples, channels, height, "
             "width], [samples, height, width, channels] or [samples, height, width]; or several "
             "separated by commas, whose channels follow one another. u@-1: the sample before."},
    {PLACE(data, y), .kind = OPTION_IS_TEXT, .preset = "",
     .help = "Arrays: path of the data set of the targets: classes 0, 1, ... [samples]; several "
             "labels, 0 or 1, [samples, labels]; classes of pixels [samples, height, width]; or "
             "numbers with data.task=regression (docs/arrays.md). The attribute class_names names "
             "the classes. Several paths: as in data.x. u@+6: the value of u six steps later."},
    {PLACE(data, order), CHOICES(DATA_ORDER_CHOICES), .preset = "auto",
     .help = "Arrays: dimensions of an image. chw: channels, height, width. hwc: height, width, "
             "channels. auto: by the names of the dimensions, else "
             "hwc if the last one is the smallest."},
    {PLACE(data, join), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "Arrays: the files of a split are one series, in the order of their times, so that "
             "u@+6 can be in the next file. off: each file is a series."},
    {PLACE(data, coordinates), CHOICES(COORDINATES_CHOICES), .preset = "check",
     .help = "Arrays: coordinates, units and names of dimensions in the files. check: they must "
             "agree, and u@+6 is six steps of time later. ignore: they are not compared, and u@+6 "
             "is six samples later."},
    {PLACE(data, missing), CHOICES(MISSING_CHOICES), .preset = "fill",
     .help = "Arrays: chunks of a Zarr array whose files do not exist. fill: they have the fill "
             "value, and a warning has their number. error: the run ends."},
    {PLACE(data, transform), .kind = OPTION_IS_TEXT, .preset = "",
     .help = "Arrays: functions that replace variables: log1p:NAME, log10:NAME or sqrt:NAME, "
             "separated by commas. Predictions and metrics are in the units of the data."},
    {PLACE(data, values), CHOICES(VALUES_CHOICES), .preset = "uint8",
     .help = "Synthetic data: type of the values. float32: each channel has its own scale, and one "
             "value of 256 is missing, as in measured data."},
    {PLACE(data, skip_broken), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "Image folders and shards: skip truncated and damaged files, files that are not "
             "images and samples without a label. All images are decoded before training, as with "
             "data.check=full. The log gives their number. off: these files and samples are "
             "errors."},
    {PLACE(data, allow_empty), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "Image folders: accept classes without images. off: an empty class is an error."},
    {PLACE(data, check), CHOICES(CHECK_CHOICES), .preset = "header",
     .help = "Image folders and shards: check of the files before training. none: no check; "
             "header: format and size; full: decode all images."},
    {PLACE(data, truncated), CHOICES(TRUNCATED_CHOICES), .preset = "error",
     .help = "Image files that end early: an error, or accept and use the part that can be "
             "decoded."},
    {PLACE(data, scaled_decode), CHOICES(SWITCH_CHOICES), .preset = "auto",
     .help = "JPEG: decode at 1/2, 1/4 or 1/8 of the size if the result is still at least as large "
             "as needed. Faster, but not bit-identical to PIL's resize. auto: on, but off for "
             "evaluations with augment.recipe=photos."},
    {PLACE(data, exif), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help =
         "Turn image files by their EXIF orientation, as Pillow's ImageOps.exif_transpose does. "
         "off: decode the stored pixels, as torchvision does, and log the number of files with an "
         "orientation."},
    {PLACE(data, max_pixels), .kind = OPTION_IS_INTEGER, .preset = "178956970", .least = 1,
     .most = 2e9,
     .help = "Maximum number of pixels of an image file. Larger images are an error, because a "
             "small file can hold an image larger than memory."},

    {PLACE(augment, recipe), CHOICES(RECIPE_CHOICES), .preset = "auto",
     .help = "Set of values for the options that are auto in this section and in eval. photos: "
             "random resized crop; evaluation of the center after a resize of the shorter side, as "
             "in timm. cifar: rotation, translation and erasing. plain: none of these. auto: "
             "photos for image files and a model of 64 pixels or more, cifar for smaller models, "
             "else plain."},
    {PLACE(augment, flip), .kind = OPTION_IS_NUMBER, .preset = "auto", AUTOMATIC(-1), .most = 1,
     .flags = "hflip",
     .help = "Probability of a horizontal flip. auto: 0.5, but 0 for float32 values. 0, here and "
             "below: never."},
    {PLACE(augment, vflip), .kind = OPTION_IS_NUMBER, .preset = "0", .most = 1, .flags = "vflip",
     .help = "Probability of a vertical flip."},
    {PLACE(augment, rot90), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "Rotate square images by a random multiple of 90 degrees."},
    {PLACE(augment, roll), CHOICES(ROLL_CHOICES), .preset = "none",
     .help = "Shift images along these axes by a random number of pixels, for periodic domains: "
             "pixels that leave the image enter it at the opposite side. xy: along both axes."},
    {PLACE(augment, rotate), .kind = OPTION_IS_NUMBER, .preset = "auto", AUTOMATIC(-1), .most = 180,
     .help = "Rotation by a random angle of up to this many degrees in either direction. auto: 15 "
             "with recipe=cifar, else 0."},
    {PLACE(augment, translate), .kind = OPTION_IS_NUMBER, .preset = "auto", AUTOMATIC(-1),
     .most = 1,
     .help = "Translation by up to this fraction of width and height. auto: 0.1 with "
             "recipe=cifar, else 0."},
    {PLACE(augment, erase), .kind = OPTION_IS_NUMBER, .preset = "auto", AUTOMATIC(-1), .most = 1,
     .flags = "reprob random-erase",
     .help = "Probability of random erasing. auto: 0.5 with recipe=cifar, else 0."},
    {PLACE(augment, erase_scale), .kind = OPTION_IS_LIST, .preset = "0.02,0.2", .most = 1,
     .above_least = true, .least_count = 2, .most_count = 2,
     .help = "Random erasing: minimum and maximum area of the rectangle, as a fraction of the "
             "image."},
    {PLACE(augment, erase_ratio), .kind = OPTION_IS_LIST, .preset = "0.3,3.3", .most = 1000,
     .above_least = true, .least_count = 2, .most_count = 2,
     .help = "Random erasing: minimum and maximum aspect ratio of the rectangle."},
    {PLACE(augment, crop_pad), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 4096,
     .help = "Random crop after padding with this many zeros on each side. The crop has the size "
             "of the image, or that of augment.crop=random."},
    {PLACE(augment, rand_augment), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 16,
     .flags = "ra aa auto-augment",
     .help = "RandAugment: number of operations per image, chosen from 14 geometric and color "
             "operations."},
    {PLACE(augment, rand_magnitude), .kind = OPTION_IS_INTEGER, .preset = "9", .most = 30,
     .help = "RandAugment: magnitude of the operations."},
    {PLACE(augment, brightness), .kind = OPTION_IS_NUMBER, .preset = "0", .most = 100,
     .help = "Color jitter: multiply the brightness by a random factor from 1 - value (at least 0) "
             "to 1 + value. Brightness, contrast, saturation and hue are changed in random order."},
    {PLACE(augment, contrast), .kind = OPTION_IS_NUMBER, .preset = "0", .most = 100,
     .help = "Color jitter: the same for the contrast."},
    {PLACE(augment, saturation), .kind = OPTION_IS_NUMBER, .preset = "0", .most = 100,
     .help = "Color jitter: the same for the saturation."},
    {PLACE(augment, hue), .kind = OPTION_IS_NUMBER, .preset = "0", .most = 0.5,
     .help = "Color jitter: shift the hue by up to this fraction of the color wheel in either "
             "direction."},
    {PLACE(augment, greyscale), .kind = OPTION_IS_NUMBER, .preset = "0", .most = 1,
     .help = "Probability of converting an image to grayscale."},
    {PLACE(augment, three_augment), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "3-Augment of DeiT III, before the color jitter: grayscale, solarization or Gaussian "
             "blur, each for a third of the images."},
    {PLACE(augment, noise), .kind = OPTION_IS_NUMBER, .preset = "0", .most = 100,
     .help = "Float32 values: standard deviation of normal noise that is added to the normalized "
             "values, whose standard deviation is 1."},
    {PLACE(augment, channel_dropout), .kind = OPTION_IS_NUMBER, .preset = "0", .most = 1,
     .help = "Float32 values: probability with which each channel is replaced by its mean."},
    {PLACE(augment, repeat), .kind = OPTION_IS_INTEGER, .preset = "1", .least = 1, .most = 16,
     .help = "Repeated augmentation: copies of each sample in a global batch, each augmented with "
             "different random numbers. The number of steps in an epoch is unchanged, so an epoch "
             "visits only a part of the data."},
    {PLACE(augment, mixup), .kind = OPTION_IS_NUMBER, .preset = "0", .most = 100,
     .help = "Mixup: blend each two consecutive samples of a batch, and their targets, with a "
             "weight drawn from Beta(alpha, alpha). The value is alpha; 0: off."},
    {PLACE(augment, cutmix), .kind = OPTION_IS_NUMBER, .preset = "0", .most = 100,
     .help = "CutMix: exchange a rectangle between the two samples instead. The value is alpha of "
             "the area's distribution; 0: off."},
    {PLACE(augment, mix_switch), .kind = OPTION_IS_NUMBER, .preset = "0.5", .most = 1,
     .help = "With both mixup and cutmix: probability of cutmix."},
    {PLACE(augment, resize), .kind = OPTION_IS_INTEGER, .preset = "auto", AUTOMATIC(0),
     .most = IMAGE_LARGEST,
     .help = "Size in pixels to which training images are resized first (see resize_to). auto: the "
             "model's image size."},
    {PLACE(augment, resize_to), CHOICES(RESIZE_OR_AUTO_CHOICES), .preset = "auto",
     .help = "Meaning of augment.resize. square: height and width. shorter: the shorter side; the "
             "aspect ratio is kept. auto: square. With model.image_width, augment.resize and "
             "eval.resize are heights; the width follows from the model's aspect ratio. shorter "
             "then means the smallest image that covers this size."},
    {PLACE(augment, crop), CHOICES(CROP_OR_AUTO_CHOICES), .preset = "auto",
     .help = "Crop of the resized image to the model's image size. Arrays without augment.resize: "
             "window of the image. center: from the middle. random: from a random position, after "
             "padding with augment.crop_pad. auto: none."},
    {PLACE(augment, interpolation), CHOICES(INTERPOLATION_CHOICES), .preset = "auto",
     .help = "Interpolation of resizes in training and evaluation, with antialiasing. auto: with "
             "recipe=photos that of the weights of model.init, else of the architecture; with "
             "other recipes bilinear."},
    {PLACE(augment, random_resized_crop), CHOICES(SWITCH_CHOICES), .preset = "auto",
     .help = "Instead of resize and crop: take a region of random area and aspect ratio "
             "(crop_scale, crop_ratio) at a random position and resize it to the model's image "
             "size. auto: on with recipe=photos unless resize, resize_to or crop is set."},
    {PLACE(augment, crop_scale), .kind = OPTION_IS_LIST, .preset = "0.08,1", .most = 1,
     .above_least = true, .least_count = 2, .most_count = 2,
     .help = "Random resized crop: minimum and maximum area as a fraction of the image."},
    {PLACE(augment, crop_ratio), .kind = OPTION_IS_LIST, .preset = "0.75,1.3333333333333333",
     .most = 1000, .above_least = true, .least_count = 2, .most_count = 2,
     .help = "Random resized crop: minimum and maximum ratio of width to height."},
    {PLACE(augment, mean), .kind = OPTION_IS_LIST, .preset = "auto", AUTOMATIC(0),
     .least = -INFINITY, .most = INFINITY, .least_count = 1, .most_count = OPTION_LIST,
     .help = "Normalization, one number per channel or one for all: (value / 255 - mean) / std, "
             "without / 255 for float32 values. auto: that in the metadata of the weights of "
             "model.init, else that of the data set, else that of the model; for float32 values "
             "the mean and standard deviation of the training samples."},
    {PLACE(augment, std), .kind = OPTION_IS_LIST, .preset = "auto", AUTOMATIC(0), .most = INFINITY,
     .above_least = true, .least_count = 1, .most_count = OPTION_LIST, .help = "See augment.mean."},

    {PLACE(eval, resize), .kind = OPTION_IS_INTEGER, .preset = "auto", AUTOMATIC(0),
     .most = IMAGE_LARGEST,
     .help = "Size in pixels to which images are resized first in evaluation. auto: with "
             "recipe=photos and augment.random_resized_crop the model's image size divided by its "
             "crop fraction (ViTs: 0.9 or 1, others: 0.875); otherwise augment.resize, else the "
             "model's image size."},
    {PLACE(eval, resize_to), CHOICES(RESIZE_OR_AUTO_CHOICES), .preset = "auto",
     .help = "Meaning of eval.resize. auto: shorter with recipe=photos and "
             "augment.random_resized_crop, otherwise augment.resize_to."},
    {PLACE(eval, crop), CHOICES(CROP_OR_AUTO_CHOICES), .preset = "auto",
     .help = "Crop of the resized image in evaluation. auto: center with recipe=photos and "
             "augment.random_resized_crop, otherwise augment.crop, with center instead of random. "
             "random: evaluations depend on run.seed."},
    {PLACE(eval, crop_pad), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 4096,
     .help = "eval.crop=random: pad with this many zeros on each side first."},
    {PLACE(eval, flip), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "Evaluate each image and its mirror image, and average the logits of both."},
    {PLACE(eval, output), .kind = OPTION_IS_TEXT, .preset = "",
     .help = "The command eval: file for the results in JSON. Empty: standard output, and all "
             "other lines go to standard error."},

    {PLACE(train, epochs), .kind = OPTION_IS_INTEGER, .preset = "10", .most = 1e6,
     .flags = "max-epochs num-epochs total-epochs num-train-epochs", .help = "Number of epochs."},
    {PLACE(train, steps), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 1e15,
     .flags = "max-steps num-steps iterations",
     .help = "Number of optimizer steps after which the run ends, regardless of train.epochs. 0: "
             "train.epochs decides."},
    {PLACE(train, batch), .kind = OPTION_IS_INTEGER, .preset = "64", .least = 1, .most = BATCH_MOST,
     .flags = "b bs batch-size per-device-train-batch-size train-batch-size",
     .help = "Batch size per rank: samples per rank and step. Replaces train.global_batch of an "
             "earlier deck."},
    {PLACE(train, global_batch), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 1e9,
     .flags = "global-batch-size total-batch-size",
     .help = "Batch size over all ranks: samples per step. Set it to get the same losses on any "
             "number of ranks. Replaces train.batch of an earlier deck. 0: train.batch times the "
             "number of ranks."},
    {PLACE(train, accumulate), .kind = OPTION_IS_INTEGER, .preset = "1", .least = 1, .most = 65536,
     .flags = "grad-accum-steps accumulate-grad-batches gradient-accumulation-steps",
     .help = "Gradient accumulation: number of micro-batches into which a rank's batch is split to "
             "save memory. The result is the same."},
    {PLACE(train, exact), CHOICES(EXACT_CHOICES), .preset = "off",
     .help =
         "layout: weights, losses and evaluations have the same bits with any number of ranks and "
         "threads, any mesh.strategy and any train.accumulate. The global batch is cut into grains "
         "of train.grain samples, whose gradients are added in a fixed order. Needs "
         "train.global_batch."},
    {PLACE(train, grain), .kind = OPTION_IS_INTEGER, .preset = "auto", AUTOMATIC(0),
     .least = GRAIN_STEP, .multiple = GRAIN_STEP, .most = 65536,
     .help = "Samples of a grain with train.exact=layout. Results depend on it. A rank computes "
             "whole grains, so ranks without a grain are idle. A global batch has at most 256 "
             "grains. auto: an eighth of train.global_batch, rounded up to a multiple of 8."},
    {PLACE(train, check_every), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 1e9,
     .help =
         "Steps between checks for hardware that computes wrongly. In a check, another rank "
         "computes one grain of each rank again. If the gradients differ, a third rank decides. "
         "Needs train.exact=layout and a model without batch norm. 0: never."},
    {PLACE(train, check_action), CHOICES(CHECK_ACTION_CHOICES), .preset = "stop",
     .help = "Action if train.check_every finds a wrong gradient. stop: end the run with exit code "
             "11 and without a new checkpoint. continue: log one warning for each wrong gradient."},
    {PLACE(train, precision), CHOICES(PRECISION_CHOICES), .preset = "auto",
     .flags = "amp=auto fp16=fp16 half=fp16 bf16=bf16 amp-dtype dtype",
     .help = "Type of weights and activations in matrix products; reductions and updates are "
             "always fp32. auto: bf16 if the hardware multiplies it, else fp16 if it multiplies "
             "that, else fp32. fp16 on a CPU is for tests: it is multiplied in fp32."},
    {PLACE(train, loss_scale), .kind = OPTION_IS_NUMBER, .preset = "65536", .least = 1,
     .most = 1099511627776.0,
     .help = "fp16: initial loss scale, a power of two. It is halved when gradients overflow, "
             "which skips the update, and doubled after 2,000 consecutive updates without "
             "overflow."},
    {PLACE(train, checkpoint_activations), CHOICES(CHECKPOINT_ACTIVATIONS_CHOICES),
     .preset = "none", .flags = "grad-checkpointing=block gradient-checkpointing=block",
     .help = "Activation checkpointing. block: keep only the output of each block for the backward "
             "pass and recompute the rest: less memory, about a quarter more time, the same "
             "result."},
    {PLACE(train, clip_norm), .kind = OPTION_IS_NUMBER, .preset = "0", .most = INFINITY,
     .flags = "clip-grad max-grad-norm gradient-clip-val",
     .help = "Maximum norm of the gradient; larger gradients are scaled down. 0: no clipping."},
    {PLACE(train, loss), CHOICES(TRAIN_LOSS_CHOICES), .preset = "auto",
     .help =
         "Training loss. Classes: cross_entropy (softmax), bce (binary cross-entropy, averaged "
         "over the classes, DeiT III), bce_sum (summed, big_vision); evaluations report "
         "cross_entropy. Several labels of a sample: bce (averaged over the labels) or bce_sum. "
         "Regression: squared, absolute or huber error. auto: the first of these."},
    {PLACE(train, weights), .kind = OPTION_IS_LIST, .preset = "auto", AUTOMATIC(0),
     .most = INFINITY, .least_count = 1, .most_count = OPTION_LIST,
     .flags = "class-weights class-weight pos-weight",
     .help = "Arrays: weights in the loss of the classes of pixels, of the labels, or of the "
             "outputs of a regression. auto: 1 for all."},
    {PLACE(train, row_weight), CHOICES(ROW_WEIGHT_CHOICES), .preset = "none",
     .help = "Arrays, model.head=dense: weights of the rows in loss and metrics. latitude: cosine "
             "of the latitude, by the data's coordinate, else by equally spaced rows from pole to "
             "pole."},
    {PLACE(train, ignore_label), .kind = OPTION_IS_INTEGER, .preset = "auto",
     AUTOMATIC(IGNORE_NONE), .least = IGNORE_LEAST, .most = IGNORE_MOST,
     .help = "Arrays, model.head=dense: number in data.y of pixels that are left out of loss and "
             "metrics. auto: none."},
    {PLACE(train, label_smoothing), .kind = OPTION_IS_NUMBER, .preset = "0", .most = 1,
     .below_most = true, .flags = "smoothing",
     .help = "Label smoothing: share of the target that is spread evenly over all classes."},
    {PLACE(train, eval_every), .kind = OPTION_IS_INTEGER, .preset = "1", .most = 1e6,
     .help = "Epochs between evaluations. 0: only at the end."},
    {PLACE(train, max_seconds), .kind = OPTION_IS_SECONDS, .preset = "0", .most = 1e9,
     .help = "Time limit since the start of the program. The run then writes a checkpoint and "
             "stops; the next start resumes it. 0: no limit."},
    {PLACE(train, early_stop), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 1e6,
     .help = "Stop after this many evaluations without improvement of checkpoint.monitor. 0: "
             "never."},
    {PLACE(train, test), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "Evaluate the test split once at the end of training, with the weights of the best "
             "checkpoint by checkpoint.monitor if there is one, else with the last weights."},

    {PLACE(optim, name), CHOICES(OPTIMIZER_CHOICES), .preset = "adamw", .flags = "opt optimizer",
     .help = "Optimizer, as defined in PyTorch, or in timm (muon, lion, lamb, lars), with its "
             "defaults of betas and eps. Defaults of lr, weight_decay and momentum differ."},
    {PLACE(optim, lr), .kind = OPTION_IS_NUMBER, .preset = "0.0003", .most = INFINITY,
     .flags = "learning-rate base-lr", .help = "Learning rate."},
    {PLACE(optim, lr_scale), CHOICES(RATE_SCALE_CHOICES), .preset = "none",
     .help = "Scaling of the learning rate with the global batch size / optim.lr_batch."},
    {PLACE(optim, lr_batch), .kind = OPTION_IS_INTEGER, .preset = "64", .least = 1, .most = 1e9,
     .help = "Global batch size for which optim.lr is meant."},
    {PLACE(optim, weight_decay), .kind = OPTION_IS_NUMBER, .preset = "0.0001", .most = INFINITY,
     .flags = "wd",
     .help = "Weight decay. adamw, muon, lion: decoupled. lamb: added to the direction. Other "
             "optimizers: added to the gradient."},
    {PLACE(optim, no_decay), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "No weight decay on norms, biases, tokens, position embeddings and LayerScale."},
    {PLACE(optim, layer_decay), .kind = OPTION_IS_NUMBER, .preset = "1", .most = 1,
     .above_least = true,
     .help = "Layer-wise learning-rate decay: each unit's learning rate is that of the next unit "
             "times this factor."},
    {PLACE(optim, freeze), .kind = OPTION_IS_TEXT, .preset = "",
     .help = "Comma-separated units, or prefixes of tensor names, that are not trained: "
             "stem,blocks.0."},
    {PLACE(optim, ema), .kind = OPTION_IS_NUMBER, .preset = "0", .most = 1, .below_most = true,
     .flags = "model-ema=0.9998 model-ema-decay ema-decay",
     .help = "Decay of an exponential moving average of the weights (EMA), which is evaluated and "
             "saved. 0: none."},
    {PLACE(optim, momentum), .kind = OPTION_IS_NUMBER, .preset = "0", .most = 1, .below_most = true,
     .help = "Momentum of sgd, rmsprop, lars and muon. timm's default for muon is 0.95."},
    {PLACE(optim, nesterov), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "Nesterov momentum (sgd, muon, lars)."},
    {PLACE(optim, betas), .kind = OPTION_IS_LIST, .preset = "auto", AUTOMATIC(0), .most = 1,
     .below_most = true, .least_count = 2, .most_count = 2,
     .help = "Decay rates of the first and second moment (adam, adamw, lamb; with muon for tensors "
             "that are not matrices). lion: the first rate for the direction, the second for the "
             "moment. auto: 0.9,0.999; lion 0.9,0.99; muon 0.9,0.95."},
    {PLACE(optim, eps), .kind = OPTION_IS_NUMBER, .preset = "auto", AUTOMATIC(-1), .most = INFINITY,
     .help = "Added to the denominator (adam, adamw, rmsprop, muon, lamb, lars). muon: also the "
             "smallest norm by which a matrix is divided. auto: 1e-8; lamb 1e-6; muon 1e-7."},
    {PLACE(optim, alpha), .kind = OPTION_IS_NUMBER, .preset = "0.99", .most = 1, .below_most = true,
     .help = "Smoothing constant of rmsprop."},
    {PLACE(optim, trust_coeff), .kind = OPTION_IS_NUMBER, .preset = "auto", AUTOMATIC(-1),
     .most = INFINITY, .help = "Factor of the trust ratio with lars. auto: 0.001."},
    {PLACE(optim, trust_clip), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "Limit the trust ratio. lamb: to 1 (LAMBC). lars: to 1 / learning rate (LARC)."},
    {PLACE(optim, always_adapt), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "lamb, lars: also adapt the rate of tensors without weight decay (optim.no_decay)."},
    {PLACE(optim, muon_scale), CHOICES(MUON_SCALE_CHOICES), .preset = "match_rms_adamw",
     .help = "Factor of muon's orthogonal update of a matrix with `out` rows and `in` columns. "
             "match_rms_adamw: 0.2 sqrt(max(out, in)), for learning rates like those of adamw. "
             "original: sqrt(max(1, out / in))."},
    {PLACE(optim, muon_factors), CHOICES(MUON_FACTORS_CHOICES), .preset = "quintic",
     .help =
         "Coefficients of muon's Newton-Schulz iteration, as in timm. quintic: a different set in "
         "each of the five steps. original: Keller Jordan's, the same in all steps."},
    {PLACE(optim, muon_exclude), .kind = OPTION_IS_TEXT, .preset = "",
     .help = "Comma-separated units, or prefixes of tensor names, that muon updates as adamw does: "
             "head. Tensors that are not matrices are always updated in this way."},

    {PLACE(schedule, name), CHOICES(SCHEDULE_CHOICES), .preset = "constant",
     .flags = "sched scheduler lr-scheduler", .help = "Learning-rate schedule."},
    {PLACE(schedule, per), CHOICES(SCHEDULE_PER_CHOICES), .preset = "step",
     .help = "Update the learning rate after each step or each epoch; also the unit of warmup and "
             "step_size."},
    {PLACE(schedule, warmup), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 1e12,
     .flags = "warmup-epochs warmup-steps",
     .help = "Steps or epochs of linear warm-up before the schedule starts."},
    {PLACE(schedule, min_lr), .kind = OPTION_IS_NUMBER, .preset = "0", .most = INFINITY,
     .help = "Final learning rate of cosine; lower bound of plateau."},
    {PLACE(schedule, step_size), .kind = OPTION_IS_INTEGER, .preset = "30", .least = 1,
     .most = 1e12, .help = "step: steps or epochs between two reductions."},
    {PLACE(schedule, gamma), .kind = OPTION_IS_NUMBER, .preset = "0.1", .most = INFINITY,
     .help = "step: factor of each reduction."},
    {PLACE(schedule, pct_start), .kind = OPTION_IS_NUMBER, .preset = "0.3", .most = 1,
     .help = "onecycle: fraction of the run in which the learning rate increases."},
    {PLACE(schedule, div_factor), .kind = OPTION_IS_NUMBER, .preset = "25", .most = INFINITY,
     .above_least = true, .help = "onecycle: optim.lr divided by the initial learning rate."},
    {PLACE(schedule, final_div_factor), .kind = OPTION_IS_NUMBER, .preset = "10000",
     .most = INFINITY, .above_least = true,
     .help = "onecycle: initial learning rate divided by the final one."},
    {PLACE(schedule, factor), .kind = OPTION_IS_NUMBER, .preset = "0.1", .most = 1,
     .above_least = true, .below_most = true, .help = "plateau: factor of each reduction."},
    {PLACE(schedule, threshold), .kind = OPTION_IS_NUMBER, .preset = "0.0001", .most = INFINITY,
     .help = "plateau: relative change that counts as an improvement."},
    {PLACE(schedule, patience), .kind = OPTION_IS_INTEGER, .preset = "10", .most = 1e6,
     .help = "plateau: evaluations without improvement before a reduction."},
    {PLACE(schedule, end_factor), .kind = OPTION_IS_NUMBER, .preset = "0", .most = INFINITY,
     .help = "linear: final factor of the learning rate."},

    {PLACE(mesh, strategy), CHOICES(STRATEGY_CHOICES), .preset = "ddp",
     .help = "Parallel strategy. ddp: every rank holds the whole model. zero1: optimizer state is "
             "sharded. zero2: gradients are sharded too. fsdp: weights are sharded too. hsdp: fsdp "
             "within each node, ddp between nodes."},
    {PLACE(mesh, shard), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 1e6,
     .help = "Number of ranks that share one copy of the model. 0: all ranks; with hsdp the ranks "
             "of a node."},
    {PLACE(mesh, reduce), CHOICES(REDUCE_CHOICES), .preset = "fp32",
     .help = "Type in which gradients are summed over ranks. compute: that of train.precision."},
    {PLACE(mesh, transport), CHOICES(TRANSPORT_CHOICES), .preset = "auto",
     .help = "Transport of collectives. ring: messages around a ring of ranks. shared: shared "
             "memory of a node. hierarchical: first within each node, then between nodes. auto: "
             "for each group of ranks the fastest one that its layout allows; the log names it."},
    {PLACE(mesh, elastic), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "Keep the global batch of the checkpoint when a run resumes on another number of "
             "ranks, although train.batch is per rank. A rank with more samples than train.batch "
             "computes them in micro-batches."},
    {PLACE(mesh, timeout), .kind = OPTION_IS_SECONDS, .preset = "10m", .most = 1e9,
     .help = "A collective that takes longer ends the job and names the missing ranks. 0: no "
             "limit."},
    {PLACE(mesh, heartbeat_timeout), .kind = OPTION_IS_SECONDS, .preset = "20", .most = 1e9,
     .help = "A rank without a heartbeat for this time (node down, cable unplugged, process "
             "stopped) ends the job and is named. 0: no limit, as needed with debuggers."},
    {PLACE(mesh, stall_warning), .kind = OPTION_IS_SECONDS, .preset = "20", .most = 1e9,
     .help = "Warn about a rank that is alive but makes no progress in a step for this time, and "
             "for ten times the median step time, while other ranks wait for it. The run continues "
             "until mesh.timeout. 0: no warning. Needs heartbeats."},

    {PLACE(checkpoint, every), .kind = OPTION_IS_NUMBER, .preset = "1", .most = 1e6,
     .flags = "save-every save-freq save-interval",
     .help = "Epochs between checkpoints; fractions are allowed (0.5). 0: only at the end."},
    {PLACE(checkpoint, every_seconds), .kind = OPTION_IS_SECONDS, .preset = "0", .most = 1e9,
     .help = "Also write a checkpoint when this time has passed since the last one. 0: never."},
    {PLACE(checkpoint, keep), .kind = OPTION_IS_INTEGER, .preset = "3", .least = 1, .most = 1e6,
     .help = "Number of most recent checkpoints to keep, in addition to the best one."},
    {PLACE(checkpoint, memory), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 1e9,
     .help = "Steps between two checkpoints in memory (/dev/shm), with a copy on the next node. A "
             "restarted run resumes from the newest checkpoint in memory or on disk. Needs memory "
             "for two checkpoints; docs/resume.md. 0: none."},
    {PLACE(checkpoint, resume), .kind = OPTION_IS_TEXT, .preset = "auto",
     .flags = "resume=auto auto-resume=auto ckpt-path resume-from-checkpoint",
     .help = "Checkpoint to resume from. auto: the newest valid checkpoint in the run's folder, or "
             "in the newest unfinished run of the same name and deck. never: start over. Else the "
             "FILE of a checkpoint."},
    {PLACE(checkpoint, monitor), CHOICES(MONITOR_CHOICES), .preset = "auto",
     .help = "Metric that decides which checkpoint is the best: a column of metrics.csv that the "
             "evaluations have. auto: top1 if each image has one class, else loss. An evaluation "
             "better than all before writes a checkpoint in addition to those of "
             "checkpoint.every, unless checkpoint.every is 0. none: no best checkpoint."},
    {PLACE(checkpoint, writers), CHOICES(WRITERS_CHOICES), .preset = "auto",
     .help = "Ranks that write. all: all ranks write into one file on a shared file system. node0: "
             "the first node writes for all, for nodes with private disks. auto: detect it."},
    {PLACE(checkpoint, background), CHOICES(BACKGROUND_CHOICES), .preset = "auto",
     .help = "Write checkpoints in the background during the next steps. Needs host memory for a "
             "copy of the data that a rank writes. auto: yes with a GPU. Never done on nodes with "
             "private disks."},

    {PLACE(output, tensorboard_tags), CHOICES(TAGS_CHOICES), .preset = "vittrain",
     .help = "Names and steps of the TensorBoard points: vittrain's (also course), or "
             "those of PyTorch's ImageNet example or of PyTorch Lightning (docs/outputs.md)."},
    {PLACE(output, log_every), .kind = OPTION_IS_INTEGER, .preset = "10", .least = 1, .most = 1e9,
     .flags = "p print-freq log-interval log-every-n-steps",
     .help = "Steps between two rows of metrics.csv and progress lines."},
    {PLACE(output, receipt), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 1e12,
     .help =
         "Steps between two rows of receipt.csv, which `vittrain verify` compares with a replay "
         "of the steps. The last step of the run has a row too. A row reads weights and "
         "optimizer state once. 0: no receipts."},
    {PLACE(output, verbose), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "Print all options, the units of the model and the classes of memory at the start. "
             "off: only train.log contains them. -v and --verbose turn it on."},
    {PLACE(output, monitor), .kind = OPTION_IS_SECONDS, .preset = "10s", .most = 300,
     .help = "Seconds between two readings of the sensors (load, memory, a GPU's temperature and "
             "power), which are written to monitor.csv and TensorBoard and summarized at the end. "
             "At least 0.1; 0: off."},
    {PLACE(output, tensorboard), .kind = OPTION_IS_SWITCH, .preset = "on",
     .help = "Write events for TensorBoard."},
    {PLACE(output, csv), .kind = OPTION_IS_SWITCH, .preset = "on",
     .help = "Write metrics.csv and monitor.csv."},
    {PLACE(output, logbook), .kind = OPTION_IS_TEXT, .preset = "runs/logbook",
     .help = "Folder of the log book. A run adds a row to its index when it ends. "
             "Empty: none."},
    {PLACE(output, target), .kind = OPTION_IS_NUMBER, .preset = "0", .most = 1,
     .help =
         "Top-1 accuracy from 0 to 1. result.json reports the time after which an evaluation first "
         "reached it. 0: none."},
    {PLACE(output, weights), .kind = OPTION_IS_SWITCH, .preset = "on",
     .help = "Write the final weights as safetensors, and those of the best evaluation."},
    {PLACE(output, upload), .kind = OPTION_IS_TEXT, .preset = "",
     .help = "REMOTE:PATH with a remote of rclone, to which the run's folder is copied after each "
             "checkpoint and at the end, without older checkpoints (docs/store.md). If the path "
             "ends in / or :, the name of the run's folder is appended. Empty: no copy."},
    {PLACE(output, upload_wait), .kind = OPTION_IS_SECONDS, .preset = "1m", .most = 1e9,
     .help = "Maximum time that the end of the run waits for the last copy. 0: no last copy."},

    {PLACE(debug, batches), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 1e12,
     .flags = "fast-dev-run=1 dry-run=1 limit-train-batches=1",
     .help =
         "Maximum number of batches in each epoch and each evaluation. With train.exact=layout, "
         "both count global batches of training. 0: all."},
    {PLACE(debug, fraction), .kind = OPTION_IS_NUMBER, .preset = "1", .most = 1,
     .above_least = true, .help = "Fraction of the data to use."},
    {PLACE(debug, overfit), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 1e9,
     .flags = "overfit-batches",
     .help = "Train on the first N batches only, repeatedly. 0: on all."},
    {PLACE(debug, flip), CHOICES(FLIP_CHOICES), .preset = "off",
     .help = "Inject faults: invert one bit on rank debug.flip_rank at each check "
             "(train.check_every). activation, gradient: of the checked grain. weight: in the "
             "rank's copy of the weights. message: in the samples that the rank receives to check "
             "another rank."},
    {PLACE(debug, flip_rank), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 1e6,
     .help = "Rank in which debug.flip injects faults."},
    {PLACE(debug, profile), .kind = OPTION_IS_SWITCH, .preset = "off",
     .flags = "profile=on profiler=on",
     .help = "Measure the time of each unit and operation and print it at the end, without the "
             "first two steps, which choose kernels."},
    {PLACE(debug, capture), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 1e12,
     .help = "Step to be recorded by an external profiler that waits for cudaProfilerStart, such "
             "as ncu --profile-from-start off. 0: none. With cuda.graph=off it sees every kernel."},
    {PLACE(debug, check_weights), .kind = OPTION_IS_INTEGER, .preset = "0", .most = 1e12,
     .help = "Steps between checks that all ranks hold the same weights. 0: never."},
    {PLACE(debug, wait), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "Synchronize with the GPU in each step. A value that is not finite is then reported "
             "in the step where it occurs, and times belong to the step in which they are "
             "measured."},
    {PLACE(debug, pause), .kind = OPTION_IS_TEXT, .preset = "none",
     .help = "PHASE:STEP:FILE or PHASE:STEP:FILE:RANK, as in backward:20:go. In this phase of this "
             "step each rank, or only RANK, writes its process ID to FILE.RANK, prints it, and "
             "waits until FILE exists, so that "
             "you can attach a debugger or kill the process. Phases: start, mpi, data_open, "
             "model_open, memory, folder, folder_lock, weights_read (step 0), data, forward, "
             "backward, reduce, "
             "update, evaluation, checkpoint_memory, checkpoint_write, checkpoint_name, "
             "checkpoint_link, "
             "weights_write, test, results, end."},

    {PLACE(cuda, graph), .kind = OPTION_IS_SWITCH, .preset = "on",
     .help = "Record a step as a CUDA graph and replay it, which makes small models faster. Not "
             "used with train.accumulate or debug.profile."},
    {PLACE(cuda, tf32), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "Use TF32 for fp32 matrix products and convolutions on GPUs: operands are rounded to "
             "10 bits of mantissa; several times faster."},
    {PLACE(cuda, dependent_launch), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "Launch each kernel before the preceding one ends (programmatic dependent launch), "
             "which makes small models faster. No effect below compute capability 9.0."},
    {PLACE(cuda, cache), .kind = OPTION_IS_TEXT, .preset = "auto",
     .help =
         "Folder that stores the fastest algorithms of matrix products of GPUs, and the measured "
         "peak rates of CPUs. auto: ~/.cache/vittrain. none: measure them in each run. A resumed "
         "run uses the algorithms in its checkpoint."},
    {PLACE(cuda, share), .kind = OPTION_IS_SWITCH, .preset = "off",
     .help = "Allow several ranks on one GPU. For tests; it is slower."},

#include "config/options_table_commands.inc"
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
    {"output", "log, tables, TensorBoard events and copies", false},
    {"debug", "smaller runs, checks and profiling", false},
    {"cuda", "NVIDIA GPUs", false},
    {"predict", "predictions", true},
    {"convert", "conversion of weights, checkpoints and data sets", true},
    {"bench", "benchmarks", true},
    {"plan", "memory and time of a planned run", true},
    {"find", "learning-rate range test", true},
    {"verify", "replay of a run's steps", true},
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
    /* Training is limited by plan.memory too. */
    return (!sections[section_find(entry->name, strcspn(entry->name, "."))].of_command ||
            strcmp(entry->name, "plan.memory") == 0) &&
           strcmp(entry->name, "eval.output") != 0;
}

#define PHASE_ROW(constant, word, name) [constant] = {word, name},
const struct status_phase phase_table[PHASE_COUNT] = {PHASES(PHASE_ROW)};
