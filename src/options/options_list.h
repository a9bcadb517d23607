// SPDX-License-Identifier: BSD-3-Clause
/* The list of all options: one row for each, in the order of decks and help. options.h makes the
 * structs from it, option_conditions.c the table. Members of a row are those of struct option_entry
 * (option.h).
 *
 *   SECTION(NAME, HELP, EFFECT, CONDITION): EFFECT and CONDITION are those of options without one
 *   OPTION(SECTION, KEY, DEFAULT, KIND(MEMBERS), HELP)
 *   OPTION(SECTION, KEY, DEFAULT, CHOICE(ENUM, LIST, MEMBERS), HELP)
 *   VALUE_ONLY(TYPE, NAME): a value of the section that is no option
 *   SECTION_END(NAME) */
SECTION(run, "name, folder and seed of the run", EFFECT_LEARNING, NULL)
OPTION(run, name, "vittrain", TEXT(.flags = "experiment exp-name", .effect = EFFECT_NONE),
       "Name of the run, the prefix of its folder: runs/NAME-DATE.")
OPTION(run, tags, "", TEXT(.effect = EFFECT_NONE),
       "Comma-separated tags of the run, for reports and the log book: baseline,photos. Also "
       "written to result.json.")
OPTION(
    run, dir, "",
    TEXT(.flags = "o output output-dir out-dir save-dir log-dir logdir checkpoint-dir model-folder",
         .effect = EFFECT_NONE),
    "Folder of the run. Empty: runs/NAME-DATE in the working directory.")
OPTION(run, seed, "42", INTEGER(.most = LARGEST),
       "Seed of all random numbers: initial weights, order of the samples, augmentation, dropout.")
OPTION(run, backend, "auto",
       CHOICE(backend_choice, BACKEND_CHOICES,
              .flags = "accelerator=cuda device=cuda gpu=cuda cuda=cuda no-cuda=cpu cpu=cpu"),
       "Device to compute on. cuda: NVIDIA GPUs, one per rank. auto: a GPU if the program finds a "
       "usable one (the log gives the reason if not), else the CPU.")
OPTION(run, threads, "auto", INTEGER(AUTO(0), .most = 4096, .effect = EFFECT_NONE),
       "Threads per rank. auto: the rank's share of the node's cores.")
SECTION_END(run)

SECTION(model, "architecture and initial weights", EFFECT_MODEL, NULL)
OPTION(model, name, "vit_cifar", TEXT(.flags = "a arch model net backbone"),
       "Architecture; vittrain --list-models lists all names. vit_cifar, timm's "
       "vit_{tiny,small,base,large,huge}_*, deit3_*, vit_*_dinov{2,3}, vit_*_siglip_*, cnn_a, "
       "cnn_a_lenet, cnn_b (ResNet-18 for images of 32 pixels), cnn_c, resnet{18,34,50,101,152}, "
       "linear (linear regression on numbers).")
OPTION(model, init, "none",
       TEXT(.flags = "pretrained=FILE.safetensors initial-checkpoint=FILE.safetensors "
                     "finetune=FILE.safetensors"),
       "Source of the initial weights: none (random), a FILE.safetensors, a checkpoint of a model "
       "of the same shape, or a run folder (its best weights). "
       "With safetensors, a head of another size is initialized at random and position embeddings "
       "are resized to the model's grid.")
OPTION(model, image, "auto",
       INTEGER(AUTO(0), .most = IMAGE_LARGEST, .flags = "img-size image-size input-size",
               .effect = EFFECT_LEARNING),
       "Height of the model's input images in pixels, and their width unless model.image_width is "
       "set. auto, here and below: the value of the architecture.")
OPTION(model, image_width, "auto",
       INTEGER(AUTO(0), .most = IMAGE_LARGEST, .effect = EFFECT_LEARNING),
       "Width of images that are not square. auto: model.image.")
OPTION(model, channels, "auto", INTEGER(AUTO(0), .most = IMAGE_CHANNELS, .effect = EFFECT_LEARNING),
       "Channels of an input image; float32 data: auto is their number. Image files always have 3.")
OPTION(model, patch, "auto", INTEGER(AUTO(0), .most = 16384, .applies = &with_vit),
       "Side of a patch in pixels. If it does not divide the height and width of the images, they "
       "are padded (model.pad).")
OPTION(model, pad, "auto", CHOICE(pad_choice, PAD_CHOICES, .applies = &with_vit),
       "Pixels of patches beyond the last row and column of an image. edge: copies of the nearest "
       "pixel. wrap: columns continue with the first ones, for longitudes that cover the globe; "
       "rows as with edge. auto: wrap if the data has such longitudes, else edge. none: the patch "
       "must divide the height and width. A dense head has no outputs for these pixels.")
OPTION(model, dim, "auto", INTEGER(AUTO(0), .most = 65536, .applies = &with_vit),
       "Embedding dimension; model.heads must divide it.")
OPTION(model, depth, "auto", INTEGER(AUTO(0), .most = 1000, .applies = &with_vit),
       "Number of transformer blocks.")
OPTION(model, heads, "auto", INTEGER(AUTO(0), .most = 1024, .applies = &with_vit),
       "Number of attention heads.")
OPTION(model, classes, "auto",
       INTEGER(AUTO(0), .most = CLASSES_MOST, .flags = "num-classes", .effect = EFFECT_LEARNING),
       "Number of classes.")
OPTION(model, mlp_ratio, "auto", NUMBER(AUTO(0), .most = 64, .applies = &with_vit),
       "Hidden dimension of the MLP divided by the embedding dimension.")
OPTION(model, dropout, "auto",
       NUMBER(AUTO(-1), .most = 1, .below_most = true, .flags = "drop", .applies = &with_vit,
              .effect = EFFECT_LEARNING),
       "Dropout probability.")
OPTION(model, drop_path, "auto",
       NUMBER(AUTO(-1), .most = 1, .below_most = true, .applies = &with_vit,
              .effect = EFFECT_LEARNING),
       "Stochastic depth rate of the last block; it increases linearly from 0 at the first block. "
       "vit_cifar: rate of an element-wise dropout after both branches of each block.")
OPTION(model, qkv_bias, "auto", CHOICE(switch_choice, SWITCH_CHOICES, .applies = &with_vit),
       "Bias in the projection to queries, keys and values.")
OPTION(model, qk_norm, "auto", CHOICE(switch_choice, SWITCH_CHOICES, .applies = &with_vit),
       "Layer norm of the queries and keys of each head.")
OPTION(model, class_token, "auto", CHOICE(switch_choice, SWITCH_CHOICES, .applies = &with_vit),
       "Class token before the patches.")
OPTION(model, registers, "auto", INTEGER(AUTO(-1), .most = 1024, .applies = &with_vit),
       "Number of register tokens between the class token and the patches: learned tokens that the "
       "head does not read (Darcet et al. 2024).")
OPTION(model, position, "auto", CHOICE(position_choice, POSITION_CHOICES, .applies = &with_vit),
       "Position embeddings. learned: of all tokens. patches: learned, of the patches only (timm's "
       "no_embed_class). sincos: of the patches, two-dimensional sines and cosines that are not "
       "trained (big_vision's sincos2d); model.dim must be a multiple of 4, at least 8. rotary: no "
       "embeddings; the queries and keys of patches are rotated in each block (DINOv3). Tensors "
       "then have the names of timm's Eva.")
