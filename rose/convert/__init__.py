"""Checkpoint to checkpoint: MXFP4 or bf16 experts to FP8 blocks, streamed and verified."""

from rose.convert.converter import ConversionError, convert_checkpoint
from rose.convert.report import ConversionReport, TensorChange

__all__ = ["ConversionError", "ConversionReport", "TensorChange", "convert_checkpoint"]
