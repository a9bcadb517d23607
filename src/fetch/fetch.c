/* The command `fetch`: downloads the complete data set or pre-trained weights. One rank of each
 * file system downloads, so one job can serve all of its nodes. */
#include <string.h>

#include "app/app.h"
#include "config/command_line.h"
#include "config/options.h"
#include "core/log.h"
#include "data/directory.h"
#include "fetch/download.h"

static bool check_operands(const struct command_line *line, struct error *error)
{
    const char *what = line->operand_count > 0 ? line->operand[0] : "";
    if (strcmp(what, "cifar10") == 0 && line->operand_count == 1)
        return true;
    if (strcmp(what, "weights") == 0 && line->operand_count == 2)
        return true;
    return error_set(error, ERROR_USAGE,
                     "missing object: use `vittrain fetch cifar10`, or `vittrain fetch weights "
                     "NAME` with NAME as in model.name");
}

static bool download(const struct options *options, const struct command_line *line,
                     struct error *error)
{
    const char *url = options->fetch.url[0] != '\0' ? options->fetch.url : NULL;
    if (strcmp(line->operand[0], "cifar10") == 0)
        return fetch_cifar10(url, options->fetch.dir, error);
    return fetch_weights(line->operand[1], url, options->fetch.dir, error);
}

static void say_what_next(const struct options *options, const struct command_line *line)
{
    if (strcmp(line->operand[0], "cifar10") == 0)
        log_info("CIFAR-10 is in %s; train on it with data.root=%s", options->fetch.dir,
                 options->fetch.dir);
    else
        log_info("the weights are in %s/%s.safetensors; start from them with model.name=%s "
                 "model.init=%s/%s.safetensors",
                 options->fetch.dir, line->operand[1], line->operand[1], options->fetch.dir,
                 line->operand[1]);
}

static void fetch_run(const struct options *options, const struct command_line *line,
                      struct comm *world, struct error *error)
{
    int node = 0, owner = 0;
    comm_set_timeout(0); /* the other ranks wait without a time limit */
    bool good =
        check_operands(line, error) && directory_owner(world, options->fetch.dir, &owner, error);
    if (good) {
        comm_node_count(world, &node);
        struct comm *neighbours = comm_split_node(world);
        if (owner == node && neighbours->rank == 0)
            download(options, line, error);
        neighbours->backend->close(neighbours);
        good = comm_agree(world, error);
    }
    if (good)
        say_what_next(options, line);
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
