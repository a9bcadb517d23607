// SPDX-License-Identifier: BSD-3-Clause
/* Registered Vision Transformers. Except for vit_cifar and vit_small_patch16_sincos, name, shape
 * and image preprocessing are those of timm's default configuration of the model. timm has no
 * weights of vit_large_patch14_224. For weights without a classifier the head has 1000 classes and
 * random initial weights. */
#include "model/vit.h"

#define HALF .mean = {0.5, 0.5, 0.5}, .std = {0.5, 0.5, 0.5}
#define IMAGENET .mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}

/* The arguments after heads_ are initializers of struct vit_shape. */
#define VIT(name_, normalisation_, crop_, image_, patch_, dim_, depth_, heads_, ...)               \
    {                                                                                              \
        .name = name_, .type = &vit_type, normalisation_, .interpolation = INTERPOLATION_BICUBIC,  \
        .crop_fraction = crop_, .shape = &(const struct vit_shape)                                 \
        {                                                                                          \
            .image = image_, .channels = 3, .patch = patch_, .dim = dim_, .depth = depth_,         \
            .heads = heads_, .classes = 1000, __VA_ARGS__                                          \
        }                                                                                          \
    }
#define USUAL .qkv_bias = true, .norm_epsilon = 1e-6f

/* Steiner et al. 2022 ("augreg"). */
#define AUGREG(name_, crop_, image_, patch_, dim_, depth_, heads_)                                 \
    VIT(name_, HALF, crop_, image_, patch_, dim_, depth_, heads_, USUAL, .class_token = true)

/* Touvron et al. 2022. */
#define DEIT3(name_, crop_, image_, patch_, dim_, depth_, heads_)                                  \
    VIT(name_, IMAGENET, crop_, image_, patch_, dim_, depth_, heads_, USUAL, .class_token = true,  \
        .position = POSITION_PATCHES, .layer_scale = 1e-6)

/* Oquab et al. 2023, and with registers Darcet et al. 2024. */
#define DINOV2(name_, dim_, depth_, heads_, ...)                                                   \
    VIT(name_, IMAGENET, 1, 518, 14, dim_, depth_, heads_, USUAL, .class_token = true,             \
        .layer_scale = 1e-5, __VA_ARGS__)
#define DINOV2_REGISTERS(name_, dim_, depth_, heads_, ...)                                         \
    VIT(name_, IMAGENET, 1, 518, 14, dim_, depth_, heads_, USUAL, .class_token = true,             \
        .registers = 4, .position = POSITION_PATCHES, .layer_scale = 1e-5, __VA_ARGS__)

/* Simeoni et al. 2025. */
#define DINOV3(name_, dim_, depth_, heads_)                                                        \
    VIT(name_, IMAGENET, 1, 256, 16, dim_, depth_, heads_, .class_token = true, .registers = 4,    \
        .position = POSITION_ROTARY, .pool_mean = true, .norm_first = true, .layer_scale = 1e-5,   \
        .norm_epsilon = 1e-5f)

/* The image towers of Zhai et al. 2023 and Tschannen et al. 2025. */
#define SIGLIP(name_, image_, patch_, dim_, depth_, heads_, ...)                                   \
    VIT(name_, HALF, 0.9, image_, patch_, dim_, depth_, heads_, USUAL, .pool_map = true,           \
        __VA_ARGS__)
#define SO400M(image_, patch_, ...)                                                                \
    SIGLIP("vit_so400m_patch" #patch_ "_siglip_" #image_, image_, patch_, 1152, 27, 16,            \
           .hidden = 4304, __VA_ARGS__)