OPTION(model, embed_norm, "auto", CHOICE(switch_choice, SWITCH_CHOICES, .applies = &with_vit),
       "Layer norm after the patch embedding.")
OPTION(model, head, "class", CHOICE(head_choice, HEAD_CHOICES, .applies = &with_head),
       "Outputs. class: one per class and image. dense: one per class and pixel (docs/train.md).")
OPTION(model, pool, "auto", CHOICE(pool_choice, POOL_CHOICES, .applies = &with_vit_classes),
       "Input of the head. token: the class token. mean: the mean of the patches. map: the output "
       "of attention with one learned query, followed by an MLP (SigLIP).")
OPTION(model, fc_norm, "auto", CHOICE(switch_choice, SWITCH_CHOICES, .applies = &with_vit_classes),
       "Last layer norm with model.pool=mean. on: of the mean. off: of tokens, before it.")
OPTION(model, layer_scale, "auto", NUMBER(AUTO(-1), .most = 1, .applies = &with_vit),
       "Initial value of LayerScale: learned factors of the output of each branch, one per "
       "dimension (Touvron et al. 2021). 0: no LayerScale.")
OPTION(model, mlp, "auto", CHOICE(mlp_choice, MLP_CHOICES, .applies = &with_vit),
       "MLP of the blocks: fc2(gelu(fc1(x))), or fc2(silu(a) * b) with the halves a and b of "
       "fc1(x) (SwiGLU, as in DINOv2's giant model).")
OPTION(model, gelu, "auto", CHOICE(gelu_choice, GELU_CHOICES, .applies = &with_vit),
       "GELU in the MLP. exact: with erf. tanh: the tanh approximation.")
OPTION(model, width, "auto", INTEGER(AUTO(0), .most = 4096, .applies = &with_batch_norm),
       "ResNets, cnn_b, cnn_c: channels of the first stage. Each further stage of ResNets and "
       "cnn_b has twice as many; both further stages of cnn_c have four times as many.")
OPTION(model, sync_bn, "auto",
       CHOICE(switch_choice, SWITCH_CHOICES, .applies = &with_batch_norm,
              .effect = EFFECT_LEARNING),
       "Synchronized batch norm. on: statistics over the samples of all ranks (of one micro-batch "
       "with train.accumulate). off: over the samples of each rank, so that results depend on the "
       "number of ranks. auto: on.")
SECTION_END(model)

SECTION(data, "data set and data loading", EFFECT_LEARNING, NULL)
OPTION(data, format, "cifar10", TEXT(.flags = "dataset"),
       "Format of the data set: cifar10 (binary version), imagefolder (ROOT/train/CLASS/FILE and "
       "ROOT/val or ROOT/test, or ROOT/CLASS/FILE; JPEG, PNG, WebP), webdataset (tar shards), "
       "arrays (of HDF5, NetCDF-4, Zarr and .npy files) or synthetic.")
OPTION(data, root, "",
       TEXT(.flags = "data data-dir data-path data-root root", .applies = &with_files),
       "Folder of the data set, or names of tar shards or files of arrays with braces and "
       "wildcards (`imagenet-train-{000000..000146}.tar`). Empty: the sample of CIFAR-10 that is "
       "installed with the program (2,000 + 500 images).")
OPTION(data, workers, "1",
       INTEGER(.least = 1, .most = 256, .flags = "j num-workers", .effect = EFFECT_NONE),
       "Threads per rank that load batches ahead of the step.")
OPTION(data, shuffle, "on", CHOICE(shuffle_choice, SHUFFLE_CHOICES),
       "Shuffle the training samples in each epoch. off: the order of the files. chunks: arrays, "
       "by chunks of their files, each of which is decoded about once.")
OPTION(data, balance, "off", SWITCH(),
       "Single labels: draw all classes equally often. The number of samples in an epoch stays the "
       "same. Samples of small classes are drawn several times in an epoch, and those of large "
       "classes not in each epoch.")
OPTION(data, drop_last, "off", SWITCH(), "Drop the last batch of an epoch if it is incomplete.")
VALUE_ONLY(double, val_fraction)
VALUE_ONLY(option_text, val_periods)
OPTION(data, val, "test",
       CHOICE(validation_choice, VALIDATION_CHOICES,
              .number_offset = offsetof(struct options, data.val_fraction),
              .number_choice = VALIDATION_FRACTION, .most = 1, .above_least = true,
              .below_most = true, .text_offset = offsetof(struct options, data.val_periods),
              .text_choice = VALIDATION_PERIODS, .is_text = text_is_period,
              .text_example = "a period of time, such as 2019, 2019-07..2020-06 or 2019.."),
       "Data for the evaluations during training. test: the test set. A fraction, for example 0.1: "
       "this part of each class is held out from the training samples; the choice depends on the "
       "files only, not on run.seed. A period, for example 2019-07..2020-06, or several separated "
       "by commas: the samples of these times (arrays). reference: a random split of all samples "
       "into 75 % for "
       "training, 8.3 % for evaluation and 16.7 % for testing, that of PyTorch's random_split with "
       "the seed run.seed. none: no evaluation. val: the data set's validation split. Image "
       "folders without a folder test use the validation split for testing too.")
OPTION(data, val_from, "classes",
       CHOICE(val_from_choice, VAL_FROM_CHOICES, .applies = &with_fraction),
       "Samples that data.val=FRACTION holds out. classes: of each class, at random. end: the last "
       "samples, for series in time.")
OPTION(data, samples, "1024", INTEGER(.least = 1, .most = 4294967295.0, .applies = &with_synthetic),
       "Synthetic data: number of training samples; the test set has a quarter as many.")
OPTION(data, distinct, "0", INTEGER(.most = 4294967295.0, .applies = &with_synthetic),
       "Synthetic data: number of different images of each set. They are drawn at the start and "
       "kept in the memory of each rank; the set repeats them, so that loading is one copy. 0: all "
       "images differ and are drawn when they are loaded.")
OPTION(data, image, "32",
       INTEGER(.least = 1, .most = IMAGE_LARGEST, .applies = &with_synthetic_classes),
       "Synthetic data: height and width in pixels.")
OPTION(data, classes, "10",
       INTEGER(.least = 1, .most = CLASSES_MOST, .applies = &with_synthetic_classes),
       "Synthetic data: number of classes.")
OPTION(data, task, "classes", CHOICE(task_choice, TASK_CHOICES, .applies = &with_task),
       "Synthetic data and arrays: the task. labels: a sample has several labels; set by the "
       "program if data.y is [N, K]. regression: predict the numbers of data.y, or 20 (or "
       "model.channels) random ones from 0 to 1.")
OPTION(data, x, "", TEXT(.applies = &with_arrays, .effect = EFFECT_MODEL),
       "Arrays: path of the data set of the images in each file, [samples, channels, height, "
       "width], [samples, height, width, channels] or [samples, height, width]; or several "
       "separated by commas, whose channels follow one another. u@-1: the sample before.")
OPTION(data, static_file, "", TEXT(.applies = &with_arrays),
       "Arrays: file with variables of data.x that are the same for all samples, such as a "
       "land-sea mask, [height, width] or [channels, height, width]. They can also be in the files "
       "of the samples.")
