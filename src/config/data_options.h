// SPDX-License-Identifier: BSD-3-Clause
/* Options of the data set and its images: [data], [augment] and [eval]. Defaults, ranges and help:
 * options_table.c. */
#ifndef VITTRAIN_CONFIG_DATA_OPTIONS_H
#define VITTRAIN_CONFIG_DATA_OPTIONS_H

#include "config/option_types.h"

#define VALIDATION_CHOICES(X)                                                                      \
    X(VALIDATION_TEST, "test")                                                                     \
    X(VALIDATION_REFERENCE, "reference")                                                           \
    X(VALIDATION_NONE, "none")                                                                     \
    X(VALIDATION_VAL, "val")
enum validation_choice { VALIDATION_CHOICES(OPTION_CONSTANT) VALIDATION_FRACTION };

#define VAL_FROM_CHOICES(X) X(VAL_FROM_CLASSES, "classes") X(VAL_FROM_END, "end")
enum val_from_choice { VAL_FROM_CHOICES(OPTION_CONSTANT) };

#define SHUFFLE_CHOICES(X) X(SHUFFLE_OFF, "off") X(SHUFFLE_ON, "on") X(SHUFFLE_CHUNKS, "chunks")
enum shuffle_choice { SHUFFLE_CHOICES(OPTION_CONSTANT) };

#define TASK_CHOICES(X)                                                                            \
    X(TASK_CLASSES, "classes") X(TASK_LABELS, "labels") X(TASK_REGRESSION, "regression")
enum task_choice { TASK_CHOICES(OPTION_CONSTANT) };

#define DATA_ORDER_CHOICES(X)                                                                      \
    X(DATA_ORDER_AUTO, "auto") X(DATA_ORDER_CHW, "chw") X(DATA_ORDER_HWC, "hwc")
enum data_order_choice { DATA_ORDER_CHOICES(OPTION_CONSTANT) };

#define COORDINATES_CHOICES(X) X(COORDINATES_CHECK, "check") X(COORDINATES_IGNORE, "ignore")
enum coordinates_choice { COORDINATES_CHOICES(OPTION_CONSTANT) };
#define MISSING_CHOICES(X) X(MISSING_FILL, "fill") X(MISSING_ERROR, "error")
enum missing_choice { MISSING_CHOICES(OPTION_CONSTANT) };

#define VALUES_CHOICES(X) X(VALUES_UINT8, "uint8") X(VALUES_FLOAT32, "float32")
enum values_choice { VALUES_CHOICES(OPTION_CONSTANT) };

#define CHECK_CHOICES(X) X(CHECK_NONE, "none") X(CHECK_HEADER, "header") X(CHECK_FULL, "full")
enum check_choice { CHECK_CHOICES(OPTION_CONSTANT) };

#define TRUNCATED_CHOICES(X) X(TRUNCATED_ERROR, "error") X(TRUNCATED_ACCEPT, "accept")
enum truncated_choice { TRUNCATED_CHOICES(OPTION_CONSTANT) };

#define RESIZE_CHOICES(X) X(RESIZE_SQUARE, "square") X(RESIZE_SHORTER, "shorter")
#define RESIZE_OR_AUTO_CHOICES(X) X(RESIZE_AUTO, "auto") RESIZE_CHOICES(X)
enum resize_choice { RESIZE_OR_AUTO_CHOICES(OPTION_CONSTANT) };

#define CROP_CHOICES(X) X(CROP_NONE, "none") X(CROP_CENTER, "center") X(CROP_RANDOM, "random")
#define CROP_OR_AUTO_CHOICES(X) X(CROP_AUTO, "auto") CROP_CHOICES(X)
enum crop_choice { CROP_OR_AUTO_CHOICES(OPTION_CONSTANT) };

#define ROLL_CHOICES(X) X(ROLL_NONE, "none") X(ROLL_X, "x") X(ROLL_Y, "y") X(ROLL_XY, "xy")
enum roll_choice { ROLL_CHOICES(OPTION_CONSTANT) };

#define RECIPE_CHOICES(X)                                                                          \
    X(RECIPE_AUTO, "auto")                                                                         \
    X(RECIPE_CIFAR, "cifar") X(RECIPE_PHOTOS, "photos") X(RECIPE_PLAIN, "plain")
enum recipe_choice { RECIPE_CHOICES(OPTION_CONSTANT) };

#define INTERPOLATION_CHOICES(X)                                                                   \
    X(INTERPOLATION_AUTO, "auto")                                                                  \
    X(INTERPOLATION_BILINEAR, "bilinear")                                                          \
    X(INTERPOLATION_BICUBIC, "bicubic")
enum interpolation_choice { INTERPOLATION_CHOICES(OPTION_CONSTANT) };

struct data_options {
    char format[OPTION_TEXT];
    char root[OPTION_TEXT]; /* empty: the sample of CIFAR-10 installed with the program */
    int64_t workers;
    int shuffle; /* enum shuffle_choice */
    bool drop_last;
    int64_t shuffle_block; /* samples; 0: the whole set is shuffled */
    int val;               /* enum validation_choice */
    double val_fraction;   /* of the training samples; 0 unless val is VALIDATION_FRACTION */
    int val_from;          /* enum val_from_choice */
    int64_t samples, image, classes; /* of synthetic data */
    int64_t distinct;                /* different images of synthetic data; 0: all */
    int task;                        /* enum task_choice, of synthetic data and arrays */
    int values;                      /* enum values_choice, of synthetic data */
    char x[OPTION_TEXT],
        y[OPTION_TEXT];            /* data sets of arrays: images, separated by commas; labels */
    int order;                     /* enum data_order_choice, of arrays */
    bool join;                     /* files of arrays are one series */
    int coordinates;               /* enum coordinates_choice, of arrays */
    int missing;                   /* enum missing_choice, of arrays */
    char transform[OPTION_TEXT];   /* functions of variables of arrays: "log1p:u,sqrt:v" */
    bool skip_broken, allow_empty; /* of image folders, as all members below */
    int check;                     /* enum check_choice */
    int truncated;                 /* enum truncated_choice */
    int scaled_decode;             /* enum switch_choice */
    bool exif;
    int64_t max_pixels;
};

/* options_resolve (train/run.h) replaces automatic values. */
struct augment_options {
    int recipe;                            /* enum recipe_choice */
    double flip, rotate, translate, erase; /* below 0: auto */
    struct option_list erase_scale, erase_ratio;
    double vflip, noise, channel_dropout;
    bool rot90;
    int roll; /* enum roll_choice */
    int64_t crop_pad;
    int64_t rand_augment, rand_magnitude;
    double brightness, contrast, saturation, hue, greyscale;
    bool three_augment;
    int64_t repeat;
    double mixup, cutmix, mix_switch;
    int64_t resize;          /* pixels; 0: the model's image size */
    int resize_to;           /* enum resize_choice */
    int crop;                /* enum crop_choice */
    int interpolation;       /* enum interpolation_choice */
    int random_resized_crop; /* enum switch_choice */
    struct option_list crop_scale, crop_ratio;
    struct option_list mean, std; /* empty: the model's */
};

struct eval_options {
    int64_t resize; /* pixels; 0: the value of augment */
    int resize_to;  /* enum resize_choice; auto: the value of augment */
    int crop;       /* enum crop_choice; auto: the value of augment, center instead of random */
    int64_t crop_pad;
    bool flip;
    char output[OPTION_TEXT]; /* of the command eval; empty: standard output */
};

#endif
