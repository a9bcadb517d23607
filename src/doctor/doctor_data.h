/* What a node finds of the data set, for comparing with the first node's. */
#ifndef VITTRAIN_DOCTOR_DOCTOR_DATA_H
#define VITTRAIN_DOCTOR_DOCTOR_DATA_H

#include "config/option_types.h"
#include "doctor/doctor.h"

enum { DATA_SAMPLES = 64 };

struct data_sample {
    uint64_t order; /* by the file's name */
    uint32_t sum;   /* CRC32C of what was read of it */
    char path[OPTION_TEXT + 256];
};

struct data_look {
    char root[OPTION_TEXT];
    bool packed;
    double seconds; /* most */
    /* What is found: */
    struct error error; /* it is not there */
    bool cut;           /* the time was over before all was seen: the rest says little */
    int64_t files, bytes;
    uint64_t names; /* sum of hashes of names below the root with their sizes */
    struct data_sample sample[DATA_SAMPLES]; /* in the order of `order` */
    int samples;
    size_t root_length;
    double start;
};

/* Fills in what is found; argument: a struct data_look with root, packed and seconds. */
void doctor_data_read(void *argument);

/* Is this node's another than the first one's? The text says how; "" where it is not, or where that
 * cannot be told. */
bool doctor_data_differs(const struct data_look *own, const struct data_look *first, char *text,
                         size_t size);

#endif
