# SPDX-License-Identifier: BSD-3-Clause
"""Log lines and files of other programs from a run folder (docs/outputs.md, "Formats of other
programs"): a course's programs on CIFAR-10, PyTorch's ImageNet example, the Lightning-Hydra
template.
"""

import io
import math

from report_charts import Chart, Drawing, Series
from report_run import Failure, write_file
from report_values import NAN, array, esc, get, known, num, ratio, records, text


class Lines:
    """Goes through the rows of training and of epochs in the order of their steps. Formats
    have a file name and the methods step(), end_epoch() and end()."""

    def __init__(self, run):
        keys = ("global_batch", "world_size", "nodes", "total_steps", "steps_per_epoch")
        for key in keys:
            if not 1 <= run.number(key) <= 1e15:
                raise Failure(5, f"cannot export {run.path}: result.json has no {key}")
        batch, self.ranks, self.nodes, total, self.epoch_steps = (int(run.number(k)) for k in keys)
        self.run, self.lines = run, []
        self.batch, self.epochs = -(-batch // self.ranks), -(-total // self.epoch_steps)
        self.epoch, self.epoch_step = -1, 0
        self.best, self.epochs_seconds = NAN, 0.0

    def log(self, line):
        self.lines.append(line + "\n")

    def add_row(self, row, epoch, epoch_step):
        """Add the values of a training row to the sums of its epoch."""
        if epoch != self.epoch:
            self.epoch, self.epoch_step, self.sums = epoch, 0, {}
        steps, self.epoch_step = epoch_step - self.epoch_step, epoch_step
        samples = steps * row["step_seconds"] * row["images_per_second"]
        added = dict(steps=steps, samples=samples)
        added.update((name, samples * row[name]) for name in ("loss", "top1", "top5"))
        added.update((name, steps * row[name]) for name in ("step_seconds", "data_seconds"))
        for name, value in added.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        self.step(row)

    def mean(self, name):
        """Mean over the epoch so far."""
        return ratio(self.sums[name], self.sums["steps" if "seconds" in name else "samples"])

    def add_epoch(self, row):
        top1 = row["val"]["top1"]
        improved = top1 == top1 and not self.best >= top1
        self.best = top1 if improved else self.best
        self.epoch = int(row["epoch"])
        self.epochs_seconds += row["seconds"] + known(row["eval_seconds"], 0.0)
        self.end_epoch(row, improved)

    def write(self):
        rows = []
        for row in self.run.rows["train"] + self.run.epochs:
            epoch_step = row["step"] - row["epoch"] * self.epoch_steps
            if 0 <= row["epoch"] < self.epochs and 1 <= epoch_step <= self.epoch_steps:
                rows.append((row["step"], row["split"] == "epoch", int(epoch_step), row))
        for _, is_epoch, epoch_step, row in sorted(rows, key=lambda found: found[:2]):
            if is_epoch:
                self.add_epoch(row)
            else:
                self.add_row(row, int(row["epoch"]), epoch_step)
        if self.run.has_result and not math.isnan(self.run.number("loss")):
            self.end()
        write_file(self.run.file(self.file), "".join(self.lines))


class ImageNet(Lines):
    """PyTorch's ImageNet example: meters as "value (average)"; epochs and batches count from 0."""

    file = "imagenet.log"
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
        steps = max(known(self.run.number("val_steps"), 1), 1)
        if loss == loss:  # one line for the last batch, with the means as its values
            seconds = row["eval_seconds"] / steps
            values = seconds, seconds, loss, loss, *[100 * top1] * 2, *[100 * top5] * 2
            meters = self.METERS.replace("Data %6.3f (%6.3f)\t", "")
            self.log("Test: [%.0f/%.0f]\t" % (steps - 1, steps) + meters % values)
            self.log(" * Acc@1 %.3f Acc@5 %.3f" % (100 * top1, 100 * top5))
        self.log("lr: [%r]" % row["next_lr"])

    def end(self):
        pass


def yaml(value):
    """An option's value as YAML 1.1: numbers and switches as such, all else in quotes."""
    if value in ("on", "off"):
        return "true" if value == "on" else "false"
    if math.isfinite(num(value)) and not set("xX_") & set(value):
        return value if "." in value else value.replace("e", ".0e")  # 1e-05 would be a text
    return "'%s'" % value.replace("'", "''")


def lightning_write(run):
    """The Lightning-Hydra template: exec_time.log and hparams.yaml, no lines."""
    if math.isnan(run.number("parameters")):
        raise Failure(5, f"cannot export {run.path}: result.json has no parameters")
    seconds = known(get(run.attempts[-1:], "0.seconds"), run.number("total_seconds"))
    write_file(run.file("exec_time.log"), f"'train' execution time: {seconds!r} (s)")
    sections = {}
    for key, value in run.deck.items():
        section, _, name = key.partition(".")
        sections[section] = sections.get(section, section + ":\n") + f"  {name}: {yaml(value)}\n"
    total, trained = run.number("parameters"), run.number("trainable_parameters")
    counts = [("total", total), ("trainable", trained), ("non_trainable", total - trained)]
    lines = [f"model/params/{name}: {count:.0f}\n" for name, count in counts]
    write_file(run.file("hparams.yaml"), "".join([*sections.values(), *lines]))


def plots_write(charts, path, width=600, height=400):
    """Draw charts side by side in PATH.svg, and in PATH.png if matplotlib can be imported."""
    whole = f'viewBox="0 0 {len(charts) * width} {height + 24}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {whole} font-family="sans-serif">\n']
    for at, chart in enumerate(charts):
        names = [f'<tspan fill="{s.stroke}">{esc(s.name)} </tspan>' for s in chart.series]
        title = f"{esc(chart.title)} {''.join(names)} {esc(chart.y_label)}"
        parts.append(f'<text x="{at * width + 8}" y="18" font-size="13">{title}</text>\n')
        drawing = Drawing(chart, f"chart-{at}", width, height, 1, 100, 1).svg()
        place = f'<svg x="{at * width}" y="24" width="{width}" height="{height}" '
        parts.append(drawing.replace("<svg ", place, 1) + "\n")
    write_file(path + ".svg", "".join(parts) + "</svg>\n")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    figure = Figure((len(charts) * width / 100, height / 100), layout="tight")
    for axis, chart in zip(figure.subplots(1, len(charts), squeeze=False)[0], charts):
        for s in chart.series:
            axis.plot(s.x, s.y, marker=".", color=s.stroke, label=s.name)
        axis.set(title=chart.title, xlabel=chart.x_label, ylabel=chart.y_label)
        axis.legend()
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    write_file(path + ".png", picture.getvalue())


