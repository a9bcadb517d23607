# SPDX-License-Identifier: BSD-3-Clause
"""Log lines and files of other programs from a run folder (docs/outputs.md, "Formats of other
programs"): a course's programs on CIFAR-10, PyTorch's ImageNet example, the Lightning-Hydra
template.

The walk goes through the rows of training and the ends of epochs in the order of the steps and
calls the format for each attempt, epoch, row and checkpoint.
"""

import math

from report_charts import Chart, Series, charts_write
from report_run import Failure, write_file
from report_values import NAN, Row, array, get, known, num, ratio, records, text


class Walk:
    """A run on its way through the steps; formats override the methods of the first line."""

    def ignore(self, *_):
        pass

    begin_attempt = begin_epoch = step = end_epoch = checkpoint = end = ignore
    log_every = log_every_vit = 0
    from_first = False  # lines from the first step of an epoch on

    def __init__(self, run):
        keys = ("global_batch", "world_size", "nodes", "total_steps", "steps_per_epoch")
        for key in keys:
            if not 1 <= run.number(key) <= 1e15:
                raise Failure(5, f"cannot export {run.path}: result.json has no {key}")
        batch, self.ranks, self.nodes, total, self.epoch_steps = (int(run.number(k)) for k in keys)
        self.run, self.lines, self.result = run, [], []
        self.name = text(run.result.get("model"))
        self.vit = self.name.startswith("vit")
        self.batch, self.epochs = -(-batch // self.ranks), -(-total // self.epoch_steps)
        self.attempt, self.coming, self.setup_seconds = Row(), list(run.attempts), 0.0
        self.epoch, self.epoch_step, self.epochs_done = -1, 0, 0
        self.best = {"top1": NAN, "loss": NAN}
        self.monitor = run.option("checkpoint.monitor") or "top1"
        self.epochs_seconds, self.elapsed = 0.0, 0.0

    def log(self, line):
        self.lines.append(line + "\n")

    def both(self, line):
        """A line of the log and of the course's result file."""
        self.log(line)
        self.result.append(line + "\n")

    def write(self, name):
        self.walk()
        write_file(self.run.file(name + ".log"), "".join(self.lines))

    # -- the walk

    def every(self):
        """Steps between two lines: output.log_every, or the format's own number if that is the
        default and an epoch is long enough."""
        every = int(known(self.run.option("output.log_every"), 10)) or 10
        own = self.log_every_vit if self.vit else self.log_every
        if every > self.epoch_steps:
            return self.epoch_steps + 1
        return own if every == 10 and 0 < own <= self.epoch_steps else every

    def checkpoint_path(self, step):
        return self.run.file(f"checkpoints/step-{step:08d}.h5")

    def attempts_until(self, step):
        while self.coming and num(self.coming[0]["from_step"]) < step:
            self.setup_seconds += known(self.attempt["setup_seconds"], 0.0)
            self.attempt = self.coming.pop(0)
            start = int(self.attempt["from_step"])
            self.epochs_done, self.epoch = start // self.epoch_steps, -1
            resumed = self.checkpoint_path(start) if start > 0 else None
            self.begin_attempt(self.attempt.get("resumed_from", resumed))

    def checkpoint_due(self, step, best):
        """Write the line of a checkpoint that is due: by checkpoint.every, for the best evaluation,
        or at the end of the attempt."""
        epochs = known(self.run.option("checkpoint.every"), 1.0)
        by_epochs = epochs > 0 and (best or step % max(1, round(epochs * self.epoch_steps)) == 0)
        if by_epochs or step == self.attempt["to_step"]:
            self.checkpoint(self.checkpoint_path(step))

    def add_row(self, row, epoch, epoch_step, every):
        if epoch != self.epoch:
            self.epoch, self.epoch_step, self.sums = epoch, 0, {}
            self.begin_epoch()
        before, self.epoch_step = self.epoch_step, epoch_step
        steps = epoch_step - before
        seconds = steps * row["step_seconds"]
        samples = seconds * row["images_per_second"]
        self.elapsed = row["elapsed_seconds"]
        added = dict(steps=steps, samples=samples, step_seconds=seconds)
        added.update((name, samples * row[name]) for name in ("loss", "top1", "top5"))
        added["data_seconds"] = steps * row["data_seconds"]
        for name, value in added.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        offset = every - 1 if self.from_first else 0
        if (epoch_step + offset) // every > (before + offset) // every:
            self.step(row)

    def mean(self, name):
        """Mean over the epoch so far."""
        return ratio(self.sums[name], self.sums["steps" if "seconds" in name else "samples"])

    def add_epoch(self, row):
        improved = {}
        for name, sign in (("top1", 1), ("loss", -1)):
            value, best = row["val"][name], self.best[name]
            improved[name] = value == value and not best * sign >= value * sign
            self.best[name] = value if improved[name] else best
        self.epoch = int(row["epoch"])
        self.epochs_seconds += row["seconds"] + known(row["eval_seconds"], 0.0)
        self.end_epoch(row, improved["top1"])
        self.checkpoint_due(int(row["step"]), improved.get(self.monitor, False))

    def walk(self):
        every = self.every()
        epochs = [row for row in self.run.epochs if row["epoch"] >= 0 and row["step"] >= 0]
        for row in self.run.rows["train"]:
            step, epoch = row["step"], row["epoch"]
            epoch_step = step - epoch * self.epoch_steps
            if not 0 <= epoch < self.epochs or not 1 <= epoch_step <= self.epoch_steps:
                continue  # a damaged row
            while epochs and epochs[0]["step"] < step:
                self.add_epoch(epochs.pop(0))
            self.attempts_until(step)
            self.add_row(row, int(epoch), int(epoch_step), every)
            if not epochs or epochs[0]["step"] != step:
                self.checkpoint_due(int(step), False)
        for row in epochs:
            self.add_epoch(row)
        if self.run.has_result and not math.isnan(self.run.number("loss")):
            self.end()


class ImageNet(Walk):
    """PyTorch's ImageNet example: meters as "value (average)"; epochs and batches count from 0."""

    log_every = log_every_vit = 50
    from_first = True
    METERS = "Time %6.3f (%6.3f)\tData %6.3f (%6.3f)\tLoss %.4e (%.4e)\t"
    METERS += "Acc@1 %6.2f (%6.2f)\tAcc@5 %6.2f (%6.2f)"

    def step(self, row):
        values = []
        for name in ("step_seconds", "data_seconds", "loss", "top1", "top5"):
            scale = 100 if name.startswith("top") else 1
            values += [scale * row[name], scale * self.mean(name)]
        place = self.epoch, len(str(self.epoch_steps)), self.epoch_step - 1, self.epoch_steps
        self.log("Epoch: [%d][%*d/%d]\t" % place + self.METERS % tuple(values))

    def end_epoch(self, row, improved):
        loss, top1, top5 = (row["val"][name] for name in ("loss", "top1", "top5"))
        steps = max(self.run.number("val_steps"), 1) or 1
        if loss == loss:  # one line for the last batch, with the means as its values
            seconds = row["eval_seconds"] / steps
            values = seconds, seconds, loss, loss, *[100 * top1] * 2, *[100 * top5] * 2
            meters = self.METERS.replace("Data %6.3f (%6.3f)\t", "")
            self.log("Test: [%.0f/%.0f]\t" % (steps - 1, steps) + meters % values)
            self.log(" * Acc@1 %.3f Acc@5 %.3f" % (100 * top1, 100 * top5))
        self.log("lr: [%r]" % row["next_lr"])


def yaml(value):
    """An option's value as YAML: numbers and switches as such, all else in quotes."""
    if value in ("on", "off"):
        return "true" if value == "on" else "false"
    if math.isfinite(num(value)) and not set("xX_") & set(value):
        mantissa, mark, power = value.partition("e")
        # YAML 1.1 needs a point in numbers with an exponent: 1.0e-05.
        return mantissa + (".0" if mark and "." not in mantissa else "") + mark + power
    return "'%s'" % value.replace("'", "''")


class Lightning:
    """The Lightning-Hydra template: exec_time.log and hparams.yaml, no lines."""

    def __init__(self, run):
        self.run = run

    def write(self, _):
        run, sections = self.run, {}
        if math.isnan(run.number("parameters")):
            raise Failure(5, f"cannot export {run.path}: result.json has no parameters")
        last = [attempt["seconds"] for attempt in run.attempts[-1:]]
        seconds = known(*last, run.number("total_seconds"))
        write_file(run.file("exec_time.log"), f"'train' execution time: {seconds!r} (s)")
        for key, value in run.deck.items():
            section, _, name = key.partition(".")
            lines = sections.setdefault(section, [section + ":\n"])
            lines.append(f"  {name}: {yaml(value)}\n")
        lines = ["".join(section) for section in sections.values()]
        total, trained = run.number("parameters"), run.number("trainable_parameters")
        counts = [("total", total), ("trainable", trained), ("non_trainable", total - trained)]
        lines += [f"model/params/{name}: {count:.0f}\n" for name, count in counts]
        write_file(run.file("hparams.yaml"), "".join(lines))


class Course(Walk):
    """A small CNN, a deep CNN and a ViT; accuracies in percent, epochs count from 1."""

    log_every, log_every_vit = 512, 100
    BRIEF = {"airplane": "plane", "automobile": "car"}
    # Title of the processes, mark before each line, line of a single process, title of the training
    TEXTS = {
        "cnn_a": "Process info:| |----- Running in single-GPU mode -----|"
        "--- Starting training with:---",
        "cnn_b": " Starting distributed training with:|       - |[INFO] Running in single-GPU mode|"
        "Starting training with:",
        "vit": "Starting distributed training with:| |Running in single GPU mode|"
        "Starting Vision Transformer training with:",
    }

    @property
    def program(self):
        return "cnn_a" if self.name.startswith("cnn_a") else "vit" if self.vit else "cnn_b"

    def begin_attempt(self, resumed):
        run, ranks = self.run, self.ranks
        title, mark, single, training = self.TEXTS[self.program].split("|")
        processes = ["Global rank: 0", "Local rank: 0", "World size: %d" % ranks]
        self.log(single if ranks == 1 else ("\n" + mark).join([title] + processes))
        if not self.vit:
            self.resumed_cnn(resumed)
        self.log("%s\n Number of epochs: %d\n Batch size: %d" % (training, self.epochs, self.batch))
        if self.vit:
            line = " Learning rate: %r\n Image size: %.0f"
            self.log(line % (run.number("base_lr"), run.number("image")))
        else:
            line = " Total steps per epoch: %d\n Learning rate: %r\n Starting from epoch: %d"
            self.log(line % (self.epoch_steps, run.number("base_lr"), self.epochs_done))
        self.log(" Device: " + ("cpu" if run.result.get("backend") in (None, "cpu") else "cuda:0"))
        if ranks > 1:
            self.log(" Distributed training enabled with %d processes" % ranks)
        if self.vit and resumed is None:
            self.both("No checkpoint found, starting fresh training")
        elif self.vit:
            line = "Loading checkpoint from %s\nResuming training from epoch %d"
            self.log(line % (resumed, self.epochs_done))

    def resumed_cnn(self, resumed):
        if resumed is None:
            self.both("No checkpoint found. Starting training from scratch")
            return
        self.log("Loaded %d previous train accuracy records" % self.epochs_done)
        self.log("Loaded %d previous test accuracy records" % self.epochs_done)
        if not math.isnan(self.best["top1"]) and self.monitor == "top1":
            self.log("Previous best accuracy: %.4f%%" % (100 * self.best["top1"]))
        self.log("Previous total training time: %.2f seconds" % (self.elapsed - self.setup_seconds))
        line = "Loaded model from %s\nContinuing training from epoch %d"
        self.log(line % (resumed, self.epochs_done))

    def begin_epoch(self):
        if self.ranks > 1 and not self.vit:
            info = "[INFO] " if self.program == "cnn_b" else ""
            self.log("%sSet epoch %d for distributed sampler" % (info, self.epoch))

    def step(self, row):
        place = self.epoch + 1, self.epochs, self.epoch_step, self.epoch_steps, row["loss"]
        accuracy = ", Acc: %.2f%%" % (100 * self.mean("top1")) if self.vit else ""
        self.both("Epoch [%d/%d], Step [%d/%d], Loss: %.4f" % place + accuracy)

    def end_epoch(self, row, improved):
        train, test = 100 * row["top1"], 100 * row["val"]["top1"]
        seconds = row["seconds"]
        if self.vit:
            shown = self.epoch + 1, self.epochs, row["loss"], train, seconds
            self.both("Epoch [%d/%d], Loss: %.4f, Accuracy: %.2f%%, Time: %.2fs" % shown)
            return
        seconds += known(row["eval_seconds"], 0.0)
        self.both(f"Epoch {self.epoch + 1} completed in {seconds:.2f} seconds")
        self.both(f"Train Accuracy: {train:.2f}%, Test Accuracy: {test:.2f}%")
        self.both(f"Total training time so far: {self.epochs_seconds:.2f} seconds")
        if improved:
            self.both(f"New best accuracy: {test:.2f}%")

    def checkpoint(self, path):
        if self.vit:
            self.log("Saved checkpoint to " + path)

    def class_name(self, at, brief=True):
        name = text(get(self.run.result, f"classes.{at}.name"))
        return (self.BRIEF.get(name) if brief else None) or name or str(at)

    def classes(self):
        titles = "Accuracy Precision Recall F1-score Specificity".split()
        keys = "one_vs_rest_accuracy precision recall f1 specificity".split()
        found = records(self.run.result["classes"])
        if found:
            self.both("\nMetrics for each class:\n------------------------")
        for at, one in enumerate(found):
            self.both("\nClass: " + self.class_name(at, not self.vit))
            for title, key in zip(titles, keys):
                self.both(f"{title}: {known(one[key], 0.0):.4f}")

    def matrix(self):
        matrix = array(self.run.result["confusion_matrix"])
        if not matrix:
            return
        self.both("\nConfusion Matrix:\n----------------\nPredicted \u2192\nActual \u2193")
        self.both(" " * 6 + "".join("%-7.31s" % self.class_name(at) for at in range(len(matrix))))
        for at, row in enumerate(matrix):
            cells = "".join("%7d" % known(cell, 0.0) for cell in array(row))
            self.both("%-6.31s" % self.class_name(at) + cells)

    def end(self):
        value = self.run.number
        total = value("training_seconds" if self.vit else "without_setup_seconds")
        self.both("Training completed in %.2f seconds" % total)
        self.both("Evaluating on test set..." if self.vit else "Finished Training")
        self.classes()
        if self.vit:
            self.both("\nOverall Accuracy: %.4f" % value("top1"))
        if self.program == "cnn_b":
            self.both("Training plots saved to %s" % self.run.file("accuracy_plot.png"))
            if not math.isnan(self.best["top1"]):
                self.both("Best test accuracy: %.2f%%" % (100 * self.best["top1"]))
            self.both("Total training time: %.2f seconds" % self.epochs_seconds)
        self.matrix()
        if self.vit:
            self.both("Total training time: %.2f seconds" % value("total_seconds"))
            self.both("Training time (excluding setup): %.2f seconds" % total)

    def write(self, name):
        super().write(name)
        run, epochs = self.run, [row["epoch"] + 1 for row in self.run.epochs]
        path = run.file(f"{self.batch}_{self.epochs}_{self.nodes}_{self.ranks}.txt")
        write_file(path, "".join(self.result))
        losses = [row["loss"] for row in run.epochs]
        trained = [100 * row["top1"] for row in run.epochs]
        tested = [100 * row["val"]["top1"] for row in run.epochs]
        title = f"Training and Test Accuracy. Total Train Time: {self.epochs_seconds:.2f}s"
        curves = [Series(epochs, trained, "Training Accuracy")]
        curves.append(Series(epochs, tested, "Test Accuracy", 1))
        both = Chart(title, curves, "Epochs", "Accuracy (%)")
        charts_write([both], run.file("accuracy_plot"), 1200, 500)
        loss = Chart("Training Loss", [Series(epochs, losses)], "Epoch", "Loss")
        train = Chart("Training Accuracy", [Series(epochs, trained)], "Epoch", "Accuracy (%)")
        charts_write([loss, train], run.file("training_metrics"), 1200, 500)


FORMATS = {"course": Course, "imagenet": ImageNet, "lightning": Lightning}


def write(run, name):
    """Write the files of a format to the run's folder."""
    FORMATS[name](run).write(name)