OPTION(data, y, "", TEXT(.applies = &with_arrays, .effect = EFFECT_MODEL),
       "Arrays: path of the data set of the targets: classes 0, 1, ... [samples]; several labels, "
       "0 or 1, [samples, labels]; classes of pixels [samples, height, width]; or numbers with "
       "data.task=regression (docs/arrays.md). The attribute class_names names the classes. "
       "Several paths: as in data.x. u@+6: the value of u six steps later. u@+6h: six hours later "
       "(d, h, min, s).")
OPTION(data, order, "auto", CHOICE(data_order_choice, DATA_ORDER_CHOICES, .applies = &with_arrays),
       "Arrays: dimensions of an image. chw: channels, height, width. hwc: height, width, "
       "channels. auto: by the names of the dimensions, else hwc if the last one is the smallest.")
OPTION(data, sample_dim, "", TEXT(.applies = &with_arrays, .effect = EFFECT_MODEL),
       "Arrays: name of the dimension of the samples, or its number if it has no name; the first "
       "is 0. Dimensions before it are runs: each is a series of its own. Empty: by the names of "
       "the dimensions.")
OPTION(data, levels, "", TEXT(.applies = &with_arrays, .effect = EFFECT_MODEL),
       "Arrays: coordinates of the levels to use, in this order, as in 500,850, of each data set "
       "that has a dimension of levels. Empty: all.")
OPTION(data, rows, "", TEXT(.applies = &with_arrays, .effect = EFFECT_MODEL),
       "Arrays: rows to use. BEGIN:END: indices, as in Python. LEAST..MOST: coordinates, both "
       "inclusive, as in -60..60. Empty: all.")
OPTION(data, columns, "", TEXT(.applies = &with_arrays, .effect = EFFECT_MODEL),
       "Arrays: columns to use, in the form of data.rows. Longitudes may cross the border of the "
       "grid, as in "
       "350..20.")
OPTION(data, join, "off", SWITCH(.applies = &with_arrays, .effect = EFFECT_MODEL),
       "Arrays: the files of a split are one series, in the order of their times, so that u@+6 can "
       "be in the next file. off: each file is a series.")
OPTION(data, coordinates, "check",
       CHOICE(coordinates_choice, COORDINATES_CHOICES, .applies = &with_arrays,
              .effect = EFFECT_MODEL),
       "Arrays: coordinates, units and names of dimensions in the files. check: they must agree, "
       "and u@+6 is six steps of time later. ignore: they are not compared, and u@+6 is six "
       "samples later.")
OPTION(data, missing, "fill",
       CHOICE(missing_choice, MISSING_CHOICES, .applies = &with_arrays, .effect = EFFECT_NONE),
       "Arrays: chunks of a Zarr array whose files do not exist. fill: they have the fill value, "
       "and a warning has their number. error: the run ends.")
OPTION(data, transform, "", TEXT(.applies = &with_arrays, .effect = EFFECT_MODEL),
       "Arrays: functions that replace variables: log1p:NAME, log10:NAME or sqrt:NAME, separated "
       "by commas. Predictions and metrics are in the units of the data.")
OPTION(data, residual, "off", SWITCH(.applies = &with_planes, .effect = EFFECT_MODEL),
       "Arrays: the model learns the difference between data.y and the last input of the same "
       "variable in data.x. Predictions and metrics are those of the variable.")
OPTION(
    data, forcings, "", TEXT(.applies = &with_coordinates, .effect = EFFECT_MODEL),
    "Arrays: channels that are computed from the coordinates and the time of a sample, separated "
    "by commas: latitude, longitude, day_of_year, time_of_day, insolation. insolation@+6h: six "
    "hours later; insolation@+1: one step later.")
OPTION(data, values, "uint8", CHOICE(values_choice, VALUES_CHOICES, .applies = &with_synthetic),
       "Synthetic data: type of the values. float32: each channel has its own scale, and one value "
       "of 256 is missing, as in measured data.")
OPTION(data, skip_broken, "off", SWITCH(.applies = &with_image_files),
       "Image folders and shards: skip truncated and damaged files, files that are not images and "
       "samples without a label. All images are decoded before training, as with data.check=full. "
       "The log gives their number. off: these files and samples are errors.")
OPTION(data, allow_empty, "off", SWITCH(.applies = &with_folders),
       "Image folders: accept classes without images. off: an empty class is an error.")
OPTION(data, check, "header", CHOICE(check_choice, CHECK_CHOICES, .applies = &with_image_files),
       "Image folders and shards: check of the files before training. none: no check; header: "
       "format and size; full: decode all images.")
OPTION(data, scaled_decode, "auto",
       CHOICE(switch_choice, SWITCH_CHOICES, .applies = &with_image_files),
       "JPEG: decode at 1/2, 1/4 or 1/8 of the size if the result is still at least as large as "
       "needed. Faster, but not bit-identical to PIL's resize. auto: on, but off for evaluations "
       "with augment.recipe=photos.")
OPTION(data, exif, "off", SWITCH(.applies = &with_image_files),
       "Turn image files by their EXIF orientation, as Pillow's ImageOps.exif_transpose does. off: "
       "decode the stored pixels, as torchvision does, and log the number of files with an "
       "orientation.")
OPTION(data, max_pixels, "178956970",
       INTEGER(.least = 1, .most = 2e9, .applies = &with_image_files),
       "Maximum number of pixels of an image file. Larger images are an error, because a small "
       "file can hold an image larger than memory.")
SECTION_END(data)

SECTION(augment, "augmentation and normalization of training images", EFFECT_LEARNING, &with_images)
OPTION(augment, recipe, "auto", CHOICE(recipe_choice, RECIPE_CHOICES),
       "Set of values for the options that are auto in this section and in eval. photos: random "
       "resized crop; evaluation of the center after a resize of the shorter side, as in timm. "
       "cifar: rotation, translation and erasing. plain: none of these. auto: photos for image "
       "files and a model of 64 pixels or more, cifar for smaller models, else plain.")
OPTION(augment, flip, "auto", NUMBER(AUTO(-1), .most = 1, .flags = "hflip"),
       "Probability of a horizontal flip. auto: 0.5, but 0 for float32 values. 0, here and below: "
       "never.")
OPTION(augment, vflip, "0", NUMBER(.most = 1, .flags = "vflip"), "Probability of a vertical flip.")
OPTION(augment, rot90, "off", SWITCH(), "Rotate square images by a random multiple of 90 degrees.")
OPTION(augment, roll, "none", CHOICE(roll_choice, ROLL_CHOICES),
       "Shift images along these axes by a random number of pixels, for periodic domains: pixels "
       "that leave the image enter it at the opposite side. xy: along both axes.")
OPTION(augment, rotate, "auto", NUMBER(AUTO(-1), .most = 180),
       "Rotation by a random angle of up to this many degrees in either direction. auto: 15 with "
       "recipe=cifar, else 0.")
OPTION(
    augment, translate, "auto", NUMBER(AUTO(-1), .most = 1),
    "Translation by up to this fraction of width and height. auto: 0.1 with recipe=cifar, else 0.")
