// SPDX-License-Identifier: BSD-3-Clause
/* The command `fetch`: downloads the complete data set or pre-trained weights. One rank of each
 * file system downloads, so one job can serve all of its nodes. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "app/app.h"
#include "comm/folder_owner.h"
#include "config/command_line.h"
#include "config/options.h"
#include "core/log.h"
#include "tools/fetch/download.h"

enum { PATH_SIZE = 4096 };

/* The MD5 of the archive is published on https://www.cs.toronto.edu/~kriz/cifar.html. */
static const struct fetch_member cifar10_files[] = {
    {"batches.meta.txt", 61, "558e74b5e208382e186da55784b4bac2cd52e558448e1b5800990fdb28ed8033"},
    {"data_batch_1.bin", 30730000,
     "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"},
    {"data_batch_2.bin", 30730000,
     "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"},
    {"data_batch_3.bin", 30730000,
     "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"},
    {"data_batch_4.bin", 30730000,
     "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"},
    {"data_batch_5.bin", 30730000,
     "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"},
    {"test_batch.bin", 30730000,
     "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"},
};

static const struct fetch_archive cifar10 = {
    .url = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    .md5 = "c32a1d4ab5d03f1284b67883e8d87530",
    .folder = "cifar-10-batches-bin",
    .member = cifar10_files,
    .member_count = sizeof cifar10_files / sizeof cifar10_files[0],
};

/* timm's default weights of the vision transformers in the registry (vit_models.c), and
 * torchvision's first weights of the ResNets (ImageNet-1k), which timm publishes as safetensors. */
static const struct {
    const char *model, *variant;
} weights[] = {
    {"vit_tiny_patch16_224", "augreg_in21k_ft_in1k"},
    {"vit_tiny_patch16_384", "augreg_in21k_ft_in1k"},
    {"vit_small_patch16_224", "augreg_in21k_ft_in1k"},
    {"vit_small_patch16_384", "augreg_in21k_ft_in1k"},
    {"vit_small_patch32_224", "augreg_in21k_ft_in1k"},
    {"vit_small_patch32_384", "augreg_in21k_ft_in1k"},
    {"vit_base_patch16_224", "augreg2_in21k_ft_in1k"},
    {"vit_base_patch16_384", "augreg_in21k_ft_in1k"},
    {"vit_base_patch32_224", "augreg_in21k_ft_in1k"},
    {"vit_base_patch32_384", "augreg_in21k_ft_in1k"},
    {"vit_large_patch16_224", "augreg_in21k_ft_in1k"},
    {"vit_large_patch16_384", "augreg_in21k_ft_in1k"},
    {"vit_large_patch32_224", "orig_in21k"},
    {"vit_large_patch32_384", "orig_in21k_ft_in1k"},
    {"vit_huge_patch14_224", "orig_in21k"},
    {"deit3_small_patch16_224", "fb_in1k"},
    {"deit3_small_patch16_384", "fb_in1k"},
    {"deit3_medium_patch16_224", "fb_in1k"},
    {"deit3_base_patch16_224", "fb_in1k"},
    {"deit3_base_patch16_384", "fb_in1k"},
    {"deit3_large_patch16_224", "fb_in1k"},
    {"deit3_large_patch16_384", "fb_in1k"},
    {"deit3_huge_patch14_224", "fb_in1k"},
    {"vit_small_patch14_dinov2", "lvd142m"},
    {"vit_base_patch14_dinov2", "lvd142m"},
    {"vit_large_patch14_dinov2", "lvd142m"},
    {"vit_giant_patch14_dinov2", "lvd142m"},
    {"vit_small_patch14_reg4_dinov2", "lvd142m"},
    {"vit_base_patch14_reg4_dinov2", "lvd142m"},
    {"vit_large_patch14_reg4_dinov2", "lvd142m"},
    {"vit_giant_patch14_reg4_dinov2", "lvd142m"},
    {"vit_small_patch16_dinov3", "lvd1689m"},
    {"vit_base_patch16_dinov3", "lvd1689m"},
    {"vit_large_patch16_dinov3", "lvd1689m"},
    {"vit_base_patch32_siglip_256", "v2_webli"},
    {"vit_base_patch16_siglip_224", "v2_webli"},
    {"vit_base_patch16_siglip_256", "v2_webli"},
    {"vit_base_patch16_siglip_384", "v2_webli"},
    {"vit_base_patch16_siglip_512", "v2_webli"},
    {"vit_large_patch16_siglip_256", "v2_webli"},
    {"vit_large_patch16_siglip_384", "v2_webli"},
    {"vit_large_patch16_siglip_512", "v2_webli"},
    {"vit_so400m_patch14_siglip_224", "v2_webli"},
    {"vit_so400m_patch14_siglip_378", "v2_webli"},
    {"vit_so400m_patch16_siglip_256", "v2_webli"},
    {"vit_so400m_patch16_siglip_384", "v2_webli"},
    {"vit_so400m_patch16_siglip_512", "v2_webli"},
    {"resnet18", "tv_in1k"},
    {"resnet34", "tv_in1k"},
    {"resnet50", "tv_in1k"},
    {"resnet101", "tv_in1k"},
    {"resnet152", "tv_in1k"},
};

