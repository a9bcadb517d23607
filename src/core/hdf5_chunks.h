// SPDX-License-Identifier: BSD-3-Clause
/* Places of the chunks of HDF5 data sets. The time is proportional to the number of chunks, but
 * HDF5 before 1.14 has no such function: H5Dget_chunk_info walks from the first chunk to the
 * wanted one. There, H5Dread_chunk is called for each chunk, in a file whose driver notes the place
 * and does not read. */
#ifndef VITTRAIN_CORE_HDF5_CHUNKS_H
#define VITTRAIN_CORE_HDF5_CHUNKS_H

#include <hdf5.h>
#include <stdbool.h>
#include <stdint.h>

/* Called for each chunk, with the index of its first element in each dimension. Return a negative
 * number to stop. */
typedef int hdf5_chunk_visit(const hsize_t *first, unsigned skipped, haddr_t offset, hsize_t bytes,
                             void *context);

/* Select the driver that hdf5_chunks_visit needs. Negative if HDF5 failed. */
herr_t hdf5_chunks_access(hid_t access);

/* Visit the chunks that exist. The data set has `dimensions` dimensions with these extents and
 * sizes of chunks. False if HDF5 failed or `visit` stopped. */
bool hdf5_chunks_visit(hid_t dataset, int dimensions, const int64_t *extent, const int64_t *chunk,
                       hdf5_chunk_visit *visit, void *context);

#endif
