// SPDX-License-Identifier: BSD-3-Clause
/* CRC32C (Castagnoli), as in TensorBoard's records and our checkpoints. */
#ifndef VITTRAIN_CORE_CRC32C_H
#define VITTRAIN_CORE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Return the CRC32C of `data`, continued from `crc` (0 for the first piece). crc32c_update(0,
 * "123456789", 9) is 0xe3069283. */
uint32_t crc32c_update(uint32_t crc, const void *data, size_t bytes);

#endif
