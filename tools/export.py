# SPDX-License-Identifier: BSD-3-Clause
"""Log lines and files of other programs from a run folder (docs/outputs.md, "Formats of other
programs"): a course's programs on CIFAR-10, PyTorch's ImageNet example, the Lightning-Hydra
template.

The walk goes through the rows of training and the ends of epochs in the order of the steps and
calls the format for each attempt, epoch, row and checkpoint.
"""

import math
import os

NAN = float("nan")


def digits(value):
    """A number as Python prints it."""
    return repr(float(value))


class Walk:
    """A run on its way through the steps; formats override the methods."""

    log_every = log_every_vit = 0
    from_first = False  # lines from the first step of an epoch on

    def __init__(self, run, failure):
        keys = ("global_batch", "world_size", "nodes", "total_steps", "steps_per_epoch")
        for key in keys:
            if not 1 <= run.number(key) <= 1e15:
                raise failure(5, "cannot export %s: result.json has no %s" % (run.path, key))
        batch, self.ranks, self.nodes, total, self.epoch_steps = (int(run.number(k)) for k in keys)
        self.run, self.lines, self.result = run, [], []
        self.name = run.result.get("model") or ""
        self.vit = self.name.startswith("vit")
        self.batch, self.epochs = -(-batch // self.ranks), -(-total // self.epoch_steps)
        self.attempt, self.epoch, self.epoch_step, self.epochs_done = -1, -1, 0, 0
        self.best_top1 = self.best_loss = NAN
        self.epochs_seconds, self.elapsed = 0.0, 0.0

    def log(self, line):
        self.lines.append(line + "\n")

    def both(self, line):
        """A line of the log and of the course's result file."""
        self.log(line)
        self.result.append(line + "\n")

    def begin_attempt(self, resumed):
        pass

    def begin_epoch(self):
        pass

    def step(self, row):
        pass

    def end_epoch(self, row, improved):
        pass

    def checkpoint(self, path):
        pass

    def end(self):
        pass

    def files(self, write_file, draw):
        pass

    # -- the walk

    def every(self):
        """Steps between two lines: output.log_every, or the format's own number if that is the
        default and an epoch is long enough."""
        default = 10
        every = int(self.number(self.run.option("output.log_every"), default)) or default
        own = self.log_every_vit if self.vit else self.log_every
        if every > self.epoch_steps:
            return self.epoch_steps + 1
        return own if every == default and 0 < own <= self.epoch_steps else every

    @staticmethod
    def number(value, otherwise=NAN):
        try:
            return float(value)
        except (TypeError, ValueError):
            return otherwise

    def of_attempt(self, at, key):
        attempts = self.run.attempts
        return self.number(attempts[at].get(key)) if 0 <= at < len(attempts) else NAN

    def checkpoint_path(self, step):
        return os.path.join(self.run.path, "checkpoints", "step-%08d.h5" % step)

    def attempts_until(self, step):
        while self.of_attempt(self.attempt + 1, "from_step") < step:
            self.attempt += 1
            start = int(self.of_attempt(self.attempt, "from_step"))
            resumed = self.run.attempts[self.attempt].get("resumed_from")
            if resumed is None and start > 0:
                resumed = self.checkpoint_path(start)
            self.epochs_done, self.epoch = start // self.epoch_steps, -1
            self.begin_attempt(resumed)

    def checkpoint_due(self, step, best):
        """Write the line of a checkpoint that is due: by checkpoint.every, for the best evaluation,
        or at the end of the attempt."""
        epochs = self.number(self.run.option("checkpoint.every"), 1.0)
        every = max(1, round(epochs * self.epoch_steps))
        by_epochs = epochs > 0 and (best or step % every == 0)
        if by_epochs or step == self.of_attempt(self.attempt, "to_step"):
            self.checkpoint(self.checkpoint_path(step))

    def add_row(self, row, epoch, epoch_step, every):
        cell = lambda name: self.run.metrics.numbers(name)[row]
        if epoch != self.epoch:
            self.epoch, self.epoch_step = epoch, 0
            names = ("steps", "samples", "loss", "top1", "top5", "seconds", "data_seconds")
            self.sums = dict.fromkeys(names, 0.0)
            self.begin_epoch()
        before, self.epoch_step = self.epoch_step, epoch_step
        steps = epoch_step - before
        seconds = steps * cell("step_seconds")
        samples = seconds * cell("images_per_second")
        self.elapsed = cell("elapsed_seconds")
        added = dict(steps=steps, samples=samples, seconds=seconds)
        added.update((name, samples * cell(name)) for name in ("loss", "top1", "top5"))
        added["data_seconds"] = steps * cell("data_seconds")
        for name, value in added.items():
            self.sums[name] += value
        offset = every - 1 if self.from_first else 0
        if (epoch_step + offset) // every > (before + offset) // every:
            self.step(cell)

    def mean(self, name, weight="samples"):
        total = self.sums[weight]
        return self.sums[name] / total if total else NAN

    def add_epoch(self, row):
        loss, top1 = row.get("val_loss", NAN), row.get("val_top1", NAN)
        improved = top1 == top1 and not self.best_top1 >= top1
        lower = loss == loss and not self.best_loss <= loss
        self.best_top1 = top1 if improved else self.best_top1
        self.best_loss = loss if lower else self.best_loss
        self.epoch = int(row["epoch"])
        evaluation = row.get("eval_seconds", NAN)
        self.epochs_seconds += row.get("seconds", NAN)
        self.epochs_seconds += evaluation if evaluation == evaluation else 0
        self.end_epoch(row, improved)
        monitor = self.run.option("checkpoint.monitor") or "top1"
        best = improved if monitor == "top1" else lower if monitor == "loss" else False
        self.checkpoint_due(int(row["step"]), best)

    def walk(self):
        metrics, every = self.run.metrics, self.every()
        epochs = [row for row in self.run.epochs if row["epoch"] >= 0 and row["step"] >= 0]
        for row in self.run.rows["train"] + [None]:
            at_end = row is None
            step = math.inf if at_end else metrics.numbers("step")[row]
            epoch = 0 if at_end else metrics.numbers("epoch")[row]
            epoch_step = step - epoch * self.epoch_steps
            if not at_end and not (
                0 <= epoch < self.epochs and 1 <= epoch_step <= self.epoch_steps
            ):
                continue  # a damaged row
            while epochs and epochs[0]["step"] < step:
                self.add_epoch(epochs.pop(0))
            if at_end:
                break
            self.attempts_until(step)
            self.add_row(row, int(epoch), int(epoch_step), every)
            if not epochs or epochs[0]["step"] != step:
                self.checkpoint_due(int(step), False)
        if self.run.has_result and self.run.number("loss") == self.run.number("loss"):
            self.end()


class ImageNet(Walk):
    """PyTorch's ImageNet example: meters as "value (average)"; epochs and batches count from 0."""

    log_every = log_every_vit = 50
    from_first = True

    def step(self, row):
        count = len(str(self.epoch_steps))
        place = self.epoch, count, self.epoch_step - 1, self.epoch_steps
        self.log(
            "Epoch: [%d][%*d/%d]\t" % place
            + "Time %6.3f (%6.3f)\t" % (row("step_seconds"), self.mean("seconds", "steps"))
            + "Data %6.3f (%6.3f)\t" % (row("data_seconds"), self.mean("data_seconds", "steps"))
            + "Loss %.4e (%.4e)\t" % (row("loss"), self.mean("loss"))
            + "Acc@1 %6.2f (%6.2f)\t" % (100 * row("top1"), 100 * self.mean("top1"))
            + "Acc@5 %6.2f (%6.2f)" % (100 * row("top5"), 100 * self.mean("top5"))
        )

    def end_epoch(self, row, improved):
        loss, top1, top5 = (row.get("val_" + key, NAN) for key in ("loss", "top1", "top5"))
        steps = max(self.number(self.run.number("val_steps")), 1) or 1
        if loss == loss:  # one line for the last batch, with the means as its values
            seconds = row.get("eval_seconds", NAN) / steps
            shown = steps - 1, steps, seconds, seconds, loss, loss
            shares = 100 * top1, 100 * top1, 100 * top5, 100 * top5
            self.log(
                "Test: [%.0f/%.0f]\tTime %6.3f (%6.3f)\tLoss %.4e (%.4e)\t" % shown
                + "Acc@1 %6.2f (%6.2f)\tAcc@5 %6.2f (%6.2f)" % shares
            )
            self.log(" * Acc@1 %.3f Acc@5 %.3f" % (100 * top1, 100 * top5))
        self.log("lr: [%s]" % digits(row.get("next_lr", NAN)))


def yaml(value):
    """An option's value as YAML: numbers and switches as such, all else in quotes."""
    if value in ("on", "off"):
        return "true" if value == "on" else "false"
    if math.isfinite(Walk.number(value)) and not set("xX_") & set(value):
        mantissa, mark, power = value.partition("e")
        # YAML 1.1 needs a point in numbers with an exponent: 1.0e-05.
        return mantissa + (".0" if mark and "." not in mantissa else "") + mark + power
    return "'%s'" % value.replace("'", "''")


class Lightning(Walk):
    """The Lightning-Hydra template: exec_time.log and hparams.yaml, no lines."""

    def files(self, write_file, draw):
        run, section, lines = self.run, "", []
        seconds = self.of_attempt(len(run.attempts) - 1, "seconds")
        seconds = run.number("total_seconds") if seconds != seconds else seconds
        line = "'train' execution time: %s (s)" % digits(seconds)
        write_file(run.file("exec_time.log"), line)
        for key, value in run.deck.items():
            if key.partition(".")[0] != section:
                section = key.partition(".")[0]
                lines.append(section + ":\n")
            lines.append("  %s: %s\n" % (key.partition(".")[2], yaml(value)))
        total, trained = run.number("parameters"), run.number("trainable_parameters")
        counts = [("total", total), ("trainable", trained), ("non_trainable", total - trained)]
        lines += ["model/params/%s: %.0f\n" % count for count in counts]
        write_file(run.file("hparams.yaml"), "".join(lines))


class Course(Walk):
    """A small CNN, a deep CNN and a ViT; accuracies in percent, epochs count from 1."""

    log_every, log_every_vit = 512, 100
    BRIEF = {"airplane": "plane", "automobile": "car"}
    TEXTS = (
        {  # title of the processes, mark before each line, single process, title of the training
            "cnn_a": ("Process info:", " ", "----- Running in single-GPU mode -----", "--- {}---"),
            "cnn_b": (
                " Starting distributed training with:",
                "       - ",
                "[INFO] Running in single-GPU mode",
                "{}",
            ),
            "vit": ("Starting distributed training with:", " ", "Running in single GPU mode", "{}"),
        }
    )

    def program(self):
        return "cnn_a" if self.name.startswith("cnn_a") else "vit" if self.vit else "cnn_b"

    def begin_attempt(self, resumed):
        run, program = self.run, self.program()
        title, mark, single, training = self.TEXTS[program]
        if self.ranks == 1:
            self.log(single)
        else:
            shown = title, mark, mark, mark, self.ranks
            self.log("%s\n%sGlobal rank: 0\n%sLocal rank: 0\n%sWorld size: %d" % shown)
        if not self.vit:
            self.resumed(resumed)
        start = (
            "Starting Vision Transformer training with:" if self.vit else "Starting training with:"
        )
        self.log(training.format(start))
        self.log(" Number of epochs: %d\n Batch size: %d" % (self.epochs, self.batch))
        if not self.vit:
            self.log(" Total steps per epoch: %d" % self.epoch_steps)
        self.log(" Learning rate: " + digits(run.number("base_lr")))
        if self.vit:
            self.log(" Image size: %.0f" % run.number("image"))
        else:
            self.log(" Starting from epoch: %d" % self.epochs_done)
        self.log(" Device: " + ("cpu" if run.result.get("backend") in (None, "cpu") else "cuda:0"))
        if self.ranks > 1:
            self.log(" Distributed training enabled with %d processes" % self.ranks)
        if self.vit:
            self.resumed(resumed)

    def resumed(self, resumed):
        epochs, seconds = self.epochs_done, self.elapsed
        if resumed is None:
            fresh = "No checkpoint found, starting fresh training"
            self.both(fresh if self.vit else "No checkpoint found. Starting training from scratch")
            return
        if self.vit:
            line = "Loading checkpoint from %s\nResuming training from epoch %d"
            self.log(line % (resumed, epochs))
            return
        seconds -= sum(self.of_attempt(at, "setup_seconds") for at in range(self.attempt))
        self.log("Loaded %d previous train accuracy records" % epochs)
        self.log("Loaded %d previous test accuracy records" % epochs)
        monitor = self.run.option("checkpoint.monitor") or "top1"
        if self.best_top1 == self.best_top1 and monitor == "top1":
            self.log("Previous best accuracy: %.4f%%" % (100 * self.best_top1))
        self.log("Previous total training time: %.2f seconds" % seconds)
        self.log("Loaded model from %s\nContinuing training from epoch %d" % (resumed, epochs))

    def begin_epoch(self):
        if self.ranks > 1 and not self.vit:
            info = "[INFO] " if self.program() == "cnn_b" else ""
            self.log("%sSet epoch %d for distributed sampler" % (info, self.epoch))

    def step(self, row):
        place = self.epoch + 1, self.epochs, self.epoch_step, self.epoch_steps, row("loss")
        accuracy = ", Acc: %.2f%%" % (100 * self.mean("top1")) if self.vit else ""
        self.both("Epoch [%d/%d], Step [%d/%d], Loss: %.4f" % place + accuracy)

    def end_epoch(self, row, improved):
        train, test = 100 * row.get("train_top1", NAN), 100 * row.get("val_top1", NAN)
        seconds, evaluation = row.get("seconds", NAN), row.get("eval_seconds", NAN)
        if self.vit:
            shown = self.epoch + 1, self.epochs, row.get("train_loss", NAN), train, seconds
            self.both("Epoch [%d/%d], Loss: %.4f, Accuracy: %.2f%%, Time: %.2fs" % shown)
            return
        seconds += evaluation if evaluation == evaluation else 0
        self.both("Epoch %d completed in %.2f seconds" % (self.epoch + 1, seconds))
        self.both("Train Accuracy: %.2f%%, Test Accuracy: %.2f%%" % (train, test))
        self.both("Total training time so far: %.2f seconds" % self.epochs_seconds)
        if improved:
            self.both("New best accuracy: %.2f%%" % test)

    def checkpoint(self, path):
        if self.vit:
            self.log("Saved checkpoint to " + path)

    def class_name(self, at, brief=True):
        classes = self.run.result.get("classes")
        name = (classes[at] if isinstance(classes, list) and at < len(classes) else {}).get("name")
        return (self.BRIEF.get(name) if brief else None) or name or str(at)

    def classes(self):
        found = self.run.result.get("classes") or []
        if found:
            self.both("\nMetrics for each class:\n------------------------")
        titles = ["Accuracy", "Precision", "Recall", "F1-score", "Specificity"]
        keys = ["one_vs_rest_accuracy", "precision", "recall", "f1", "specificity"]
        for at, one in enumerate(found):
            one = dict(
                one, one_vs_rest_accuracy=one.get("one_vs_rest_accuracy", one.get("accuracy"))
            )
            self.both("\nClass: " + self.class_name(at, not self.vit))
            for title, key in zip(titles, keys):
                self.both("%s: %.4f" % (title, max(self.number(one.get(key), 0.0), 0)))

    def matrix(self):
        matrix = self.run.result.get("confusion_matrix") or []
        if not matrix:
            return
        self.both("\nConfusion Matrix:\n----------------\nPredicted \u2192\nActual \u2193")
        self.both(" " * 6 + "".join("%-7.31s" % self.class_name(at) for at in range(len(matrix))))
        for at, row in enumerate(matrix):
            cells = "".join("%7d" % self.number(cell, 0.0) for cell in row)
            self.both("%-6.31s" % self.class_name(at) + cells)

    def end(self):
        number, program = self.run.number, self.program()
        training = number("training_seconds")
        total = training if self.vit else number("without_setup_seconds")
        self.both("Training completed in %.2f seconds" % total)
        self.both("Evaluating on test set..." if self.vit else "Finished Training")
        self.classes()
        if self.vit:
            self.both("\nOverall Accuracy: %.4f" % number("top1"))
        if program == "cnn_b":
            self.both("Training plots saved to %s" % self.run.file("accuracy_plot.png"))
            if self.best_top1 == self.best_top1:
                self.both("Best test accuracy: %.2f%%" % (100 * self.best_top1))
            self.both("Total training time: %.2f seconds" % self.epochs_seconds)
        self.matrix()
        if self.vit:
            self.both("Total training time: %.2f seconds" % number("total_seconds"))
            self.both("Training time (excluding setup): %.2f seconds" % training)

    def files(self, write_file, draw):
        run = self.run
        name = "%d_%d_%d_%d.txt" % (self.batch, self.epochs, self.nodes, self.ranks)
        write_file(run.file(name), "".join(self.result))
        column = lambda key, scale: [scale * row.get(key, NAN) for row in run.epochs]
        epochs = [row["epoch"] + 1 for row in run.epochs]
        train, test = column("train_top1", 100), column("val_top1", 100)
        title = "Training and Test Accuracy. Total Train Time: %.2fs" % self.epochs_seconds
        curves = [("Training Accuracy", epochs, train), ("Test Accuracy", epochs, test)]
        draw(run.file("accuracy_plot"), [(title, "Epochs", "Accuracy (%)", curves)])
        losses = [("", epochs, column("train_loss", 1))]
        charts = [("Training Loss", "Epoch", "Loss", losses)]
        charts.append(("Training Accuracy", "Epoch", "Accuracy (%)", [("", epochs, train)]))
        draw(run.file("training_metrics"), charts)


FORMATS = {"course": Course, "imagenet": ImageNet, "lightning": Lightning}


def write(run, name, failure, write_file, draw):
    """Write the files of a format to the run's folder."""
    walk = FORMATS[name](run, failure)
    walk.walk()
    if name != "lightning":
        write_file(run.file(name + ".log"), "".join(walk.lines))
    walk.files(write_file, draw)