OPTION(augment, erase, "auto", NUMBER(AUTO(-1), .most = 1, .flags = "reprob random-erase"),
       "Probability of random erasing. auto: 0.5 with recipe=cifar, else 0.")
OPTION(augment, erase_scale, "0.02,0.2",
       LIST(.most = 1, .above_least = true, .least_count = 2, .most_count = 2,
            .applies = &with_erase),
       "Random erasing: minimum and maximum area of the rectangle, as a fraction of the image.")
OPTION(augment, erase_ratio, "0.3,3.3",
       LIST(.most = 1000, .above_least = true, .least_count = 2, .most_count = 2,
            .applies = &with_erase),
       "Random erasing: minimum and maximum aspect ratio of the rectangle.")
OPTION(augment, crop_pad, "0", INTEGER(.most = 4096),
       "Random crop after padding with this many zeros on each side. The crop has the size of the "
       "image, or that of augment.crop=random.")
OPTION(
    augment, rand_augment, "0", INTEGER(.most = 16, .flags = "ra aa auto-augment"),
    "RandAugment: number of operations per image, chosen from 14 geometric and color operations.")
OPTION(augment, rand_magnitude, "9", INTEGER(.most = 30, .applies = &with_rand_augment),
       "RandAugment: magnitude of the operations.")
OPTION(augment, brightness, "0", NUMBER(.most = 100),
       "Color jitter: multiply the brightness by a random factor from 1 - value (at least 0) to 1 "
       "+ value. Brightness, contrast, saturation and hue are changed in random order.")
OPTION(augment, contrast, "0", NUMBER(.most = 100), "Color jitter: the same for the contrast.")
OPTION(augment, saturation, "0", NUMBER(.most = 100), "Color jitter: the same for the saturation.")
OPTION(augment, hue, "0", NUMBER(.most = 0.5),
       "Color jitter: shift the hue by up to this fraction of the color wheel in either direction.")
OPTION(augment, greyscale, "0", NUMBER(.most = 1),
       "Probability of converting an image to grayscale.")
OPTION(augment, three_augment, "off", SWITCH(),
       "3-Augment of DeiT III, before the color jitter: grayscale, solarization or Gaussian blur, "
       "each for a third of the images.")
OPTION(augment, noise, "0", NUMBER(.most = 100, .applies = &with_float),
       "Float32 values: standard deviation of normal noise that is added to the normalized values, "
       "whose standard deviation is 1.")
OPTION(augment, channel_dropout, "0", NUMBER(.most = 1, .applies = &with_float),
       "Float32 values: probability with which each channel is replaced by its mean.")
OPTION(augment, repeat, "1", INTEGER(.least = 1, .most = 16),
       "Repeated augmentation: copies of each sample in a global batch, each augmented with "
       "different random numbers. The number of steps in an epoch is unchanged, so an epoch visits "
       "only a part of the data.")
OPTION(augment, mixup, "0", NUMBER(.most = 100),
       "Mixup: blend each two consecutive samples of a batch, and their targets, with a weight "
       "drawn from Beta(alpha, alpha). The value is alpha; 0: off.")
OPTION(augment, cutmix, "0", NUMBER(.most = 100),
       "CutMix: exchange a rectangle between the two samples instead. The value is alpha of the "
       "area's distribution; 0: off.")
OPTION(augment, resize, "auto", INTEGER(AUTO(0), .most = IMAGE_LARGEST),
       "Size in pixels to which training images are resized first (see resize_to). auto: the "
       "model's image size.")
OPTION(augment, resize_to, "auto", CHOICE(resize_choice, RESIZE_CHOICES),
       "Meaning of augment.resize. square: height and width. shorter: the shorter side; the aspect "
       "ratio is kept. auto: square. With model.image_width, augment.resize and eval.resize are "
       "heights; the width follows from the model's aspect ratio. shorter then means the smallest "
       "image that covers this size.")
OPTION(augment, crop, "auto", CHOICE(crop_choice, CROP_CHOICES),
       "Crop of the resized image to the model's image size. Arrays without augment.resize: window "
       "of the image. center: from the middle. random: from a random position, after padding with "
       "augment.crop_pad. auto: none.")
OPTION(augment, interpolation, "auto", CHOICE(interpolation_choice, INTERPOLATION_CHOICES),
       "Interpolation of resizes in training and evaluation, with antialiasing. auto: with "
       "recipe=photos that of the weights of model.init, else of the architecture; with other "
       "recipes bilinear.")
OPTION(augment, random_resized_crop, "auto", CHOICE(switch_choice, SWITCH_CHOICES),
       "Instead of resize and crop: take a region of random area and aspect ratio (crop_scale, "
       "crop_ratio) at a random position and resize it to the model's image size. auto: on with "
       "recipe=photos unless resize, resize_to or crop is set.")
OPTION(augment, crop_scale, "0.08,1",
       LIST(.most = 1, .above_least = true, .least_count = 2, .most_count = 2,
            .applies = &with_region),
       "Random resized crop: minimum and maximum area as a fraction of the image.")
OPTION(augment, crop_ratio, "0.75,1.3333333333333333",
       LIST(.most = 1000, .above_least = true, .least_count = 2, .most_count = 2,
            .applies = &with_region),
       "Random resized crop: minimum and maximum ratio of width to height.")
OPTION(augment, mean, "auto",
       LIST(AUTO(0), .least = -INFINITY, .most = INFINITY, .least_count = 1,
            .most_count = OPTION_LIST),
       "Normalization, one number per channel or one for all: (value / 255 - mean) / std, without "
       "/ 255 for float32 values. auto: that in the metadata of the weights of model.init, else "
       "that of the data set, else that of the model; for float32 values the mean and standard "
       "deviation of the training samples.")
OPTION(augment, std, "auto",
       LIST(AUTO(0), .most = INFINITY, .above_least = true, .least_count = 1,
            .most_count = OPTION_LIST),
       "See augment.mean.")
SECTION_END(augment)

SECTION(eval, "resizing and cropping of images in evaluation", EFFECT_LEARNING, NULL)
OPTION(eval, resize, "auto", INTEGER(AUTO(0), .most = IMAGE_LARGEST, .applies = &with_images),
       "Size in pixels to which images are resized first in evaluation. auto: with recipe=photos "
       "and augment.random_resized_crop the model's image size divided by its crop fraction (ViTs: "
       "0.9 or 1, others: 0.875); otherwise augment.resize, else the model's image size.")
OPTION(eval, resize_to, "auto", CHOICE(resize_choice, RESIZE_CHOICES, .applies = &with_images),
       "Meaning of eval.resize. auto: shorter with recipe=photos and augment.random_resized_crop, "
       "otherwise augment.resize_to.")
OPTION(eval, crop, "auto", CHOICE(crop_choice, CROP_CHOICES, .applies = &with_images),
       "Crop of the resized image in evaluation. auto: center with recipe=photos and "
       "augment.random_resized_crop, otherwise augment.crop, with center instead of random. "
       "random: evaluations depend on run.seed.")
OPTION(eval, crop_pad, "0", INTEGER(.most = 4096, .applies = &with_eval_pad),
       "eval.crop=random: pad with this many zeros on each side first.")
OPTION(eval, flip, "off", SWITCH(.applies = &with_mirror),
       "Evaluate each image and its mirror image, and average the logits of both.")
SECTION_END(eval)

