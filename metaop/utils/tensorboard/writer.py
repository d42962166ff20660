"""`SummaryWriter`: numbers, histograms, pictures and texts of a training run."""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from metaop.errors import MissingPackageError, UnsupportedError
from metaop.tensor.core import Tensor


def package() -> Any:
    """The modules of the tensorboard package that files are written with.

    Raises MissingPackageError where it is not installed.
    """
    try:
        from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2
        from tensorboard.summary.writer import event_file_writer
    except ImportError as error:
        raise MissingPackageError(
            "metaop.utils.tensorboard needs the tensorboard package, which is not installed",
            fix="pip install tensorboard",
        ) from error
    from types import SimpleNamespace

    return SimpleNamespace(
        event=event_pb2,
        summary=summary_pb2,
        tensor=tensor_pb2,
        shape=tensor_shape_pb2,
        files=event_file_writer,
    )


def _refuse(name: str, value: Any) -> None:
    """Raises UnsupportedError for a value of an argument that would be lost."""
    if value is not None:
        raise UnsupportedError(f"SummaryWriter: {name}={value!r}", fix=f"leave {name} out")


def _array(value: Any) -> np.ndarray:
    if isinstance(value, Tensor):
        return value.detach().cpu().float().numpy()
    return np.asarray(value)


class FileWriter:
    """Writes summaries into one event file of a folder."""

    def __init__(
        self, log_dir: str, max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = ""
    ) -> None:
        self.package = package()
        self._log_dir = str(log_dir)
        self._writer = self.package.files.EventFileWriter(
            self._log_dir, max_queue, flush_secs, filename_suffix
        )

    def get_logdir(self) -> str:
        """The folder."""
        return self._log_dir

    def add_value(self, step: int | None, walltime: float | None, **content: Any) -> None:
        """Writes one value of a summary; `content` are the fields of its message."""
        summary = self.package.summary.Summary(
            value=[self.package.summary.Summary.Value(**content)]
        )
        event = self.package.event.Event(
            wall_time=time.time() if walltime is None else walltime, summary=summary
        )
        if step is not None:
            event.step = int(step)
        self._writer.add_event(event)

    def flush(self) -> None:
        """Writes what is buffered."""
        self._writer.flush()

    def close(self) -> None:
        """Writes what is buffered and closes the file."""
        self._writer.close()


