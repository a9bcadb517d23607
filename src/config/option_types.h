// SPDX-License-Identifier: BSD-3-Clause
/* Types shared by the headers of the options' sections. */
#ifndef VITTRAIN_CONFIG_OPTION_TYPES_H
#define VITTRAIN_CONFIG_OPTION_TYPES_H

#include <stdbool.h>
#include <stdint.h>

/* Limits of data: channels of an image, its height and width in pixels (limit of the rotation's
 * fixed-point numbers), classes. */
enum { IMAGE_CHANNELS = 512, IMAGE_LARGEST = 8192, CLASSES_MOST = 500000 };

enum {
    OPTION_TEXT = 1024, /* bytes of a text, with the final zero */
    OPTION_LIST = 32,   /* numbers of a list */
    OPTION_KEY = 64     /* bytes of a section's or a key's name */
};

struct option_list {
    int count;
    double value[OPTION_LIST];
};

/* One number for each channel, or one for all. A count of 0: none. */
struct channel_values {
    int count;
    double value[IMAGE_CHANNELS];
};

/* Mean and standard deviation of the training samples: of each channel of the pixels, and of each
 * target of a regression. */
struct value_statistics {
    struct channel_values mean, std, target_mean, target_std;
};

/* The values of an option with choices are one list, LIST(X): X(CONSTANT, "word") for each choice.
 * Both its enum and the table's list of words are generated from it. */
#define OPTION_CONSTANT(constant, word) constant,

/* On, off or decided by the program. */
#define SWITCH_CHOICES(X) X(SWITCH_AUTO, "auto") X(SWITCH_OFF, "off") X(SWITCH_ON, "on")
enum switch_choice { SWITCH_BEFORE_FIRST = -2, SWITCH_CHOICES(OPTION_CONSTANT) };

#endif
