// SPDX-License-Identifier: BSD-3-Clause
/* WebP with libwebp: lossy and lossless; of an animation the first frame on a black canvas, as in
 * Pillow. Only the area is converted to RGB. Alpha is dropped. */
#include <string.h>
#include <webp/decode.h>
#include <webp/demux.h>

#include "base/base.h"
#include "image/image_file.h"

/* Pixels outside the area that chroma upsampling reads. */
enum { EDGE = 2 };

bool image_webp_header(const uint8_t *bytes, size_t count, struct image_header *header,
                       bool *incomplete, struct error *error)
{
    WebPBitstreamFeatures features;
    const VP8StatusCode status = WebPGetFeatures(bytes, count, &features);
    *incomplete = status == VP8_STATUS_NOT_ENOUGH_DATA;
    if (status != VP8_STATUS_OK)
        return !*incomplete &&
               error_set(error, ERROR_DATA, "is a damaged WebP: its header is invalid");
    header->width = features.width;
    header->height = features.height;
    header->has_alpha = features.has_alpha != 0;
    return true;
}

/* The image data, and their rectangle in the image: an animation's frame may be smaller. */
struct webp_frame {
    const uint8_t *bytes;
    size_t count;
    struct image_area area;
};

/* Find the first frame of an animation. */
static bool find_frame(const uint8_t *bytes, size_t count, struct webp_frame *frame,
                       struct error *error)
{
    const WebPData data = {bytes, count};
    WebPDemuxState state = WEBP_DEMUX_PARSE_ERROR;
    WebPIterator first = {0};
    WebPDemuxer *demuxer = WebPDemuxPartial(&data, &state);
    const bool is_found = demuxer != NULL && WebPDemuxGetFrame(demuxer, 1, &first) != 0;
    if (is_found)
        *frame = (struct webp_frame){first.fragment.bytes,
                                     first.fragment.size,
                                     {first.x_offset, first.y_offset, first.width, first.height}};
    WebPDemuxReleaseIterator(&first);
    WebPDemuxDelete(demuxer);
    if (state == WEBP_DEMUX_PARSE_ERROR || (state == WEBP_DEMUX_DONE && !is_found))
        return error_set(error, ERROR_DATA, "is a damaged WebP: an invalid animation");
    return (is_found && state == WEBP_DEMUX_DONE) || image_file_is_cut(error);
}

/* The size in the frame's data bounds the memory that libwebp uses: it must be that of the frame,
 * which lies inside the image. */
static bool check_frame(const struct webp_frame *frame, const struct image_header *header,
                        struct error *error)
{
    WebPBitstreamFeatures features;
    const struct image_area *area = &frame->area;
    const VP8StatusCode status = WebPGetFeatures(frame->bytes, frame->count, &features);
    if (status == VP8_STATUS_NOT_ENOUGH_DATA)
        return image_file_is_cut(error);
    return (status == VP8_STATUS_OK && features.width == area->width &&
            features.height == area->height && area->x + area->width <= header->width &&
            area->y + area->height <= header->height) ||
           error_set(error, ERROR_DATA, "is a damaged WebP: its sizes contradict each other");
}

/* Extend the area by the pixels that upsampling reads, from an even position as libwebp requires,
 * within the frame. Then the area's pixels are those of the whole image. */
static struct image_area choose_area(const struct image_area *asked, const struct image_area *frame)
{
    const int64_t left = larger(asked->x - frame->x - EDGE, 0) & ~INT64_C(1);
    const int64_t top = larger(asked->y - frame->y - EDGE, 0) & ~INT64_C(1);
    const int64_t right = smaller(asked->x - frame->x + asked->width + EDGE, frame->width);
    const int64_t bottom = smaller(asked->y - frame->y + asked->height + EDGE, frame->height);
    return (struct image_area){left, top, right - left, bottom - top};
}

bool image_webp_decode(const uint8_t *bytes, size_t count, const struct image_header *header,
                       const struct image_request *request, struct image_pixels *pixels,
                       struct error *error)
{
    WebPBitstreamFeatures features;
    struct webp_frame frame = {bytes, count, {0, 0, header->width, header->height}};
    if (WebPGetFeatures(bytes, count, &features) != VP8_STATUS_OK)
        return error_set(error, ERROR_DATA, "is a damaged WebP: its header is invalid");
    if ((features.has_animation && !find_frame(bytes, count, &frame, error)) ||
        !check_frame(&frame, header, error))
        return false;
    const struct image_area *asked = &request->area, *whole = &frame.area;
    const bool is_inside = asked->x >= whole->x && asked->y >= whole->y &&
                           asked->x + asked->width <= whole->x + whole->width &&
                           asked->y + asked->height <= whole->y + whole->height;
    /* If the area is not inside the frame, decode the whole frame onto the canvas. */
    const struct image_area area = is_inside
                                       ? choose_area(asked, whole)
                                       : (struct image_area){0, 0, whole->width, whole->height};
    const struct image_area canvas =
        is_inside
            ? (struct image_area){whole->x + area.x, whole->y + area.y, area.width, area.height}
            : (struct image_area){0, 0, header->width, header->height};
    if (!image_pixels_reserve(pixels, canvas, 1, error))
        return false;
    memset(pixels->rows.data, 0, (size_t)(3 * canvas.height * canvas.width));
    WebPDecoderConfig config;
    VP8StatusCode status = VP8_STATUS_UNSUPPORTED_FEATURE;
    if (WebPInitDecoderConfig(&config)) {
        const int64_t stride = 3 * canvas.width;
        config.options.use_cropping = 1;
        config.options.crop_left = (int)area.x;
        config.options.crop_top = (int)area.y;
        config.options.crop_width = (int)area.width;
        config.options.crop_height = (int)area.height;
        config.output.colorspace = MODE_RGB;
        config.output.is_external_memory = 1;
        config.output.u.RGBA =
            (WebPRGBABuffer){image_pixels_at(pixels, whole->x + area.x, whole->y + area.y),
                             (int)stride, (size_t)(stride * (area.height - 1) + 3 * area.width)};
        status = WebPDecode(frame.bytes, frame.count, &config);
    }
    if (status == VP8_STATUS_OUT_OF_MEMORY)
        return error_set(error, ERROR_MEMORY, "out of memory for a WebP");
    if (status == VP8_STATUS_NOT_ENOUGH_DATA || status == VP8_STATUS_SUSPENDED)
        return image_file_is_cut(error);
    return status == VP8_STATUS_OK ||
           error_set(error, ERROR_DATA, "is a damaged WebP: its data are invalid");
}