SECTION(train, "length of training, batch size, precision", EFFECT_LEARNING, NULL)
OPTION(train, epochs, "10",
       INTEGER(.most = 1e6, .flags = "max-epochs num-epochs total-epochs num-train-epochs",
               .effect = EFFECT_NONE),
       "Number of epochs.")
OPTION(train, steps, "0",
       INTEGER(.most = 1e15, .flags = "max-steps num-steps iterations", .effect = EFFECT_NONE),
       "Number of optimizer steps after which the run ends, regardless of train.epochs. 0: "
       "train.epochs decides.")
OPTION(train, batch, "64",
       INTEGER(.least = 1, .most = BATCH_MOST,
               .flags = "b bs batch-size per-device-train-batch-size train-batch-size"),
       "Batch size per rank: samples per rank and step. Replaces train.global_batch of an earlier "
       "deck.")
OPTION(
    train, global_batch, "0", INTEGER(.most = 1e9, .flags = "global-batch-size total-batch-size"),
    "Batch size over all ranks: samples per step. Set it to get the same losses on any number of "
    "ranks. Replaces train.batch of an earlier deck. 0: train.batch times the number of ranks.")
OPTION(train, accumulate, "1",
       INTEGER(.least = 1, .most = 65536,
               .flags = "grad-accum-steps accumulate-grad-batches gradient-accumulation-steps",
               .effect = EFFECT_NONE),
       "Gradient accumulation: number of micro-batches into which a rank's batch is split to save "
       "memory. The result is the same.")
OPTION(
    train, exact, "off", CHOICE(exact_choice, EXACT_CHOICES),
    "layout: weights, losses and evaluations have the same bits with any number of ranks and "
    "threads, any mesh.strategy and any train.accumulate. The global batch is cut into grains of "
    "train.grain samples, whose gradients are added in a fixed order. Needs train.global_batch.")
OPTION(train, grain, "auto",
       INTEGER(AUTO(0), .least = GRAIN_STEP, .multiple = GRAIN_STEP, .most = 65536,
               .applies = &with_exact),
       "Samples of a grain with train.exact=layout. Results depend on it. A rank computes whole "
       "grains, so ranks without a grain are idle. A global batch has at most 256 grains. auto: an "
       "eighth of train.global_batch, rounded up to a multiple of 8.")
OPTION(train, check_every, "0", INTEGER(.most = 1e9, .applies = &with_exact),
       "Steps between checks for hardware that computes wrongly. In a check, another rank computes "
       "one grain of each rank again. If the gradients differ, a third rank decides. Needs "
       "train.exact=layout and a model without batch norm. 0: never.")
OPTION(train, check_action, "stop",
       CHOICE(check_action_choice, CHECK_ACTION_CHOICES, .applies = &with_checks),
       "Action if train.check_every finds a wrong gradient. stop: end the run with exit code 11 "
       "and without a new checkpoint. continue: log one warning for each wrong gradient.")
OPTION(train, precision, "auto",
       CHOICE(precision_choice, PRECISION_CHOICES,
              .flags = "amp=auto fp16=fp16 half=fp16 bf16=bf16 amp-dtype dtype"),
       "Type of weights and activations in matrix products; reductions and updates are always "
       "fp32. auto: bf16 if the hardware multiplies it, else fp16 if it multiplies that, else "
       "fp32. fp16 on a CPU is for tests: it is multiplied in fp32.")
OPTION(train, loss_scale, "65536",
       NUMBER(.least = 1, .most = 1099511627776.0, .applies = &with_fp16),
       "fp16: initial loss scale, a power of two. It is halved when gradients overflow, which "
       "skips the update, and doubled after 2,000 consecutive updates without overflow.")
OPTION(train, checkpoint_activations, "none",
       CHOICE(checkpoint_activations_choice, CHECKPOINT_ACTIVATIONS_CHOICES,
              .flags = "grad-checkpointing=block gradient-checkpointing=block",
              .applies = &with_vit),
       "Activation checkpointing. block: keep only the output of each block for the backward pass "
       "and recompute the rest: less memory, about a quarter more time, the same result.")
OPTION(train, clip_norm, "0",
       NUMBER(.most = INFINITY, .flags = "clip-grad max-grad-norm gradient-clip-val"),
       "Maximum norm of the gradient; larger gradients are scaled down. 0: no clipping.")
OPTION(train, loss, "auto", CHOICE(train_loss_choice, TRAIN_LOSS_CHOICES, .applies = &with_images),
       "Training loss. Classes: cross_entropy (softmax), bce (binary cross-entropy, averaged over "
       "the classes, DeiT III), bce_sum (summed, big_vision); evaluations report cross_entropy. "
       "Several labels of a sample: bce (averaged over the labels) or bce_sum. Regression: "
       "squared, absolute or huber error. auto: the first of these.")
OPTION(train, weights, "auto", TEXT(.flags = "class-weights class-weight pos-weight"),
       "Weights in the loss of the classes (train.loss=cross_entropy); for arrays also of several "
       "labels, of the classes of pixels, or of the outputs of a regression: numbers for all "
       "(1,0.5,2), or NAME:NUMBER for some (cat:2, t2m:0.1), with the others 1. The name of "
       "a variable applies to all its outputs. balanced: single labels, in inverse proportion to "
       "the training "
       "samples of each class. auto: 1 for all.")
OPTION(train, row_weight, "none",
       CHOICE(row_weight_choice, ROW_WEIGHT_CHOICES, .applies = &with_arrays),
       "Arrays, model.head=dense: weights of the rows in the loss, and in the metrics of a "
       "regression. latitude: cosine of the latitude, by the data's coordinate, else by equally "
       "spaced rows from pole to pole.")
OPTION(train, ignore_label, "auto",
       INTEGER(AUTO(IGNORE_NONE), .least = IGNORE_LEAST, .most = IGNORE_MOST,
               .applies = &with_arrays),
       "Arrays, model.head=dense: number in data.y of pixels that are left out of loss and "
       "metrics. auto: none.")
OPTION(train, label_smoothing, "0",
       NUMBER(.most = 1, .below_most = true, .flags = "smoothing", .applies = &with_images),
       "Label smoothing: share of the target that is spread evenly over all classes.")
OPTION(train, eval_every, "1", INTEGER(.most = 1e6),
       "Epochs between evaluations. 0: only at the end.")
OPTION(train, max_seconds, "0", SECONDS(.most = 1e9, .effect = EFFECT_NONE),
       "Time limit since the start of the program. The run then writes a checkpoint and stops; the "
       "next start resumes it. 0: no limit.")
OPTION(train, early_stop, "0", INTEGER(.most = 1e6, .effect = EFFECT_NONE),
       "Stop after this many evaluations without improvement of checkpoint.monitor. 0: never.")
OPTION(train, test, "off", SWITCH(.effect = EFFECT_NONE),
       "Evaluate the test split once at the end of training, with the weights of the best "
       "checkpoint by checkpoint.monitor if there is one, else with the last weights.")
SECTION_END(train)

SECTION(optim, "optimizer", EFFECT_LEARNING, NULL)
OPTION(optim, name, "adamw", CHOICE(optimizer_choice, OPTIMIZER_CHOICES, .flags = "opt optimizer"),
       "Optimizer, as defined in PyTorch, or in timm (muon, lion, lamb, lars), with its defaults "
       "of betas and eps. Defaults of lr, weight_decay and momentum differ.")