class Course(Lines):
    """A small CNN, a deep CNN and a ViT; accuracies in percent, epochs count from 1."""

    BRIEF = {"airplane": "plane", "automobile": "car"}

    def __init__(self, run):
        super().__init__(run)
        self.vit = text(run.result.get("model")).startswith("vit")
        names = [text(get(one, "name")) for one in array(run.result["classes"])]
        self.names = names if self.vit else [self.BRIEF.get(name, name) for name in names]
        self.file = f"{self.batch}_{self.epochs}_{self.nodes}_{self.ranks}.txt"

    def step(self, row):
        place = self.epoch + 1, self.epochs, self.epoch_step, self.epoch_steps, row["loss"]
        accuracy = ", Acc: %.2f%%" % (100 * self.mean("top1")) if self.vit else ""
        self.log("Epoch [%d/%d], Step [%d/%d], Loss: %.4f" % place + accuracy)

    def end_epoch(self, row, improved):
        train, test = 100 * row["top1"], 100 * row["val"]["top1"]
        seconds = row["seconds"]
        if self.vit:
            shown = self.epoch + 1, self.epochs, row["loss"], train, seconds
            self.log("Epoch [%d/%d], Loss: %.4f, Accuracy: %.2f%%, Time: %.2fs" % shown)
            return
        seconds += known(row["eval_seconds"], 0.0)
        self.log(f"Epoch {self.epoch + 1} completed in {seconds:.2f} seconds")
        self.log(f"Train Accuracy: {train:.2f}%, Test Accuracy: {test:.2f}%")
        self.log(f"Total training time so far: {self.epochs_seconds:.2f} seconds")
        if improved:
            self.log(f"New best accuracy: {test:.2f}%")

    def end(self):
        value = self.run.number
        total = value("training_seconds" if self.vit else "without_setup_seconds")
        self.log("Training completed in %.2f seconds" % total)
        self.log("Evaluating on test set..." if self.vit else "Finished Training")
        self.classes()
        if self.vit:
            self.log("\nOverall Accuracy: %.4f" % value("top1"))
        elif self.best == self.best:
            self.log("Best test accuracy: %.2f%%" % (100 * self.best))
        self.matrix()
        seconds = value("total_seconds") if self.vit else self.epochs_seconds
        self.log("Total training time: %.2f seconds" % seconds)
        if self.vit:
            self.log("Training time (excluding setup): %.2f seconds" % total)

    def classes(self):
        titles = "Accuracy Precision Recall F1-score Specificity".split()
        keys = "one_vs_rest_accuracy precision recall f1 specificity".split()
        self.log("\nMetrics for each class:\n------------------------")
        for name, one in zip(self.names, records(self.run.result["classes"])):
            self.log("\nClass: " + name)
            for title, key in zip(titles, keys):
                self.log(f"{title}: {known(one[key], 0.0):.4f}")

    def matrix(self):
        self.log("\nConfusion Matrix:\n----------------\nPredicted \u2192\nActual \u2193")
        self.log(" " * 6 + "".join("%-6.6s " % name for name in self.names))
        for name, row in zip(self.names, array(self.run.result["confusion_matrix"])):
            cells = "".join("%7d" % known(cell, 0.0) for cell in array(row))
            self.log("%-6.6s" % name + cells)

    def write(self):
        super().write()
        x, rows = [row["epoch"] + 1 for row in self.run.epochs], self.run.epochs
        loss = Series(x, [row["loss"] for row in rows], "Training Loss")
        train = Series(x, [100 * row["top1"] for row in rows], "Training Accuracy")
        test = Series(x, [100 * row["val"]["top1"] for row in rows], "Test Accuracy", 1)
        if self.vit:
            charts, name = [Chart("", [loss], "Epoch", "Loss")], "training_metrics"
            charts.append(Chart("", [train], "Epoch", "Accuracy (%)"))
        else:
            title = f"Total Train Time: {self.epochs_seconds:.2f}s"
            charts, name = [Chart(title, [train, test], "Epochs", "Accuracy (%)")], "accuracy_plot"
        plots_write(charts, self.run.file(name))


# Functions that write the files of a format to the run's folder
FORMATS = {"lightning": lightning_write}
FORMATS["course"] = lambda run: Course(run).write()
FORMATS["imagenet"] = lambda run: ImageNet(run).write()
