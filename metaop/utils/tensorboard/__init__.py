"""Event files for TensorBoard, written through the `tensorboard` package."""

from metaop.utils.tensorboard.writer import FileWriter, SummaryWriter

__all__ = ["FileWriter", "SummaryWriter"]