OPTION(optim, lr, "0.0003", NUMBER(.most = INFINITY, .flags = "learning-rate base-lr"),
       "Learning rate.")
OPTION(optim, lr_scale, "none", CHOICE(rate_scale_choice, RATE_SCALE_CHOICES),
       "Scaling of the learning rate with the global batch size / optim.lr_batch.")
OPTION(optim, lr_batch, "64", INTEGER(.least = 1, .most = 1e9, .applies = &with_lr_scale),
       "Global batch size for which optim.lr is meant.")
OPTION(optim, weight_decay, "0.0001", NUMBER(.most = INFINITY, .flags = "wd"),
       "Weight decay. adamw, muon, lion: decoupled. lamb: added to the direction. Other "
       "optimizers: added to the gradient.")
OPTION(optim, no_decay, "off", SWITCH(),
       "No weight decay on norms, biases, tokens, position embeddings and LayerScale.")
OPTION(optim, layer_decay, "1", NUMBER(.most = 1, .above_least = true),
       "Layer-wise learning-rate decay: each unit's learning rate is that of the next unit times "
       "this factor.")
OPTION(optim, freeze, "", TEXT(),
       "Comma-separated units, or prefixes of tensor names, that are not trained: stem,blocks.0.")
OPTION(optim, ema, "0",
       NUMBER(.most = 1, .below_most = true, .flags = "model-ema=0.9998 model-ema-decay ema-decay"),
       "Decay of an exponential moving average of the weights (EMA), which is evaluated and saved. "
       "0: none.")
OPTION(optim, momentum, "0", NUMBER(.most = 1, .below_most = true, .applies = &with_momentum),
       "Momentum of sgd, rmsprop, lars and muon. timm's default for muon is 0.95.")
OPTION(optim, nesterov, "off", SWITCH(.applies = &with_nesterov),
       "Nesterov momentum (sgd, muon, lars).")
OPTION(optim, betas, "auto",
       LIST(AUTO(0), .most = 1, .below_most = true, .least_count = 2, .most_count = 2,
            .applies = &with_betas),
       "Decay rates of the first and second moment (adam, adamw, lamb; with muon for tensors that "
       "are not matrices). lion: the first rate for the direction, the second for the moment. "
       "auto: 0.9,0.999; lion 0.9,0.99; muon 0.9,0.95.")
OPTION(optim, eps, "auto", NUMBER(AUTO(-1), .most = INFINITY, .applies = &with_eps),
       "Added to the denominator (adam, adamw, rmsprop, muon, lamb, lars). muon: also the smallest "
       "norm by which a matrix is divided. auto: 1e-8; lamb 1e-6; muon 1e-7.")
OPTION(optim, alpha, "0.99", NUMBER(.most = 1, .below_most = true, .applies = &with_rmsprop),
       "Smoothing constant of rmsprop.")
OPTION(optim, trust_coeff, "auto", NUMBER(AUTO(-1), .most = INFINITY, .applies = &with_lars),
       "Factor of the trust ratio with lars. auto: 0.001.")
OPTION(optim, trust_clip, "off", SWITCH(.applies = &with_trust_ratio),
       "Limit the trust ratio. lamb: to 1 (LAMBC). lars: to 1 / learning rate (LARC).")
OPTION(optim, always_adapt, "off", SWITCH(.applies = &with_trust_ratio),
       "lamb, lars: also adapt the rate of tensors without weight decay (optim.no_decay).")
OPTION(optim, muon_scale, "match_rms_adamw",
       CHOICE(muon_scale_choice, MUON_SCALE_CHOICES, .applies = &with_muon),
       "Factor of muon's orthogonal update of a matrix with `out` rows and `in` columns. "
       "match_rms_adamw: 0.2 sqrt(max(out, in)), for learning rates like those of adamw. original: "
       "sqrt(max(1, out / in)).")
OPTION(optim, muon_exclude, "", TEXT(.applies = &with_muon),
       "Comma-separated units, or prefixes of tensor names, that muon updates as adamw does: head. "
       "Tensors that are not matrices are always updated in this way.")
SECTION_END(optim)

SECTION(schedule, "learning-rate schedule", EFFECT_LEARNING, NULL)
OPTION(schedule, name, "constant",
       CHOICE(schedule_choice, SCHEDULE_CHOICES, .flags = "sched scheduler lr-scheduler"),
       "Learning-rate schedule.")
OPTION(schedule, per, "step", CHOICE(schedule_per_choice, SCHEDULE_PER_CHOICES),
       "Update the learning rate after each step or each epoch; also the unit of warmup and "
       "step_size.")
OPTION(schedule, warmup, "0", INTEGER(.most = 1e12, .flags = "warmup-epochs warmup-steps"),
       "Steps or epochs of linear warm-up before the schedule starts.")
OPTION(schedule, min_lr, "0", NUMBER(.most = INFINITY, .applies = &with_minimum),
       "Final learning rate of cosine; lower bound of plateau.")
OPTION(schedule, step_size, "30", INTEGER(.least = 1, .most = 1e12, .applies = &with_step),
       "step: steps or epochs between two reductions.")
OPTION(schedule, gamma, "0.1", NUMBER(.most = INFINITY, .applies = &with_step),
       "step: factor of each reduction.")
OPTION(schedule, pct_start, "0.3", NUMBER(.most = 1, .applies = &with_onecycle),
       "onecycle: fraction of the run in which the learning rate increases.")
OPTION(schedule, div_factor, "25",
       NUMBER(.most = INFINITY, .above_least = true, .applies = &with_onecycle),
       "onecycle: optim.lr divided by the initial learning rate.")
OPTION(schedule, final_div_factor, "10000",
       NUMBER(.most = INFINITY, .above_least = true, .applies = &with_onecycle),
       "onecycle: initial learning rate divided by the final one.")
OPTION(schedule, factor, "0.1",
       NUMBER(.most = 1, .above_least = true, .below_most = true, .applies = &with_plateau),
       "plateau: factor of each reduction.")
OPTION(schedule, threshold, "0.0001", NUMBER(.most = INFINITY, .applies = &with_plateau),
       "plateau: relative change that counts as an improvement.")
OPTION(schedule, patience, "10", INTEGER(.most = 1e6, .applies = &with_plateau),
       "plateau: evaluations without improvement before a reduction.")
OPTION(schedule, end_factor, "0", NUMBER(.most = INFINITY, .applies = &with_linear),
       "linear: final factor of the learning rate.")
SECTION_END(schedule)

SECTION(mesh, "parallel strategy and communication between ranks", EFFECT_NONE, NULL)
OPTION(mesh, strategy, "ddp", CHOICE(strategy_choice, STRATEGY_CHOICES),
       "Parallel strategy. ddp: every rank holds the whole model. zero1: optimizer state is "
       "sharded. zero2: gradients are sharded too. fsdp: weights are sharded too. hsdp: fsdp "
       "within each node, ddp between nodes.")
OPTION(mesh, shard, "0", INTEGER(.most = 1e6, .applies = &with_shards),
       "Number of ranks that share one copy of the model. 0: all ranks; with hsdp the ranks of a "
       "node.")