class SummaryWriter:
    """Writes the story of a run into `log_dir` (`runs/TIME_HOST` by default).

    Raises MissingPackageError when the tensorboard package is not installed, and UnsupportedError
    for `purge_step`, `double_precision` and `max_bins`, which would change what is written.
    """

    def __init__(
        self,
        log_dir: Any = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
    ) -> None:
        _refuse("purge_step", purge_step)
        if not log_dir:
            moment = datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = Path("runs") / f"{moment}_{socket.gethostname()}{comment}"
        self.log_dir = str(log_dir)
        self._options = (max_queue, flush_secs, filename_suffix)
        self.file_writer = FileWriter(self.log_dir, *self._options)
        self._others: dict[str, FileWriter] = {}

    def get_logdir(self) -> str:
        """The folder of the event files."""
        return self.log_dir

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """One number, in single precision; `new_style` changes only how it is encoded."""
        _refuse("double_precision", double_precision or None)
        value = float(_array(scalar_value))
        self.file_writer.add_value(global_step, walltime, tag=tag, simple_value=value)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: dict[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Several numbers for one diagram, each in an event file of its own."""
        for name, value in tag_scalar_dict.items():
            folder = f"{self.log_dir}/{main_tag.replace('/', '_')}_{name}"
            if folder not in self._others:
                self._others[folder] = FileWriter(folder, *self._options)
            writer = self._others[folder]
            value = float(_array(value))
            writer.add_value(global_step, walltime, tag=main_tag, simple_value=value)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: int | None = None,
        bins: Any = "auto",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """The distribution of values."""
        _refuse("max_bins", max_bins)
        numbers = _array(values).astype(np.float64).reshape(-1)
        counts, limits = np.histogram(numbers, bins="auto" if bins == "tensorflow" else bins)
        message = self.file_writer.package.summary.HistogramProto(
            min=numbers.min(),
            max=numbers.max(),
            num=numbers.size,
            sum=numbers.sum(),
            sum_squares=float(numbers @ numbers),
            bucket_limit=limits[1:].tolist(),
            bucket=counts.tolist(),
        )
        self.file_writer.add_value(global_step, walltime, tag=tag, histo=message)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """A picture: floats in 0 … 1 or bytes, with axes in the order of `dataformats`."""
        pixels = _array(img_tensor)
        if dataformats == "HW":
            pixels, dataformats = pixels[..., None], "HWC"
        pixels = np.transpose(pixels, [dataformats.index(axis) for axis in "HWC"])
        if pixels.dtype != np.uint8:
            byte = isinstance(img_tensor, Tensor) and img_tensor.dtype.kind == "int"
            pixels = np.clip(pixels * (1 if byte else 255), 0, 255).astype(np.uint8)
        height, width, channels = pixels.shape
        message = self.file_writer.package.summary.Summary.Image(
            height=height, width=width, colorspace=channels, encoded_image_string=_png(pixels)
        )
        self.file_writer.add_value(global_step, walltime, tag=tag, image=message)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Several pictures beside each other."""
        pictures = _array(img_tensor)
        order = [dataformats.index(axis) for axis in "NCHW"]
        pictures = np.transpose(pictures, order)
        if isinstance(img_tensor, Tensor) and img_tensor.dtype.kind == "int":
            pictures = pictures.astype(np.uint8)
        joined = np.concatenate(list(pictures), axis=2)
        self.add_image(tag, joined, global_step, walltime)

    def add_figure(
        self,
        tag: str,
        figure: Any,
        global_step: int | None = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """A figure of matplotlib."""
        figure.canvas.draw()
        pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3]
        self.add_image(tag, pixels, global_step, walltime, "HWC")
        if close:
            import matplotlib.pyplot as plt

            plt.close(figure)

    def add_text(
        self,
        tag: str,
        text_string: str,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """A text in Markdown."""
        package = self.file_writer.package
        plugin = package.summary.SummaryMetadata.PluginData(plugin_name="text", content=b"\x0a\x00")
        content = package.tensor.TensorProto(
            dtype="DT_STRING",
            string_val=[text_string.encode()],
            tensor_shape=package.shape.TensorShapeProto(
                dim=[package.shape.TensorShapeProto.Dim(size=1)]
            ),
        )
        self.file_writer.add_value(
            global_step,
            walltime,
            tag=tag + "/text_summary",
            metadata=package.summary.SummaryMetadata(plugin_data=plugin),
            tensor=content,
        )

    def add_graph(
        self,
        model: Any,
        input_to_model: Any = None,
        verbose: bool = False,
        use_strict_trace: bool = True,
    ) -> None:
        """Writes the model's text: metaop has no static graph of a module."""
        self.add_text("graph", f"```\n{model}\n```")

    def add_hparams(
        self,
        hparam_dict: dict[str, Any],
        metric_dict: dict[str, Any],
        hparam_domain_discrete: dict[str, Any] | None = None,
        run_name: str | None = None,
        global_step: int | None = None,
    ) -> None:
        """The settings of the run as a text, and its results as numbers."""
        _refuse("hparam_domain_discrete", hparam_domain_discrete)
        _refuse("run_name", run_name)
        rows = "\n".join(f"| {name} | {value} |" for name, value in hparam_dict.items())
        self.add_text("hparams", f"| setting | value |\n|---|---|\n{rows}", global_step)
        for name, value in metric_dict.items():
            self.add_scalar(name, value, global_step)

    def flush(self) -> None:
        """Writes what is buffered."""
        for writer in self._writers():
            writer.flush()

    def close(self) -> None:
        """Writes what is buffered and closes the files."""
        for writer in self._writers():
            writer.close()

    def _writers(self) -> Iterable[FileWriter]:
        return (self.file_writer, *self._others.values())

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _png(pixels: np.ndarray) -> bytes:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingPackageError(
            "pictures in event files need pillow, which is not installed",
            fix="pip install pillow",
        ) from error
    stream = io.BytesIO()
    shown = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    Image.fromarray(shown).save(stream, "PNG")
    return stream.getvalue()