enum { WEIGHTS_COUNT = sizeof weights / sizeof weights[0] };

static const char *find_variant(const char *model, struct error *error)
{
    for (int i = 0; i < WEIGHTS_COUNT; i++)
        if (strcmp(weights[i].model, model) == 0)
            return weights[i].variant;
    error_set(error, ERROR_USAGE,
              "%s: no published weights for this model: choose a ResNet, or a ViT of timm, from "
              "the list of vittrain --list-models",
              model);
    return NULL;
}

/* True if a file begins like safetensors: with the length of its header and '{'. */
static bool looks_like_safetensors(const char *path)
{
    unsigned char start[9] = {0};
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return false;
    bool good = fread(start, 1, sizeof start, file) == sizeof start && start[8] == '{' &&
                start[7] == 0 && start[6] == 0;
    fclose(file);
    return good;
}

bool fetch_weights(const char *model, const char *url, const char *directory, struct error *error)
{
    const char *variant = find_variant(model, error);
    if (variant == NULL)
        return false;
    char path[PATH_SIZE], address[FETCH_URL], name[128];
    if (strlen(directory) + sizeof name + 2 > PATH_SIZE)
        return error_set(error, ERROR_USAGE, "fetch.dir=%s: the path is too long", directory);
    snprintf(name, sizeof name, "%s.safetensors", model);
    snprintf(path, sizeof path, "%s/%s", directory, name);
    if (url != NULL)
        fetch_complete_url(url, name, address);
    else
        snprintf(address, sizeof address,
                 "https://huggingface.co/timm/%s.%s/resolve/main/model.safetensors", model,
                 variant);
    if (!fetch_file(address, path, NULL, NULL, error))
        return false;
    if (looks_like_safetensors(path))
        return true;
    unlink(path);
    return error_set(error, ERROR_NETWORK,
                     "%s: the download is not a safetensors file; set fetch.url to another address",
                     address);
}

static bool check_operands(const struct command_line *line, struct error *error)
{
    const char *what = line->operand_count > 0 ? line->operand[0] : "";
    if (strcmp(what, "cifar10") == 0 && line->operand_count == 1)
        return true;
    if (strcmp(what, "weights") == 0 && line->operand_count == 2)
        return true;
    return error_set(
        error, ERROR_USAGE,
        "nothing known to fetch: use `vittrain fetch cifar10`, or `vittrain fetch weights "
        "NAME` with NAME as in model.name");
}

static void fetch_run(const struct options *options, const struct command_line *line,
                      struct comm *world, struct error *error)
{
    int node = 0, owner = 0;
    comm_set_timeout(0); /* the other ranks wait without a time limit */
    const char *directory = options->fetch.dir;
    const char *url = options->fetch.url[0] != '\0' ? options->fetch.url : NULL;
    const bool cifar = line->operand_count == 1; /* else weights NAME */
    bool good = check_operands(line, error) && folder_owner(world, directory, true, &owner, error);
    if (good) {
        comm_node_count(world, &node);
        struct comm *neighbours = comm_split_node(world);
        if (owner == node && neighbours->rank == 0)
            error_defer(cifar ? fetch_archive(&cifar10, url, directory, error)
                              : fetch_weights(line->operand[1], url, directory, error));
        neighbours->backend->close(neighbours);
        good = comm_agree(world, error);
    }
    if (good && cifar)
        log_info("CIFAR-10 is in %s; train on it with data.root=%s", directory, directory);
    else if (good)
        log_info("the weights are in %s/%s.safetensors; start from them with model.name=%s "
                 "model.init=%s/%s.safetensors",
                 directory, line->operand[1], line->operand[1], directory, line->operand[1]);
}

const struct command command_fetch = {
    .name = "fetch",
    .synopsis = "fetch cifar10 | fetch weights NAME [DECK.ini ...] [section.key=value ...]",
    .summary = "download the complete CIFAR-10, or pre-trained weights of a model",
    .detail =
        "Downloads into fetch.dir: `fetch cifar10` the complete CIFAR-10 from its official home, "
        "`fetch weights NAME` published weights of the model NAME (of ViTs timm's, of ResNets "
        "torchvision's) as NAME.safetensors. fetch.url "
        "names another address (http, https or file; one that ends in / is completed with the "
        "file's name). Sums are checked; what broke off goes on where it stood when the "
        "command is given again. With several ranks one of each distinct file system "
        "downloads.",
    .run = fetch_run};