OPTION(mesh, reduce, "fp32", CHOICE(reduce_choice, REDUCE_CHOICES),
       "Type in which gradients are summed over ranks. compute: that of train.precision.")
OPTION(mesh, transport, "auto", CHOICE(transport_choice, TRANSPORT_CHOICES),
       "Transport of collectives. ring: messages around a ring of ranks. shared: shared memory of "
       "a node. hierarchical: first within each node, then between nodes. auto: for each group of "
       "ranks the fastest one that its layout allows; the log names it.")
OPTION(mesh, elastic, "off", SWITCH(),
       "Keep the global batch of the checkpoint when a run resumes on another number of ranks, "
       "although train.batch is per rank. A rank with more samples than train.batch computes them "
       "in micro-batches.")
OPTION(mesh, timeout, "10m", SECONDS(.most = 1e9),
       "A collective that takes longer ends the job and names the missing ranks. 0: no limit.")
OPTION(mesh, heartbeat_timeout, "20", SECONDS(.most = 1e9),
       "A rank without a heartbeat for this time (node down, cable unplugged, process stopped) "
       "ends the job and is named. 0: no limit, as needed with debuggers.")
OPTION(mesh, stall_warning, "20", SECONDS(.most = 1e9, .applies = &with_heartbeats),
       "Warn about a rank that is alive but makes no progress in a step for this time, and for ten "
       "times the median step time, while other ranks wait for it. The run continues until "
       "mesh.timeout. 0: no warning. Needs heartbeats.")
SECTION_END(mesh)

SECTION(checkpoint, "saving and resuming", EFFECT_NONE, NULL)
OPTION(checkpoint, every, "1", NUMBER(.most = 1e6, .flags = "save-every save-freq save-interval"),
       "Epochs between checkpoints; fractions are allowed (0.5). 0: only at the end.")
OPTION(checkpoint, every_seconds, "0", SECONDS(.most = 1e9),
       "Also write a checkpoint when this time has passed since the last one. 0: never.")
OPTION(checkpoint, keep, "3", INTEGER(.least = 1, .most = 1e6),
       "Number of most recent checkpoints to keep, in addition to the best one.")
OPTION(checkpoint, memory, "0", INTEGER(.most = 1e9),
       "Steps between two checkpoints in memory (/dev/shm), with a copy on the next node. A "
       "restarted run resumes from the newest checkpoint in memory or on disk. Needs memory for "
       "two checkpoints; docs/resume.md. 0: none.")
OPTION(checkpoint, resume, "auto",
       TEXT(.flags = "resume=auto auto-resume=auto ckpt-path resume-from-checkpoint"),
       "Checkpoint to resume from. auto: the newest valid checkpoint in the run's folder, or in "
       "the newest unfinished run of the same name and deck. never: start over. Else the FILE of a "
       "checkpoint.")
OPTION(checkpoint, monitor, "auto", CHOICE(monitor_choice, MONITOR_CHOICES),
       "Metric that decides which checkpoint is the best: a column of metrics.csv that the "
       "evaluations have. auto: top1 if each image has one class, else loss. An evaluation better "
       "than all before writes a checkpoint in addition to those of checkpoint.every, unless "
       "checkpoint.every is 0. none: no best checkpoint.")
OPTION(checkpoint, writers, "auto", CHOICE(writers_choice, WRITERS_CHOICES),
       "Ranks that write. all: all ranks write into one file on a shared file system. node0: the "
       "first node writes for all, for nodes with private disks. auto: detect it.")
OPTION(checkpoint, background, "auto", CHOICE(switch_choice, SWITCH_CHOICES),
       "Write checkpoints in the background during the next steps. Needs host memory for a copy of "
       "the data that a rank writes. auto: yes with a GPU. Never done on nodes with private disks.")
SECTION_END(checkpoint)

SECTION(output, "log, tables, TensorBoard events and copies", EFFECT_NONE, NULL)
OPTION(output, tensorboard_tags, "vittrain",
       CHOICE(tags_choice, TAGS_CHOICES, .applies = &with_tensorboard),
       "Names and steps of the TensorBoard points: vittrain's (also course), or those of PyTorch's "
       "ImageNet example or of PyTorch Lightning (docs/outputs.md).")
OPTION(output, log_every, "10",
       INTEGER(.least = 1, .most = 1e9, .flags = "p print-freq log-interval log-every-n-steps"),
       "Steps between two rows of metrics.csv and progress lines.")
OPTION(output, receipt, "0", INTEGER(.most = 1e12),
       "Steps between two rows of receipt.csv, which `vittrain verify` compares with a replay of "
       "the steps. The last step of the run has a row too. A row reads weights and optimizer state "
       "once. 0: no receipts.")
OPTION(output, verbose, "off", SWITCH(),
       "Print the classes of memory at the start. off: only train.log contains them. -v and "
       "--verbose turn it on.")
OPTION(output, monitor, "10s", SECONDS(.most = 300),
       "Seconds between two readings of the sensors (load, memory, a GPU's temperature and power), "
       "which are written to monitor.csv and TensorBoard and summarized at the end. At least 0.1; "
       "0: off.")
OPTION(output, tensorboard, "on", SWITCH(), "Write events for TensorBoard.")
OPTION(output, logbook, "runs/logbook", TEXT(),
       "Folder of the log book. A run adds a row to its index when it ends. Empty: none.")
OPTION(output, target, "0", NUMBER(.most = 1),
       "Top-1 accuracy from 0 to 1. `vittrain report` shows the time after which an evaluation "
       "first reached it. 0: none.")
OPTION(output, weights, "on", SWITCH(),
       "Write the final weights as safetensors, and those of the best evaluation.")
OPTION(output, upload, "", TEXT(),
       "REMOTE:PATH with a remote of rclone, to which the run's folder is copied after each "
       "checkpoint and at the end, without older checkpoints (docs/store.md). If the path ends in "
       "/ or :, the name of the run's folder is appended. Empty: no copy.")
OPTION(output, upload_wait, "1m", SECONDS(.most = 1e9, .applies = &with_upload),
       "Maximum time that the end of the run waits for the last copy. 0: no last copy.")
SECTION_END(output)

SECTION(debug, "smaller runs, checks and profiling", EFFECT_LEARNING, NULL)
OPTION(debug, batches, "0",
       INTEGER(.most = 1e12, .flags = "fast-dev-run=1 dry-run=1 limit-train-batches=1"),
       "Maximum number of batches in each epoch and each evaluation. With train.exact=layout, both "
       "count global batches of training. 0: all.")
OPTION(debug, fraction, "1", NUMBER(.most = 1, .above_least = true), "Fraction of the data to use.")
OPTION(debug, overfit, "0", INTEGER(.most = 1e9, .flags = "overfit-batches"),
       "Train on the first N batches only, repeatedly. 0: on all.")
OPTION(debug, flip, "off", CHOICE(flip_choice, FLIP_CHOICES, .applies = &with_checks),
       "Inject faults: invert one bit on rank debug.flip_rank at each check (train.check_every). "
       "activation, gradient: of the checked grain. weight: in the rank's copy of the weights. "
       "message: in the samples that the rank receives to check another rank.")
OPTION(debug, flip_rank, "0", INTEGER(.most = 1e6, .applies = &with_flip),
       "Rank in which debug.flip injects faults.")
