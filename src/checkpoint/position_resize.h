/* Resize learned position embeddings to another grid of patches. */
#ifndef VITTRAIN_CHECKPOINT_POSITION_RESIZE_H
#define VITTRAIN_CHECKPOINT_POSITION_RESIZE_H

#include <stdint.h>

/* from: [prefix + from_side^2, width], to: [prefix + to_side^2, width]. The first `prefix` rows
 * (class token) are copied, the grid is resized bicubically with antialiasing: timm's
 * resample_abs_pos_embed, which is torch's interpolate(mode="bicubic", antialias=True). */
void position_resize(const float *from, int64_t from_side, float *to, int64_t to_side,
                     int64_t prefix, int64_t width);

#endif
