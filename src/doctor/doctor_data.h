/* Summary of a node's copy of the data set, for comparison between nodes. */
#ifndef VITTRAIN_DOCTOR_DOCTOR_DATA_H
#define VITTRAIN_DOCTOR_DOCTOR_DATA_H

#include "config/option_types.h"
#include "doctor/doctor.h"

enum { DATA_SAMPLES = 64 };

struct data_sample {
    uint64_t order; /* hash of the file's name */
    uint32_t sum;   /* CRC32C of the pieces read */
    char path[OPTION_TEXT + 256];
};

struct data_look {
    char root[OPTION_TEXT];
    bool packed;
    double seconds; /* time limit */
    /* The result. */
    struct error error; /* the data set is missing */
    bool cut;           /* time limit reached: the summary is incomplete */
    int64_t files, bytes;
    uint64_t names; /* sum of hashes of names below the root with their sizes */
    struct data_sample sample[DATA_SAMPLES]; /* sorted by `order` */
    int samples;
    size_t root_length;
    double start;
};

/* Fill in the result. The argument is a struct data_look with root, packed and seconds. */
void doctor_data_read(void *argument);

/* True if this node's data set differs from that of the first node; the text describes the
 * difference. "" if they are equal or cannot be compared. */
bool doctor_data_differs(const struct data_look *own, const struct data_look *first, char *text,
                         size_t size);

#endif