OPTION(debug, profile, "off", SWITCH(.flags = "profile=on profiler=on", .effect = EFFECT_NONE),
       "Measure the time of each unit and operation and print it at the end, without the first two "
       "steps, which choose kernels.")
OPTION(debug, capture, "0", INTEGER(.most = 1e12),
       "Step to be recorded by an external profiler that waits for cudaProfilerStart, such as ncu "
       "--profile-from-start off. 0: none. With cuda.graph=off it sees every kernel.")
OPTION(debug, check_weights, "0", INTEGER(.most = 1e12, .effect = EFFECT_NONE),
       "Steps between checks that all ranks hold the same weights. 0: never.")
OPTION(debug, wait, "off", SWITCH(),
       "Synchronize with the GPU in each step. A value that is not finite is then reported in the "
       "step where it occurs, and times belong to the step in which they are measured.")
OPTION(debug, pause, "none", TEXT(.effect = EFFECT_NONE),
       "PHASE:STEP:FILE or PHASE:STEP:FILE:RANK, as in backward:20:go. In this phase of this step "
       "each rank, or only RANK, writes its process ID to FILE.RANK, prints it, and waits until "
       "FILE exists, so that you can attach a debugger or kill the process. Phases: start, mpi, "
       "data_open, model_open, memory, folder, folder_lock, weights_read (step 0), data, forward, "
       "backward, reduce, update, evaluation, checkpoint_memory, checkpoint_write, "
       "checkpoint_name, checkpoint_link, weights_write, test, results, end.")
OPTION(
    debug, rank_factor, "1", INTEGER(.least = 1, .most = 1e6, .effect = EFFECT_NONE),
    "Multiply the number of ranks by this in limits that depend on it. For tests of large runs on "
    "few ranks.")
SECTION_END(debug)

SECTION(cuda, "NVIDIA GPUs", EFFECT_LEARNING, NULL)
OPTION(cuda, graph, "on", SWITCH(.applies = &with_gpu),
       "Record a step as a CUDA graph and replay it, which makes small models faster. Not used "
       "with train.accumulate or debug.profile.")
OPTION(cuda, tf32, "off", SWITCH(.applies = &with_gpu),
       "Use TF32 for fp32 matrix products and convolutions on GPUs: operands are rounded to 10 "
       "bits of mantissa; several times faster.")
OPTION(cuda, dependent_launch, "off", SWITCH(.applies = &with_gpu),
       "Launch each kernel before the preceding one ends (programmatic dependent launch), which "
       "makes small models faster. No effect below compute capability 9.0.")
OPTION(cuda, cache, "auto", TEXT(),
       "Folder that stores the fastest algorithms of matrix products of GPUs. auto: "
       "~/.cache/vittrain. none: measure them in each run. A resumed run uses the algorithms in "
       "its checkpoint.")
OPTION(cuda, share, "off", SWITCH(.applies = &with_gpu),
       "Allow several ranks on one GPU. For tests; it is slower.")
SECTION_END(cuda)

SECTION(predict, "predictions", EFFECT_OF_COMMAND, NULL)
OPTION(predict, split, "test", CHOICE(data_split, SPLIT_CHOICES), "Split to predict.")
OPTION(predict, output, "", TEXT(),
       "File for the predictions: .csv, .json; of arrays also .h5, .nc. -: standard output, as "
       "CSV. Empty: standard output, as a table if files are given, else as CSV.")
SECTION_END(predict)

SECTION(bench, "benchmarks", EFFECT_OF_COMMAND, NULL)
OPTION(bench, max, "256MiB", BYTES(.least = 4, .most = 0x1p40), "Largest buffer.")
OPTION(
    bench, seconds, "0.3", SECONDS(.most = 1e6),
    "Duration of the measurement for each transport, collective and size (at least 5 repetitions).")
OPTION(bench, output, "", TEXT(),
       "CSV file to which the results are appended, in the columns of benchmarks/README.md. Empty: "
       "none.")
OPTION(bench, machine, "", TEXT(),
       "Machine file to which the measurements are added, for plan.machine. Other keys of the file "
       "stay, comments do not. Empty: none.")
SECTION_END(bench)

SECTION(plan, "memory and time of a planned run", EFFECT_OF_COMMAND, NULL)
OPTION(plan, ranks, "0", INTEGER(.most = 1e6),
       "Number of ranks to plan for. 0: the number of ranks started.")
OPTION(plan, node_ranks, "0", INTEGER(.most = 1e6),
       "Ranks per node. 0: as started, or all on one node.")
OPTION(plan, memory, "0", BYTES(.most = LARGEST, .effect = EFFECT_NONE),
       "Memory that a rank may use. plan reports the batch that fits, find batch searches for it, "
       "and train does not start if it needs more. 0: the free memory of the GPU or node, less a "
       "reserve of 5 %.")
OPTION(plan, machine, "auto", TEXT(),
       "Machine file (bench.machine), from which plan predicts the time of a step. auto: "
       "machine.ini in the working directory if it exists. none: no times.")
OPTION(plan, cluster, "", TEXT(),
       "File that describes a cluster (input/clusters/*.ini, or bench.machine). plan predicts this "
       "run on 1 to 8192 ranks of it. Empty: none.")
OPTION(plan, operations, "", TEXT(),
       "CSV file for the kernels of one training step with their floating-point operations and "
       "minimum bytes moved (benchmarks/README.md). Empty: none.")
SECTION_END(plan)

SECTION(find, "learning-rate range test", EFFECT_OF_COMMAND, NULL)
OPTION(find, first, "1e-08", NUMBER(.most = INFINITY, .above_least = true),
       "find lr: first learning rate.")
OPTION(find, last, "10", NUMBER(.most = INFINITY, .above_least = true),
       "find lr: last learning rate. The learning rate grows by the same factor at each step.")
OPTION(find, steps, "0", INTEGER(.most = 1e9),
       "find lr: number of steps. 0: the steps of one epoch.")
OPTION(find, beta, "0.98", NUMBER(.most = 1, .below_most = true),
       "find lr: smoothing factor of the loss (exponential moving average). 0: no smoothing.")
OPTION(find, stop, "4", NUMBER(.most = INFINITY),
       "find lr: stop when the smoothed loss exceeds its minimum times this factor. 0: stop at the "
       "last learning rate or at NaN only.")
OPTION(find, output, "find_lr", TEXT(),
       "find lr: name of the table of the curve, without .csv. Empty: no file.")
SECTION_END(find)

SECTION(verify, "replay of a run's steps", EFFECT_OF_COMMAND, NULL)
OPTION(verify, from, "-1", INTEGER(.least = -1, .most = 1e12),
       "verify: step of the checkpoint at which the replay starts. 0: the start of the run. -1: "
       "the newest checkpoint before the last receipt.")
OPTION(verify, to, "0", INTEGER(.most = 1e12),
       "verify: step up to which receipts are compared. 0: all receipts.")
SECTION_END(verify)

#undef SECTION
#undef SECTION_END
#undef OPTION
#undef VALUE_ONLY
#undef TEXT
#undef INTEGER
#undef NUMBER
#undef SECONDS
#undef BYTES
#undef SWITCH
#undef LIST
#undef CHOICE