const struct model_entry vit_models[] = {
    /* the course project's CIFAR model */
    {.name = "vit_cifar",
     .type = &vit_type,
     HALF,
     .shape = &(const struct vit_shape){.image = 32,
                                        .channels = 3,
                                        .patch = 4,
                                        .dim = 192,
                                        .depth = 6,
                                        .heads = 3,
                                        .hidden = 768,
                                        .classes = 10,
                                        .dropout = 0.1,
                                        .drop_path = 0.1,
                                        .class_token = true,
                                        .embed_norm = true,
                                        .norm_epsilon = 1e-5f,
                                        .initial_zero = true,
                                        .drop_elements = true}},
    AUGREG("vit_tiny_patch16_224", 0.9, 224, 16, 192, 12, 3),
    AUGREG("vit_tiny_patch16_384", 1, 384, 16, 192, 12, 3),
    AUGREG("vit_small_patch16_224", 0.9, 224, 16, 384, 12, 6),
    AUGREG("vit_small_patch16_384", 1, 384, 16, 384, 12, 6),
    AUGREG("vit_small_patch32_224", 0.9, 224, 32, 384, 12, 6),
    AUGREG("vit_small_patch32_384", 1, 384, 32, 384, 12, 6),
    AUGREG("vit_base_patch16_224", 0.9, 224, 16, 768, 12, 12),
    AUGREG("vit_base_patch16_384", 1, 384, 16, 768, 12, 12),
    AUGREG("vit_base_patch32_224", 0.9, 224, 32, 768, 12, 12),
    AUGREG("vit_base_patch32_384", 1, 384, 32, 768, 12, 12),
    AUGREG("vit_large_patch14_224", 0.9, 224, 14, 1024, 24, 16),
    AUGREG("vit_large_patch16_224", 0.9, 224, 16, 1024, 24, 16),
    AUGREG("vit_large_patch16_384", 1, 384, 16, 1024, 24, 16),
    AUGREG("vit_large_patch32_224", 0.9, 224, 32, 1024, 24, 16),
    AUGREG("vit_large_patch32_384", 1, 384, 32, 1024, 24, 16),
    AUGREG("vit_huge_patch14_224", 0.9, 224, 14, 1280, 32, 16),
    /* ViT-S/16 of big_vision (Beyer et al. 2022) */
    VIT("vit_small_patch16_sincos", HALF, 0.9, 224, 16, 384, 12, 6, USUAL,
        .position = POSITION_SINCOS, .pool_mean = true, .norm_first = true, .gelu_tanh = true),
    DEIT3("deit3_small_patch16_224", 0.9, 224, 16, 384, 12, 6),
    DEIT3("deit3_small_patch16_384", 1, 384, 16, 384, 12, 6),
    DEIT3("deit3_medium_patch16_224", 0.9, 224, 16, 512, 12, 8),
    DEIT3("deit3_base_patch16_224", 0.9, 224, 16, 768, 12, 12),
    DEIT3("deit3_base_patch16_384", 1, 384, 16, 768, 12, 12),
    DEIT3("deit3_large_patch16_224", 0.9, 224, 16, 1024, 24, 16),
    DEIT3("deit3_large_patch16_384", 1, 384, 16, 1024, 24, 16),
    DEIT3("deit3_huge_patch14_224", 0.9, 224, 14, 1280, 32, 16),
    DINOV2("vit_small_patch14_dinov2", 384, 12, 6),
    DINOV2("vit_base_patch14_dinov2", 768, 12, 12),
    DINOV2("vit_large_patch14_dinov2", 1024, 24, 16),
    DINOV2("vit_giant_patch14_dinov2", 1536, 40, 24, .hidden = 4096, .swiglu = true),
    DINOV2_REGISTERS("vit_small_patch14_reg4_dinov2", 384, 12, 6),
    DINOV2_REGISTERS("vit_base_patch14_reg4_dinov2", 768, 12, 12),
    DINOV2_REGISTERS("vit_large_patch14_reg4_dinov2", 1024, 24, 16),
    DINOV2_REGISTERS("vit_giant_patch14_reg4_dinov2", 1536, 40, 24, .hidden = 4096, .swiglu = true),
    DINOV3("vit_small_patch16_dinov3", 384, 12, 6),
    DINOV3("vit_base_patch16_dinov3", 768, 12, 12),
    DINOV3("vit_large_patch16_dinov3", 1024, 24, 16),
    SIGLIP("vit_base_patch32_siglip_256", 256, 32, 768, 12, 12, .gelu_tanh = true),
    SIGLIP("vit_base_patch16_siglip_224", 224, 16, 768, 12, 12),
    SIGLIP("vit_base_patch16_siglip_256", 256, 16, 768, 12, 12),
    SIGLIP("vit_base_patch16_siglip_384", 384, 16, 768, 12, 12),
    SIGLIP("vit_base_patch16_siglip_512", 512, 16, 768, 12, 12),
    SIGLIP("vit_large_patch16_siglip_256", 256, 16, 1024, 24, 16),
    SIGLIP("vit_large_patch16_siglip_384", 384, 16, 1024, 24, 16),
    SIGLIP("vit_large_patch16_siglip_512", 512, 16, 1024, 24, 16, .gelu_tanh = true),
    SO400M(224, 14),
    SO400M(378, 14),
    SO400M(256, 16, .gelu_tanh = true),
    SO400M(384, 16, .gelu_tanh = true),
    SO400M(512, 16, .gelu_tanh = true),
    {.name = NULL},
};
